#!/usr/bin/env bash
# A real SLURM cluster with N compute nodes on this machine, for tests: slurmctld, munged and N slurmd of its own.
#
#   cluster.sh up N [OPTIONS]      start it; if it runs already, start its dead nodes again
#   cluster.sh down                stop all of it, jobs too, and remove its directory
#   cluster.sh guard               wait until standard input closes, then do as `down` (for owners that may be killed)
#   cluster.sh env                 lines for eval: SLURM_CONF and the cluster's directory and mode
#   cluster.sh status              one line for each daemon, and sinfo; fails unless every node is usable
#   cluster.sh exec NODE -- CMD..  run CMD inside a node (netns mode)
#
# Faults of a node (NODE may be `head`, where slurmctld runs, for kill, start, pause, cont, cut and heal):
#   kill NODE, start NODE          power loss: its processes are killed, its link is removed; and booting again
#   crash NODE                     its slurmd is killed, its jobs continue
#   pause NODE, cont NODE          all its processes are frozen, and thawed
#   slow NODE PERCENT|off          its jobs run for PERCENT of the time
#   cut NODE, heal NODE            its network link is down, and up again
#   rate NODE RATE|off             its network is limited to RATE both ways, as tc(8) writes it: 100mbit
#   fill NODE, unfill NODE         its scratch disk is full (needs --scratch), and empty again
#
# Options: --dir D (for all verbs; the cluster's directory, which identifies the cluster)
#          --mode auto|netns|ports  --cpus C  --memory MB  --scratch SIZE  --rate RATE
#
# In netns mode, which needs root, each node has pid, network, host name, mount and IPC namespaces of its own: own address, own
# /dev/shm, own scratch. In ports mode, which needs no privileges, nodes are slurmd processes with a port each; the only
# faults are kill, start and crash. Neither mode needs systemd or cgroups.

# No `set -e`: stopping a broken cluster must continue where a part is missing already. Commands that must succeed call fail.
set -u -o pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

fail() {
    echo "cluster.sh: $1" >&2
    exit 1
}

usage() {
    sed -n '2,27p' "$self" >&2
    exit 2
}

self=$(readlink -f "$0")
dir='' mode=auto cpus=4 memory=4000 scratch='' rate='' nodes=0
# Set when the cluster is created, and stored in its directory.
subnet='' base_port=''
# The longest wait for usable nodes, in seconds.
patience_s=30

verb=${1:-}
[ $# -eq 0 ] || shift
words=()
while [ $# -gt 0 ]; do
    case $1 in
        --dir) dir=$2; shift 2 ;;
        --mode) mode=$2; shift 2 ;;
        --cpus) cpus=$2; shift 2 ;;
        --memory) memory=$2; shift 2 ;;
        --scratch) scratch=$2; shift 2 ;;
        --rate) rate=$2; shift 2 ;;
        --) shift; words+=("$@"); break ;;
        *) words+=("$1"); shift ;;
    esac
