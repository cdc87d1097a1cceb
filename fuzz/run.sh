#!/usr/bin/env bash
# Fuzzes one target, or all of them in sequence, with libFuzzer on stable Rust; cargo-fuzz is not needed.
#
#   fuzz/run.sh TARGET|all [SECONDS]      600 seconds each by default
#
# The corpus is written to target/fuzz/corpus/TARGET, failing inputs to target/fuzz/artifacts/TARGET. Exits with 1 at the first
# failure: a panic, 10 seconds for one input, or more than a gigabyte of memory.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${1:?usage: fuzz/run.sh TARGET|all [SECONDS]}
seconds=${2:-600}
work=$(realpath -m "$here/../target/fuzz")

# The flags of cargo-fuzz, without the address sanitizer, which needs nightly: our code has almost no unsafe.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
# The equivalent for C, which gcc and clang support; fuzz/c_coverage.c defines the function that it calls.
export CFLAGS="${CFLAGS:-} -fsanitize-coverage=trace-pc"
# Libraries whose build tests the compiler link programs with these flags and without our function.
mkdir -p "$work"
echo 'void __sanitizer_cov_trace_pc(void) {}' | "${CC:-cc}" -x c -c -fPIC -o "$work/no_coverage.o" -
export LDFLAGS="${LDFLAGS:-} $work/no_coverage.o"
# htslib must not search for references of CRAM files elsewhere, and scratch files must not use the disk.
export REF_PATH=/nonexistent
if [ -d /dev/shm ]; then export TMPDIR=/dev/shm; fi
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --manifest-path "$here/Cargo.toml" --target "$host" --target-dir "$work/build"

fuzz() {
    name=$1
    shift
    mkdir -p "$work/corpus/$name" "$work/artifacts/$name"
    echo "fuzz: $name for $seconds s"
    "$work/build/$host/release/$name" "$work/corpus/$name" "$here/seeds/$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1 -artifact_prefix="$work/artifacts/$name/" "$@" 2>&1 |
        grep -vE '^#[0-9]+\s+(NEW|REDUCE|pulse|RELOAD|INITED)|NEW_FUNC|^INFO: (Loaded|Seed|-max|  )' || true
}

targets=$target
if [ "$target" = all ]; then
    targets=$(ls "$here/seeds")
fi
for name in $targets; do
    if [ "$name" = cram ]; then
        # The library that decodes has faults, so godwit decodes in a separate process
        # (docs/decisions/0005-cram-with-vendored-htslib.md): godwit itself reads every input that was found.
        fuzz cram -fork=1 -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1
        env -u RUSTFLAGS -u CFLAGS -u LDFLAGS \
            cargo build --quiet --locked --profile ci --manifest-path "$here/../Cargo.toml" \
            -p godwit -p godwit-bwa -p godwit-fuzz --bins --example replay_cram
        find "$work/artifacts/cram" "$here/seeds/cram" -type f -print0 |
            xargs -0 "$here/../target/ci/examples/replay_cram" "$here/../target/ci/godwit"
        continue
    fi
    fuzz "$name"
    # grep's status hides that of the fuzzer; an artifact shows the failure.
    if [ -n "$(ls -A "$work/artifacts/$name")" ]; then
        echo "fuzz: $name failed; see target/fuzz/artifacts/$name" >&2
        exit 1
    fi
done
