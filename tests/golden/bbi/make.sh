#!/bin/sh
# Writes the files, and the rows that are expected of them, with the programs in VERSIONS:
#   pip install pyBigWig==0.3.29 pybigtools==0.3.0
set -eu
cd "$(dirname "$0")"
python3 make.py
