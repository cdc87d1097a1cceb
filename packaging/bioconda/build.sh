#!/usr/bin/env bash
# Builds godwit with conda's compilers and installs it into $PREFIX. bwa's sources are in bwa/.
set -euo pipefail

# The directory in which the build of godwit-bwa finds the library: bwa's Makefile has no install target.
library=$SRC_DIR/libbwa
# One of its headers defines a variable, which compilers from GCC 10 on treat as a definition in each file.
make -C bwa -j "$CPU_COUNT" libbwa.a CC="$CC" CFLAGS="$CFLAGS $CPPFLAGS -O2 -fcommon -Wno-unused-function"
mkdir -p "$library/include/bwa" "$library/lib"
cp bwa/*.h "$library/include/bwa/"
cp bwa/libbwa.a "$library/lib/"

export LIBBWA_PREFIX=$library CARGO_HOME=$SRC_DIR/.cargo-home
export CARGO_TARGET_DIR=$SRC_DIR/target
cargo-bundle-licenses --format yaml --output THIRDPARTY.yml
cargo build --locked --release $(grep -v '^#' packaging/programs.txt | sed 's/^/--package=/')
./install --no-build --prefix "$PREFIX"
