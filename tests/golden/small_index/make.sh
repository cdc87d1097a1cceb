#!/usr/bin/env bash
# Makes the index files of ref.fa anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
"${GODWIT:-godwit}" index ref.fa
rm ref.fa.fai
