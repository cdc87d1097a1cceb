#!/usr/bin/env python3
"""How soon clients of a pool go on when a storage node is lost, and how soon a node that is back has new clients.

Three storage nodes with networks, processes and names of their own, whose networks are capped, export one directory. A client is in the middle
of a copy (either direction), of the rows of a statement, or of rows by the Python client, when the node that serves it is lost in one of
three ways: its server is killed, so that its sockets are closed; all its processes hang; its network is cut and then its power. *Failover*
is the time from there to the first data that come from another node. What arrives is compared with what was sent, byte by byte or by
the digest of all rows. Then the node comes back: *failback* is the time from when its server takes connections, or its processes run again,
until another node of the pool grants it to a new client.

Measurements are added to those of the same program that are in CACHE, so that it can be done in pieces (`--rounds`); `--fresh` begins anew with the clients that are measured.
"""

import filecmp
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time

import _measure as bench
import _pool

NODES = ("gw1", "gw2", "gw3")
CLIENT_NODE = "gw4"
WAYS = ("killed", "stopped", "cut")
CLIENTS = ("download", "upload", "statement", "python")
ROWS_PER_MEGABYTE = 30_000
LOST = "is lost; going on at another node"


class Growth(threading.Thread):
    """When the journal of a copy grew."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.stamps, self.ended = path, [], threading.Event()
        self.start()

    def run(self):
        before = None
        while not self.ended.wait(0.004):
            try:
                found = os.stat(self.path)
            except OSError:
                continue
            now = (found.st_ino, found.st_size)
            # A new journal is no progress by itself.
            if before and now[0] == before[0] and now[1] > before[1]:
                self.stamps.append(time.monotonic())
            before = now


class Output(threading.Thread):
    """What a program writes: when it came, and the digest of all."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.stamps, self.digest, self.ended = stream, [], hashlib.sha256(), threading.Event()
        self.start()

    def run(self):
        while piece := os.read(self.stream.fileno(), 1 << 20):
            self.stamps.append(time.monotonic())
            self.digest.update(piece)


class Scene:
    """Files in the pool and here."""

    def __init__(self, options, godwit, cluster):
        self.scratch = bench.scratch_directory(options, "failover")
        self.root, self.here = self.scratch / "root", self.scratch / "here"
        self.root.mkdir(), self.here.mkdir()
        self.godwit, self.cluster, self.options = godwit, cluster, options
        draw = random.Random(options.seed)
        with open(self.here / "source", "wb") as file:
            for _ in range(options.megabytes):
                file.write(draw.randbytes(1 << 20))
        shutil.copy(self.here / "source", self.root / "f")
        with open(self.root / "rows.bed", "w") as file:
            for at in range(options.megabytes * ROWS_PER_MEGABYTE):
                file.write(f"chr{at % 3}\t{at}\t{at + 5}\tname-of-{at % 977}-{at}\n")
        # What comes without a loss; of the Python client it is asked once the pool is there.
        self.expected = {"statement": self.digest_of(self.command("statement", ["--data", self.root]))}

    @staticmethod
    def digest_of(command, **how):
        return hashlib.sha256(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, **how).stdout).hexdigest()

    def ask_python(self):
        if "python" in self.options.clients:
            self.expected["python"] = self.digest_of(self.command("python", []), env=environment())

    def command(self, name, access):
        url = "godwit+pool://storage"
        if name == "download":
            return [self.godwit, "copy", f"{url}/f", self.here / "f", "--streams", 3, "--mode", "fast", *access]
        if name == "upload":
            return [self.godwit, "copy", self.here / "source", f"{url}/up", "--streams", 3, "--mode", "fast", *access]
        if name == "statement":
            return [self.godwit, "query", 'SELECT * FROM "rows.bed"', "--format", "csv", *(access if "--data" in access else ["--at", url, *access])]
        return [sys.executable, bench.ROOT / "bench" / "clients" / "pool_rows.py", self.cluster.directory.parent / "pool.toml", "rows.bed"]

    def watched(self, name, process):
        if name == "download":
            return Growth(self.here / ".f.godwit-journal")
        if name == "upload":
            return Growth(self.root / ".up.godwit-journal")
        return Output(process.stdout)


def environment():
    return dict(os.environ, PYTHONPATH=str(bench.ROOT / "python" / "src"))


def node_of(cluster, pool):
    """The node that most connections of the only client go to."""
    done = subprocess.run(cluster.inside(CLIENT_NODE, ["ss", "-Htn", "state", "established"]), stdout=subprocess.PIPE, text=True, check=True)
    # gRPC has addresses of IPv4 as those of IPv6.
    ends = done.stdout.replace("[::ffff:", "").replace("]", "").split()
    counts = {node: ends.count(pool.location(node)) for node in pool.nodes}
    return max(counts, key=counts.get)


