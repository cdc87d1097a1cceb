#!/usr/bin/env bash
# Prints the directory with grpcurl and ghz; builds them first if they are missing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../go-programs.sh"

grpcurl=1.9.3
ghz=0.121.0
go_programs "grpc-tools-$grpcurl-$ghz" ghz \
    "github.com/fullstorydev/grpcurl/cmd/grpcurl@v$grpcurl" "github.com/bojand/ghz/cmd/ghz@v$ghz"