done
[ -n "$dir" ] || usage
dir=$(readlink -m "$dir")
munge_socket=$dir/run/munge.sock
# The path of a Unix socket has 108 bytes at most (unix(7)).
[ ${#munge_socket} -lt 100 ] || fail "$dir is too long for the path of a socket"
# The id is a part of the names of network devices, which have 15 bytes at most.
id=$(printf %s "$dir" | md5sum | cut -c1-4)
export SLURM_CONF=$dir/etc/slurm.conf

# ---- Processes ----
# run/NAME.process holds a pid and its start time, because the kernel reuses pids. A zombie counts as dead: in a container no
# process may wait for it.

start_time() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The command, between brackets, may hold spaces. Field 3 is the state, field 22 the start time (proc(5)).
    read -ra stat <<<"${stat##*) }"
    [ "${stat[0]}" != Z ] && echo "${stat[19]}"
}

record() {
    echo "$2 $(start_time "$2")" >"$dir/run/$1.process"
}

pid_of() {
    local pid time
    { read -r pid time <"$dir/run/$1.process"; } 2>/dev/null || return 1
    [ -n "$time" ] && [ "$(start_time "$pid")" = "$time" ] && echo "$pid"
}

is_alive() {
    pid_of "$1" >/dev/null
}

# Runs a daemon that outlives this script. Files 8 and 9 are locks, which it must not hold.
daemon() {
    local name=$1
    shift
    setsid "$@" </dev/null >>"$dir/log/$name.out" 2>&1 8>&- 9>&- &
    record "$name" $!
    disown
}

stop() {
    local pid
    if pid=$(pid_of "$1"); then
        kill "-${2:-TERM}" "$pid" 2>/dev/null
        for _ in $(seq 50); do
            is_alive "$1" || break
            sleep 0.1
        done
        ! is_alive "$1" || kill -KILL "$pid" 2>/dev/null
    fi
    rm -f "$dir/run/$1.process"
}

# ---- The cluster's description ----

load() {
    # shellcheck source=/dev/null
    [ -f "$dir/etc/cluster.env" ] && . "$dir/etc/cluster.env"
}

node_names() {
    seq -f 'gw%g' "$nodes"
}

is_node() {
    [ "$1" = head ] || node_names | grep -qx -- "$1"
}

address_of() {
    if [ "$1" = head ]; then echo "$subnet.250"; else echo "$subnet.${1#gw}"; fi
}

write_slurm_conf() {
    local controller="$1" own=$2 all="gw[1-$nodes]" number
    [ "$nodes" -gt 1 ] || all=gw1
    # Jobs are scheduled as soon as they are submitted; lost daemons are detected in seconds; requeued jobs wait no longer than
    # their old credentials are valid. Finished jobs are kept, so that tests can query them.
    cat <<EOF
ClusterName=godwit$id
SlurmctldHost=$controller
SlurmctldPort=$base_port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$munge_socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=$((memory / cpus))
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2,max_rpc_cnt=0
MpiDefault=none
PropagateResourceLimits=NONE
ReturnToService=2
JobRequeue=1
SlurmdTimeout=8
SlurmctldTimeout=8
MessageTimeout=5
KillWait=3
UnkillableStepTimeout=60
EioTimeout=3
BatchStartTimeout=10
MinJobAge=3600
TaskProlog=$dir/etc/task_prolog
TmpFS=$dir/scratch
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EOF
    if [ "$own" = yes ]; then
        echo "NodeName=$all NodeAddr=$subnet.${all#gw} CPUs=$cpus RealMemory=$memory State=UNKNOWN"
    else
        for number in $(seq "$nodes"); do
            echo "NodeName=gw$number NodeHostname=$(hostname -s) NodeAddr=127.0.1.$number Port=$((base_port + 10 + number))" \
                "CPUs=$cpus RealMemory=$memory State=UNKNOWN"
        done
    fi
    cat <<EOF
PartitionName=all  Nodes=$all MaxTime=INFINITE DefaultTime=60 PriorityTier=10 Default=YES
PartitionName=low  Nodes=$all MaxTime=INFINITE DefaultTime=60 PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=$all MaxTime=INFINITE DefaultTime=60 PriorityTier=100 PreemptMode=OFF
EOF
}

write_configuration() {
    local node
    umask 022
    mkdir -p "$dir"/{etc,run,log,state,spool,local,scratch} || fail "cannot write into $dir"
    chmod 1777 "$dir/scratch"
    (umask 077 && head -c 1024 /dev/urandom >"$dir/etc/munge.key")
    {
        echo "127.0.0.1 localhost"
        if [ "$mode" = netns ]; then
            for node in head $(node_names); do
                echo "$(address_of "$node") $node"
            done
        fi
    } >"$dir/etc/hosts"
    printf '#!/bin/sh\necho "export TMPDIR=%s/scratch"\n' "$dir" >"$dir/etc/task_prolog"
    chmod 755 "$dir/etc/task_prolog"
    if [ "$mode" = netns ]; then
        write_slurm_conf "head($subnet.250)" yes >"$SLURM_CONF"
    else
        write_slurm_conf "$(hostname -s)(127.0.0.1)" no >"$SLURM_CONF"
    fi
    # Last, because this file marks the configuration as complete.
    cat >"$dir/etc/cluster.env" <<EOF
mode=$mode nodes=$nodes cpus=$cpus memory=$memory scratch='$scratch' rate='$rate' subnet='$subnet' base_port='$base_port'
EOF
}

# Reports whether a port is free, without connecting to it: 0A is the state LISTEN (Linux, include/net/tcp_states.h).
is_free_port() {
    ! grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") [0-9A-F:]+ 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

pick_ports() {
    local base offset
    for base in $(seq $((20000 + 0x$id % 8000)) 250 31500); do
        for offset in 0 $(seq 11 $((10 + nodes))); do
            is_free_port $((base + offset)) || continue 2
        done
        base_port=$base
        return
    done
    fail "no free range of ports"
}

pick_subnet() {
    local turn
    for turn in $(seq 0 127); do
        subnet=10.$((64 + (0x${id:0:2} + turn) % 128)).$((0x${id:2:2}))
        ip -4 route | grep -q "^$subnet\." || return 0
    done
    fail "no free range of addresses"
}

has_namespaces() {
    [ "$(id -u)" -eq 0 ] && command -v ip >/dev/null &&
        unshare --net --uts --mount --pid --ipc --fork --mount-proc true 2>/dev/null &&
        ip link add "gwt$id" type bridge 2>/dev/null && ip link del "gwt$id"
}

# ---- Nodes in namespaces ----
# A node is the process with pid 1 of its namespaces: all processes of the node die with it.

boot() {
    local node=$1 outer pid=
    is_alive "$node" && return
    rm -f "$dir/run/$node.process" "$dir/run/$node.cable"
    mkdir -p "$dir/spool/$node" "$dir/local/$node"
    ip link del "gw$id-$node" 2>/dev/null
    setsid unshare --net --uts --mount --pid --ipc --fork --kill-child=KILL --mount-proc \
        "$self" __init "$node" --dir "$dir" </dev/null >>"$dir/log/$node.out" 2>&1 8>&- 9>&- &
    outer=$!
    disown
    for _ in $(seq 250); do
        # The file has no line end, for which `read` returns a failure.
        { read -r pid _ <"/proc/$outer/task/$outer/children"; } 2>/dev/null
        [ -z "$pid" ] || break
        sleep 0.02
    done
    [ -n "$pid" ] || fail "cannot make namespaces for $node: $(tail -n 1 "$dir/log/$node.out")"
    record "$node" "$pid"
    ip link add "gw$id-$node" type veth peer name eth0 netns "$pid" || fail "cannot make a cable for $node"
    ip link set "gw$id-$node" master "gwbr$id" up
    nsenter -t "$pid" -n sh -c "ip link set lo up && ip addr add $(address_of "$node")/24 dev eth0 &&
        ip link set eth0 up && ip route add default via $subnet.254" || fail "$node has no network"
    : >"$dir/run/$node.cable"
    [ -z "$rate" ] || [ "$node" = head ] || set_rate "$node" "$rate"
}

# Runs as process 1 of a node.
init() {
    local node=$1
    hostname "$node"
    mount --make-rprivate /
    mount --bind "$dir/etc/hosts" /etc/hosts
    # There is no name server: lookups must fail at once instead of waiting for one.
    printf 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n' >"$dir/etc/resolv.$node"
    [ ! -e /etc/resolv.conf ] || mount --bind "$dir/etc/resolv.$node" "$(readlink -f /etc/resolv.conf)"
    mount -t tmpfs -o mode=1777 shm /dev/shm
    if [ -n "$scratch" ]; then
        mount -t tmpfs -o "mode=1777,size=$scratch" scratch "$dir/scratch"
    else
        chmod 1777 "$dir/local/$node"
        mount --bind "$dir/local/$node" "$dir/scratch"
    fi
    until [ -e "$dir/run/$node.cable" ]; do
        sleep 0.02
    done
    trap : TERM INT
    if [ "$node" = head ]; then slurmctld -D & else slurmd -D -N "$node" & fi
    # Waits for orphans, and ends only by a KILL from outside.
    while :; do
        sleep 1000000 &
        wait
    done
}

power_off() {
    local pid
    ! pid=$(pid_of "$1") || kill -KILL "$pid"
    rm -f "$dir/run/$1.process" "$dir/run/$1.cable" "$dir/run/slurmd.$1.pid"
    # It may have been removed with the node.
    ip link del "gw$id-$1" 2>/dev/null
    return 0
}

# Prints the node's processes except the first, by their pids outside the namespace.
pids_in() {
    local first namespace process
    first=$(pid_of "$1") || return 0
    namespace=$(readlink "/proc/$first/ns/pid")
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/pid" 2>/dev/null)" = "$namespace" ] || continue
        [ "${process#/proc/}" = "$first" ] || echo "${process#/proc/}"
    done
}

signal_all() {
    local pids
    mapfile -t pids < <(pids_in "$2")
    [ "${#pids[@]}" -eq 0 ] || kill "-$1" "${pids[@]}" 2>/dev/null
    return 0
}

# Limits the rate and adds no delay: not every kernel has netem, all have htb.
set_rate() {
    local inside=(nsenter -t "$(pid_of "$1")" -n)
    shape() {
        "${@:3}" tc qdisc del dev "$1" root 2>/dev/null
        [ "$2" = off ] || { "${@:3}" tc qdisc add dev "$1" root handle 1: htb default 1 &&
            "${@:3}" tc class add dev "$1" parent 1: classid 1:1 htb rate "$2" burst 64k quantum 60000; }
    }
    shape "gw$id-$1" "$2" env || fail "cannot limit the rate of $1"
    shape eth0 "$2" "${inside[@]}" || fail "cannot limit the rate of $1"
}

# Freezes and thaws a node's jobs, in periods of a fifth of a second. Ends with the node.
keep_slow() {
    local node=$1 run_ms=$(($2 * 2)) pid pids
    while is_alive "$node"; do
        pids=()
        for pid in $(pids_in "$node"); do
            case $(cat "/proc/$pid/comm" 2>/dev/null) in
                slurmd | slurmctld | slurmstepd | sleep | "") ;;
                *) pids+=("$pid") ;;
            esac
        done
        [ "${#pids[@]}" -eq 0 ] || kill -CONT "${pids[@]}" 2>/dev/null
        sleep "$(printf '0.%03d' "$run_ms")"
        [ "${#pids[@]}" -eq 0 ] || kill -STOP "${pids[@]}" 2>/dev/null
        sleep "$(printf '0.%03d' $((200 - run_ms)))"
    done
}