def one_loss(scene, pool, name, way, draw):
    """Has a client lose its node; what was measured."""
    for left in (scene.here / "f", scene.root / "up"):
        left.unlink(missing_ok=True)
    command = scene.command(name, ["--pool", pool.file, "--wait", "60s"])
    piped = subprocess.PIPE if name in ("statement", "python") else subprocess.DEVNULL
    process = subprocess.Popen(scene.cluster.inside(CLIENT_NODE, command), stdout=piped, stderr=subprocess.PIPE, env=environment())
    said, watched = _pool.Said(process.stderr), scene.watched(name, process)
    until = time.monotonic() + 60
    while len(watched.stamps) < 3 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(draw.uniform(0.1, 1.5))
    node = node_of(scene.cluster, pool)
    lost_at = pool.lose(node, way)
    code = process.wait(timeout=45)
    watched.ended.set()
    watched.join()
    said.join()
    noticed = said.when(LOST)
    if code != 0 or noticed is None:
        bench.fail(f"{name}, {way}: at {node}: ended with {code}, and said: {said.text()[-600:]}")
    after = [stamp for stamp in watched.stamps if stamp > noticed]
    if not after:
        bench.fail(f"{name}, {way}: nothing came after the node was lost; it was too late")
    if name in ("download", "upload"):
        other = scene.here / "f" if name == "download" else scene.root / "up"
        same = filecmp.cmp(scene.here / "source", other, shallow=False)
    else:
        same = scene.expected[name] == watched.digest.hexdigest()
    if not same:
        bench.fail(f"{name}, {way}: what came is not what was sent")
    return node, {"detected_s": noticed - lost_at, "failover_s": after[0] - lost_at}


def failback(pool, node, way):
    """Seconds from when a node was there again until it is granted."""
    others = [other for other in pool.nodes if other != node]
    pool.wait_until_seen(others)
    back_at = pool.bring_back(node, way)
    wanted = f"grpc+tcp://{pool.location(node)}"
    while True:
        request = json.dumps({"id": f"{random.getrandbits(64):016x}"}).encode()
        if pool.asked(others[0], "PoolGrant", request)["locations"][0] == wanted:
            seconds = time.monotonic() - back_at
            pool.wait_until_seen(pool.nodes)
            return seconds
        if time.monotonic() > back_at + 60:
            bench.fail(f"{node} does not get new clients")
        time.sleep(0.05)


def p(values, percent):
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def report(options, godwit, found):
    around = bench.host(godwit)
    lines = ["| client | node lost how | losses | found lost after s, median | failover s, median | longest | failback s, median | longest |", "|---|---|---|---|---|---|---|---|"]
    for name in CLIENTS:
        for way in WAYS:
            some = [one for one in found if (one["client"], one["way"]) == (name, way)]
            if some:
                column = lambda field: [one[field] for one in some]
                lines.append(
                    f"| {name} | {way} | {len(some)} | {p(column('detected_s'), 50):.2f} | {p(column('failover_s'), 50):.2f} | {max(column('failover_s')):.2f}"
                    f" | {p(column('failback_s'), 50):.2f} | {max(column('failback_s')):.2f} |"
                )
    failovers, failbacks = [one["failover_s"] for one in found], [one["failback_s"] for one in found]
    promised = [
        bench.promise(f"failover of {what}, p99 of {len(some)} losses", [p(some, 99)], at_most=3, unit="s")
        for what, clients in (("copies and statements", CLIENTS[:3]), ("the Python client", CLIENTS[3:]))
        if (some := [one["failover_s"] for one in found if one["client"] in clients])
    ] + [
        bench.promise(f"failback, longest of {len(found)}", [max(failbacks)], at_most=5, unit="s"),
    ]
    text = "\n".join([
        "# When a storage node is lost",
        "",
        __doc__.split("\n", 2)[2].rsplit("\n\n", 1)[0].strip(),
        "",
        f"{len(found)} losses; files of {options.megabytes} MiB and {options.megabytes * ROWS_PER_MEGABYTE:,} rows, networks of storage nodes capped at {options.rate}; {bench.machine(around)}.",
        "",
        *lines,
        "",
        f"- all: failover p50 {p(failovers, 50):.2f} s, p90 {p(failovers, 90):.2f} s, p99 {p(failovers, 99):.2f} s; failback p50 {p(failbacks, 50):.2f} s, p99 {p(failbacks, 99):.2f} s.",
        *(f"- {bench.in_words(one)}" for one in promised),
        "- In every one the bytes, or the digest of all rows, were those of a copy or a query without a loss.",
        "",
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("failover", options.results, text, around, promised, {"losses": found})


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="losses of each kind, of each client (default: 1)")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--megabytes", type=int, default=120, help="of files that are copied (default: 120)")
    parser.add_argument("--rate", default="200mbit", help="of a storage node's network (default: 200mbit)")
    parser.add_argument("--fresh", action="store_true", help="begin anew with these clients")
    options = parser.parse_args()
    _pool.need_pyarrow()
    godwit = bench.godwit_binary(options)
    kept = options.cache.resolve() / "failover.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    program = _pool.digest_of(godwit)
    before = json.loads(kept.read_text()) if kept.exists() else {}
    found = before.get("losses", []) if before.get("program") == program else []
    if options.fresh:
        found = [loss for loss in found if loss["client"] not in options.clients]
    draw = random.Random(options.seed + len(found))
    with _pool.Cluster(4) as cluster:
        scene = Scene(options, godwit, cluster)
        with _pool.Pool(cluster, godwit, NODES, scene.root, rate=options.rate) as pool:
            scene.ask_python()
            for _ in range(options.rounds):
                for name in options.clients:
                    for way in options.ways:
                        node, loss = one_loss(scene, pool, name, way, draw)
                        loss |= {"client": name, "way": way, "node": node, "failback_s": failback(pool, node, way)}
                        found.append(loss)
                        bench.progress(f"{name}, {node} {way}: {loss}")
                        kept.write_text(json.dumps({"program": program, "losses": found}))
        shutil.rmtree(scene.scratch)
    report(options, godwit, found)


if __name__ == "__main__":
    main()
