#!/bin/sh
# Writes the chain file and the expected intervals with the programs in VERSIONS:
#   pip install pyliftover==0.4.1 CrossMap==0.7.4
set -eu
cd "$(dirname "$0")"
python3 make.py
