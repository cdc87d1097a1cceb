#!/usr/bin/env bash
# Prints the directory with the integration programs of Arrow's Go implementation; builds them first if they are missing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../go-programs.sh"

version=18.8.0
module=github.com/apache/arrow-go/v18/arrow
go_programs "arrow-go-$version" arrow-json-integration-test \
    "$module/internal/flight_integration/cmd/arrow-flight-integration-client@v$version" \
    "$module/internal/flight_integration/cmd/arrow-flight-integration-server@v$version" \
    "$module/ipc/cmd/arrow-json-integration-test@v$version"
