#!/usr/bin/env bash
# Installs the files of `cargo xtask release` in fresh Debian 12 roots and runs them there: demo, server under systemd, container.
#
#   packaging/test-packages.sh [DIR]      (target/release-files)
#
# Needs root, mmdebstrap, unshare and ip; and podman with runc or crun for the image. The last line counts the tests.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
files=$(cd "${1:-$root/target/release-files}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0

check() {
    if "$@" >"$scratch/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok: $1"
    else
        failed=$((failed + 1))
        echo "FAILED: $1"
        tail -n 30 "$scratch/log"
    fi
}

# Makes a root that contains Debian's minimal system, at $scratch/$1.
fresh_root() {
    mkdir "$scratch/$1"
    tar --extract --file "$scratch/debian.tar" --directory "$scratch/$1" --exclude './dev/*'
    mknod -m 666 "$scratch/$1/dev/null" c 1 3
    cp /etc/resolv.conf "$scratch/$1/etc/resolv.conf"
}

install_in_root() {
    chroot "$scratch/$1" apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive chroot "$scratch/$1" apt-get install -y -qq --no-install-recommends "${@:2}"
}

# The demo, its verification, and a query that needs godwit-sql.
demo='godwit demo --pairs 500 --out demo --quiet
godwit verify demo
godwit query "SELECT contig, count(*) AS reads FROM reads('"'demo.bam'"') GROUP BY contig" --data demo'

run_demo() {
    unshare --mount sh -ec 'mount -t proc proc "$0/proc"; exec chroot "$0" sh -exc "cd /root; $1"' "$scratch/$1" "$demo"
}

checksums_are_those_of_the_list() {
    cd "$files" && sha256sum --check --quiet SHA256SUMS
}

tarball_runs_the_demo() {
    fresh_root tarball &&
        tar -xzf "$files"/godwit-*-linux-x86_64.tar.gz --strip-components=1 -C "$scratch/tarball/usr/local" &&
        run_demo tarball
}

debian_package_runs_the_demo_and_is_removed() {
    fresh_root package && cp "$files"/godwit_*_amd64.deb "$scratch/package/godwit.deb" && install_in_root package /godwit.deb && run_demo package &&
        [ -s "$scratch/package/usr/share/bash-completion/completions/godwit" ] &&
        chroot "$scratch/package" getent passwd godwit && chroot "$scratch/package" apt-get purge -y -qq godwit &&
        [ ! -e "$scratch/package/usr/bin/godwit" ] && [ ! -e "$scratch/package/etc/default/godwit" ]
}

# Boots systemd in namespaces of its own; a unit checks the server and writes `result`.
unit_starts_reloads_and_stops_under_systemd() {
    local boot=$scratch/boot
    fresh_root boot && cp "$files"/godwit_*_amd64.deb "$boot/godwit.deb" &&
        install_in_root boot systemd systemd-sysv dbus procps /godwit.deb || return
    mkdir "$boot/srv/genomes"
    printf '>c\nACGT\n' >"$boot/srv/genomes/a.fa"
    echo 'SERVE_OPTIONS=--root /srv/genomes --listen 127.0.0.1:8815 --drain 1s --audit /var/lib/godwit/audit.jsonl' >"$boot/etc/default/godwit"
    cat >"$boot/check.sh" <<'END'
#!/bin/sh
trap 'systemctl poweroff --force --force' EXIT
set -ex
exec >/result 2>&1
systemctl is-active godwit
[ "$(ps -o user= -p "$(systemctl show --property MainPID --value godwit)")" = godwit ]
systemctl reload godwit
sleep 1
systemctl is-active godwit
[ -s /var/lib/godwit/audit.jsonl ]
systemctl stop godwit
[ "$(systemctl show --property Result --value godwit)" = success ]
echo complete
END
    chmod 755 "$boot/check.sh"
    printf '[Unit]\nAfter=godwit.service\n[Service]\nType=oneshot\nExecStart=/check.sh\n' >"$boot/etc/systemd/system/check.service"
    mkdir -p "$boot/etc/systemd/system/multi-user.target.wants"
    ln -s /lib/systemd/system/godwit.service ../check.service "$boot/etc/systemd/system/multi-user.target.wants/"
    timeout --signal=KILL 120 unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child bash -ec '
        ip link set lo up
        mount --make-rprivate /
        mount --bind "$0" "$0"
        mount -t proc proc "$0/proc"
        mount -t sysfs -o ro sysfs "$0/sys"
        if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
            mount -t cgroup2 cgroup2 "$0/sys/fs/cgroup"
        else
            mount -t tmpfs tmpfs "$0/sys/fs/cgroup"
            mkdir "$0/sys/fs/cgroup/systemd"
            mount -t cgroup -o none,name=systemd cgroup "$0/sys/fs/cgroup/systemd"
        fi
        mount -t tmpfs tmpfs "$0/run"
        exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$0" /lib/systemd/systemd --log-target=console --log-level=notice </dev/null' "$boot" || true
    cat "$boot/result"
    grep -qx complete "$boot/result"
}

# Workflow engines start a shell in the image, and Nextflow needs ps.
image_runs_as_a_user_on_a_read_only_root() {
    local podman=(podman --root "$scratch/store" --runroot "$scratch/run")
    # crun does not support hosts with both versions of control groups.
    [ ! -d /sys/fs/cgroup/systemd ] || podman+=(--runtime runc)
    local archive
    archive=$(echo "$files"/godwit-*-oci.tar)
    "${podman[@]}" load --quiet --input "$archive" || return
    "${podman[@]}" run --rm --read-only --tmpfs /tmp --network none --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
        "localhost/godwit:$(basename "$archive" | sed 's/^godwit-//; s/-oci.tar$//')" \
        /bin/bash -exc '[ "$(id -u)" = 8815 ]; ps -o pid=; if echo >/usr/written; then exit 1; fi; cd /tmp; eval "$0"' "$demo"
}

mmdebstrap --quiet --variant=minbase bookworm "$scratch/debian.tar"
check checksums_are_those_of_the_list
check tarball_runs_the_demo
check debian_package_runs_the_demo_and_is_removed
check unit_starts_reloads_and_stops_under_systemd
if [ -e "$(echo "$files"/godwit-*-oci.tar)" ]; then
    check image_runs_as_a_user_on_a_read_only_root
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
