#!/usr/bin/env bash
# Regenerates the index files of ref.fa.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
"${GODWIT:-godwit}" index ref.fa
rm ref.fa.fai
