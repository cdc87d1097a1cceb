#!/usr/bin/env bash
# Searches for memory errors in unsafe code: runs the tests of the crates that have some with the address sanitizer, and the program
# around bwa, whose C library is a binary of the distribution, under valgrind.
#
#   fuzz/sanitize.sh [asan|valgrind]      both by default
#
# Exits with 1 at the first error. Takes some minutes, most of them for the build.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$here/..")
work=$(realpath -m "$root/target/fuzz")
host=$(rustc -vV | sed -n 's/^host: //p')
what=${1:-both}
cd "$root"

crates=(bwa bwa-mem3 cram engines fleet flight mem path process transfer)

address_sanitizer() {
    # Stable Rust includes the runtime of the sanitizer, but not the flag that enables it; the build has an explicit target, so that
    # build scripts are not affected.
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address
    # For C, the check of variables out of scope is disabled: gcc's objects with the runtime of rustc's sanitizer stop at a table of
    # libzstd, which is a global and never out of scope.
    export CFLAGS="${CFLAGS:-} -fsanitize=address -fno-sanitize-address-use-after-scope" CXXFLAGS="${CXXFLAGS:-} -fsanitize=address"
    # Threads and caches that live as long as the program are not leaks; objects that are linked into a program twice are
    # identical.
    export ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:detect_stack_use_after_return=1
    cargo test --locked --profile ci --target "$host" --target-dir "$work/asan" "${crates[@]/#/-pgodwit-}" --lib --bins --tests --no-fail-fast
}

under_valgrind() {
    command -v valgrind >/dev/null || {
        echo "sanitize: valgrind is missing: apt-get install valgrind" >&2
        exit 4
    }
    cargo build --quiet --locked --profile ci -p godwit -p godwit-bwa --bins
    local directory program
    directory=$(mktemp -d)
    program=$directory/godwit-bwa
    cat >"$program" <<EOF
#!/bin/sh
exec valgrind --quiet --error-exitcode=99 --log-file=$directory/valgrind.%p $root/target/ci/godwit-bwa "\$@"
EOF
    chmod +x "$program"
    local godwit=$root/target/ci/godwit
    # Two contigs, the second with a copy of a piece of the first.
    awk 'BEGIN { srand(7); for (c = 1; c <= 2; c++) { print ">chr" c; for (l = 0; l < 1600; l++) {
        s = ""; for (i = 0; i < 60; i++) s = s substr("ACGT", int(rand() * 4) + 1, 1);
        if (c == 1) kept[l] = s; print c == 2 && l < 40 ? kept[l] : s } } }' >"$directory/ref.fa"
    "$godwit" index --quiet "$directory/ref.fa"
    "$godwit" simulate --reference "$directory/ref.fa" --pairs 4000 --out "$directory/reads" >/dev/null
    for threads in 1 2; do
        GODWIT_BWA=$program "$godwit" align --quiet --reference "$directory/ref.fa" --threads "$threads" --block-bases 200000 \
            --reads "$directory/reads_L001_R1.fastq" "$directory/reads_L001_R2.fastq" --sample s --out "$directory/out$threads"
    done
    cmp "$directory/out1/s.bam" "$directory/out2/s.bam"
    if [ -n "$(find "$directory" -name 'valgrind.*' -size +0)" ]; then
        cat "$directory"/valgrind.*
        exit 1
    fi
    echo "sanitize: valgrind found nothing in $(find "$directory" -name 'valgrind.*' | wc -l) processes"
    rm -r "$directory"
}

case $what in
    asan) address_sanitizer ;;
    valgrind) under_valgrind ;;
    both)
        under_valgrind
        (address_sanitizer)
        ;;
    *)
        echo "usage: fuzz/sanitize.sh [asan|valgrind]" >&2
        exit 2
        ;;
esac