# ---- Up and down ----

start_munged() {
    is_alive munged && return
    rm -f "$munge_socket" "$munge_socket.lock" "$dir/run/munged.pid"
    daemon munged munged --foreground --force --key-file="$dir/etc/munge.key" --socket="$munge_socket" \
        --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/run/munge.seed" --num-threads=4
    for _ in $(seq 100); do
        [ ! -S "$munge_socket" ] || ! munge --socket="$munge_socket" --no-input >/dev/null 2>&1 || return
        sleep 0.05
    done
    fail "munged does not answer: $(tail -n 1 "$dir/log/munged.log" "$dir/log/munged.out")"
}

start_node() {
    if [ "$mode" = netns ]; then
        boot "$1"
    elif [ "$1" = head ]; then
        is_alive head || daemon head slurmctld -D
    else
        mkdir -p "$dir/spool/$1"
        is_alive "$1" || daemon "$1" slurmd -D -N "$1"
    fi
}

count_usable() {
    timeout 3 sinfo --noheader --Node --partition=all --format='%t' 2>/dev/null | grep -cE '^(idle|mix|alloc|comp)$'
}

resume_nodes() {
    local node
    for node in $(timeout 3 sinfo --noheader --Node --partition=all --states=down,drain --format=%N 2>/dev/null); do
        timeout 3 scontrol update nodename="$node" state=resume 2>/dev/null
    done
}

