#!/usr/bin/env bash
# Installs godwit's missing dependencies from Debian or Ubuntu.
#
#   tools/install-dependencies.sh run     build godwit, and run its jobs and the demo
#   tools/install-dependencies.sh build   the same, and what the build of the whole workspace and the checks of its style need
#   tools/install-dependencies.sh test    the same, and the tools that the tests compare with (the default)
#   tools/install-dependencies.sh bench   the same, and the competitors that the benchmarks measure
#
# Takes a second when nothing is missing; uses root (by sudo) only for missing packages. Exit codes are godwit's:
# 2 wrong usage, 4 a dependency is missing and cannot be installed here.
set -euo pipefail

profile=${1:-test}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() {
    echo "install-dependencies: $1" >&2
    exit 4
}

# The packages of each profile, each with a command, or a file below a prefix, after a colon that makes the package unnecessary.
run=(build-essential:c++ binutils:objcopy cmake:cmake libbwa-dev:lib/libbwa.a zlib1g-dev:include/zlib.h bwa:bwa samtools:samtools bcftools:bcftools)
build=(python3:python3 python3-venv)
test=(freebayes:freebayes zstd:zstd tabix:tabix ncbi-blast+:makeblastdb fastp:fastp mosdepth:mosdepth bedtools:bedtools minimap2:minimap2 bowtie2:bowtie2 libhts-dev:include/htslib/sam.h
    default-jdk-headless:javac maven:mvn util-linux:unshare openssl:openssl curl:curl libnfs-utils:nfs-cp systemd:systemd-analyze environment-modules:modulecmd
    munge:munged slurmctld:slurmctld slurmd:slurmd slurm-client:sbatch iproute2:ip openssh-server:sshd openssh-client:ssh)
bench=(samblaster:samblaster iperf3:iperf3 postgresql odbc-postgresql clickhouse-server:clickhouse-server
    clickhouse-client:clickhouse-client bsdiff:bsdiff aria2:aria2c nginx-light:nginx globus-gridftp-server-progs:globus-gridftp-server
    globus-gass-copy-progs:globus-url-copy libglobus-xio-udt-driver rclone:rclone fuse3:fusermount b3sum:b3sum)

# Optional packages: tests that need them are skipped if a package is not available.
wanted=(diamond-aligner:diamond mmseqs2:mmseqs chromium:chromium)

case "$profile" in
    run) needs=("${run[@]}") ;;
    build) needs=("${run[@]}" "${build[@]}") ;;
    test) needs=("${run[@]}" "${build[@]}" "${test[@]}") ;;
    bench) needs=("${run[@]}" "${build[@]}" "${test[@]}" "${bench[@]}") ;;
    *)
        echo "usage: tools/install-dependencies.sh [run|build|test|bench]" >&2
        exit 2
        ;;
esac

# The directories of daemons, which are not on a user's PATH.
PATH=$PATH:/usr/sbin:/sbin

command -v cargo >/dev/null || fail "cargo is missing; install Rust from https://rustup.rs and run this again"

