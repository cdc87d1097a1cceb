#!/usr/bin/env bash
# Prints the directory with versitygw, an S3 server that stores objects as files; builds it first if it is missing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../go-programs.sh"

versitygw=1.8.0
go_programs "versitygw-$versitygw" versitygw "github.com/versity/versitygw/cmd/versitygw@v$versitygw"