up() {
    local wanted=$1 program node
    for program in munged slurmctld slurmd sinfo; do
        command -v "$program" >/dev/null || fail "$program is missing; run tools/install-dependencies.sh"
    done
    { [ "$wanted" -ge 1 ] && [ "$wanted" -le 200 ]; } 2>/dev/null || usage
    if load; then
        [ "$nodes" = "$wanted" ] || fail "$dir holds a cluster of $nodes nodes; take it down first"
    else
        [ -z "$(ls -A "$dir" 2>/dev/null)" ] || fail "$dir holds something that is no cluster"
        # Clusters are created one at a time, otherwise two of them would find the same ports or addresses free.
        { exec 8</tmp && flock 8; } || fail "cannot lock /tmp"
        nodes=$wanted
        if [ "$mode" = auto ]; then
            if has_namespaces; then mode=netns; else mode=ports; fi
        fi
        [ "$mode" = ports ] || pick_subnet
        pick_ports
        write_configuration
    fi
    start_munged
    if [ "$mode" = netns ] && ! ip link show "gwbr$id" >/dev/null 2>&1; then
        { ip link add "gwbr$id" type bridge forward_delay 0 && ip addr add "$subnet.254/24" dev "gwbr$id" &&
            ip link set "gwbr$id" up; } || fail "cannot make a bridge"
    fi
    for node in head $(node_names); do
        start_node "$node"
    done
    resume_nodes
    for _ in $(seq $((patience_s * 10))); do
        [ "$(count_usable)" -lt "$nodes" ] || return 0
        sleep 0.1
    done
    tail -n 3 "$dir"/log/* >&2
    fail "the nodes are not usable after $patience_s s"
}

# Kills the processes of jobs whose slurmd has ended, in ports mode. They are identified by their environment.
kill_strays() {
    local process
    for process in /proc/[0-9]*; do
        [ "${process#/proc/}" != $$ ] || continue
        grep -qzxF "SLURM_CONF=$SLURM_CONF" "$process/environ" 2>/dev/null || continue
        grep -qz '^SLURM_JOB_ID=' "$process/environ" 2>/dev/null ||
            [ "$(cat "$process/comm" 2>/dev/null)" = slurmstepd ] || continue
        kill -KILL "${process#/proc/}" 2>/dev/null
    done
}

down() {
    local node
    load || fail "$dir holds no cluster"
    for node in $(node_names); do
        stop "slow.$node" KILL
    done
    if [ "$mode" = netns ]; then
        for node in $(node_names) head; do
            power_off "$node"
        done
        ip link del "gwbr$id" 2>/dev/null
    else
        # Cancel jobs while the daemons that end them still run.
        timeout 5 scancel --user="$(id -un)" 2>/dev/null
        for _ in $(seq 80); do
            [ -n "$(timeout 2 squeue --noheader 2>/dev/null)" ] || break
            sleep 0.1
        done
        for node in $(node_names) head; do
            stop "$node"
        done
        kill_strays
    fi
    stop munged
    rm -rf --one-file-system "$dir"
}

status() {
    local result=0 name
    for name in munged head $(node_names); do
        if is_alive "$name"; then echo "$name up"; else echo "$name down" && result=1; fi
    done
    timeout 10 sinfo --Node --format='%8N %10P %12T %20E' || result=1
    [ "$(count_usable)" -ge "$nodes" ] && return "$result"
}

# Runs a command with a lock on the cluster's directory.
locked() {
    { mkdir -p "$(dirname "$dir")" && exec 9>"$dir.lock" && flock 9; } || fail "cannot lock $dir.lock"
    "$@"
}

need_node() {
    load || fail "$dir holds no cluster"
    is_node "$node" || fail "there is no node $node; there are head and gw1 to gw$nodes"
}

need_namespaces() {
    need_node
    [ "$mode" = netns ] || fail "$verb needs netns mode"
}

node=${words[0]:-}
case $verb in
    up) locked up "$node" ;;
    down | guard)
        [ "$verb" = down ] || cat >/dev/null
        [ ! -d "$dir" ] || locked down
        rm -f "$dir.lock"
        ;;
    env)
        load || fail "$dir holds no cluster"
        echo "export SLURM_CONF=$SLURM_CONF GODWIT_CLUSTER_DIR=$dir GODWIT_CLUSTER_MODE=$mode"
        ;;
    status) load && status ;;
    exec)
        need_namespaces
        exec nsenter -t "$(pid_of "$node")" --net --uts --mount --pid --ipc -- "${words[@]:1}"
        ;;
    kill)
        need_node
        if [ "$mode" = netns ]; then power_off "$node"; else stop "$node" KILL; fi
        ;;
    start) need_node && start_node "$node" ;;
    crash)
        need_node
        if [ "$mode" = netns ]; then
            for pid in $(pids_in "$node"); do
                [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != slurmd ] || kill -KILL "$pid"
            done
        else
            stop "$node" KILL
        fi
        ;;
    pause) need_namespaces && signal_all STOP "$node" ;;
    cont) need_namespaces && signal_all CONT "$node" ;;
    slow)
        need_namespaces
        stop "slow.$node" KILL
        signal_all CONT "$node"
        [ "${words[1]:?PERCENT or off}" = off ] || daemon "slow.$node" "$self" __slow "$node" "${words[1]}" --dir "$dir"
        ;;
    cut) need_namespaces && ip link set "gw$id-$node" down ;;
    heal) need_namespaces && ip link set "gw$id-$node" up ;;
    rate) need_namespaces && set_rate "$node" "${words[1]:?RATE or off}" ;;
    fill)
        need_namespaces
        [ -n "$scratch" ] || fail "fill needs up --scratch SIZE"
        nsenter -t "$(pid_of "$node")" --mount -- dd if=/dev/zero of="$dir/scratch/.fill" bs=1M 2>/dev/null
        true
        ;;
    unfill) need_namespaces && nsenter -t "$(pid_of "$node")" --mount -- rm -f "$dir/scratch/.fill" ;;
    __init) load && init "$node" ;;
    __slow) load && keep_slow "$node" "${words[1]}" ;;
    *) usage ;;
esac