runs_tests() {
    [ "$profile" = test ] || [ "$profile" = bench ]
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Reports whether a command is on the PATH, or a file is below one of the prefixes in which the build looks for headers and libraries.
provides() {
    case "$1" in
        */*)
            local prefix
            for prefix in ${LIBBWA_PREFIX:+"$LIBBWA_PREFIX"} /usr /usr/local; do
                [ ! -e "$prefix/$1" ] || return 0
            done
            return 1
            ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

missing=()
for need in "${needs[@]}"; do
    package=${need%%:*}
    if [ "$package" != "$need" ] && provides "${need##*:}"; then
        continue
    fi
    is_installed "$package" || missing+=("$package")
done

if runs_tests && command -v apt-get >/dev/null; then
    for need in "${wanted[@]}"; do
        package=${need%%:*}
        command -v "${need##*:}" >/dev/null && continue
        # A system without package lists downloads them first.
        apt-cache show "$package" >/dev/null 2>&1 || apt-get -qq update >/dev/null 2>&1 || sudo -n apt-get -qq update >/dev/null 2>&1 || true
        if apt-cache show "$package" >/dev/null 2>&1; then
            missing+=("$package")
        else
            echo "install-dependencies: there is no package $package; its tests will be skipped" >&2
        fi
    done
fi

if [ "${#missing[@]}" -gt 0 ]; then
    echo "install-dependencies: installing ${missing[*]}"
    command -v apt-get >/dev/null || fail "this is not Debian or Ubuntu; install the equivalents of: ${missing[*]}"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "not root and no sudo; have an administrator run: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y)
    "${apt[@]}" update || fail "apt-get update failed; see above"
    # Tests start daemons of their own, on private ports and directories. The packages must not start daemons on this machine,
    # neither now (policy-rc.d is Debian's way to prevent it) nor at boot.
    policy=/usr/sbin/policy-rc.d
    quiet=no
    if [ ! -e "$policy" ]; then
        quiet=yes
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" install -m 755 /dev/stdin "$policy"
    fi
    status=0
    "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null || status=$?
    [ "$quiet" = no ] || "${as_root[@]}" rm -f "$policy"
    [ "$status" -eq 0 ] || fail "apt-get install failed; see above"
    for package in "${missing[@]}"; do
        case "$package" in
            munge | slurmctld | slurmd | postgresql | clickhouse-server) services=("$package") ;;
            openssh-server) services=(ssh) ;;
            *) continue ;;
        esac
        if command -v systemctl >/dev/null; then
            "${as_root[@]}" systemctl --quiet disable "${services[@]}" || true
        fi
    done
fi

# bwa's library and program must have one version, or godwit's results would differ from bwa's.
if is_installed libbwa-dev && is_installed bwa; then
    library=$(dpkg-query -W -f='${Version}' libbwa-dev)
    program=$(dpkg-query -W -f='${Version}' bwa)
    [ "$library" = "$program" ] || fail "libbwa-dev is $library but bwa is $program; install the same version of both"
fi

picard=$root/tests/tools/picard/fetch.sh
if runs_tests && [ -x "$picard" ]; then
    "$picard" >/dev/null || fail "Picard could not be fetched; see above"
fi

# 420 MB: a minute or two, once.
gatk=$root/tests/tools/gatk/fetch.sh
if runs_tests && [ -x "$gatk" ]; then
    "$gatk" >/dev/null || fail "GATK could not be fetched; see above"
fi

# An S3 server for the tests, built from source: a minute or two, once. Its modules are on a host that no other download uses,
# so tests that need it are skipped on a machine that cannot reach that host.
if runs_tests && ! "$root/tests/tools/s3/fetch.sh" >/dev/null; then
    echo "install-dependencies: versitygw could not be built; tests of datasets in buckets will be skipped" >&2
fi

# NCBI's libraries, which godwit-blast links. 190 MB: half a minute, once.
if [ "$profile" != run ]; then
    "$root/tools/fetch-ncbi.sh" >/dev/null || fail "NCBI's libraries could not be installed; see above"
fi

# The genome browser of the page of `godwit serve`; without it the page has none.
if ! "$root/tools/fetch-igv.sh" >/dev/null; then
    echo "install-dependencies: igv.js could not be fetched; the page of godwit serve will have no genome browser" >&2
fi

# Python programs that the tests compare with, each in an environment of its own.
multiqc=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/multiqc-1.35
if runs_tests && [ ! -x "$multiqc/bin/multiqc" ]; then
    echo "install-dependencies: installing MultiQC"
    # pip writes its command last, so that an interrupted environment is made again.
    { rm -rf "$multiqc" && python3 -m venv "$multiqc" && "$multiqc/bin/pip" --quiet install multiqc==1.35; } ||
        fail "MultiQC could not be installed; see above"
fi

clients=$root/bench/godwit_bench/clients/fetch.sh
if [ "$profile" = bench ]; then
    "$clients" >/dev/null || fail "the Python clients that are measured could not be installed; see above"
fi

# Python environments of the tests. Others, of which only single tests have need, are made by these tests.
if runs_tests; then
    for environment in columns web scoring browser; do
        "$root/tools/python-packages.sh" "$environment" "$root/tests/tools/$environment/requirements.txt" >/dev/null ||
            fail "the Python environment $environment of the tests could not be installed; see above"
    done
fi
