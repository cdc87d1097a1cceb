#!/usr/bin/env python3
"""What a QUIC path could at most be: a file over quinn (bench/quic) beside `godwit copy`, over emulated paths.

Both go from disk to disk with TLS 1.3, by a user without privileges. quinn's end verifies nothing and believes any certificate, so it is an
upper bound of what QUIC would be here. Needs root for the path; see docs/decisions/0035-copy-over-tcp-not-quic.md for what was made of it.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import _measure as bench
from _path_cells import BASE, title_of
from _path_lab import EmulatedPath, Server, both_ends, copied, emptied

CELLS = [
    {},
    {"loss": 0.001},
    {"rtt": 100},
    {"rate": 250},
    {"rate": 250, "loss": 0.005},
]
# Connections, and congestion control.
MANNERS = [(1, "cubic"), (8, "cubic"), (8, "bbr")]
# Those that take so many times as long as the copy say nothing more by taking longer.
PATIENCE = 4


def built():
    """The program, built by cargo where it is not yet."""
    target = bench.ROOT / "target" / "quic"
    manifest = bench.ROOT / "bench" / "quic" / "Cargo.toml"
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", manifest, "--target-dir", target], check=True)
    return target / "release" / "quic-bulk"


def fetched(path, program, source, out, connections, control, patience_s):
    """Seconds, or why there are none."""
    emptied(out.parent)
    server = subprocess.Popen(path.command("b", "env", f"CONTROL={control}", program, "serve", f"{path.b}:7777", source), stdout=subprocess.PIPE, text=True)
    server.stdout.readline()
    started = time.monotonic()
    try:
        done = subprocess.run(path.command("a", program, "get", f"{path.b}:7777", out, connections, control), capture_output=True, text=True, timeout=patience_s)
        seconds = time.monotonic() - started
    except subprocess.TimeoutExpired:
        return f"over {patience_s:.0f} s"
    finally:
        server.kill()
        server.wait()
    if done.returncode:
        reason = re.search(r'reason: "([^"]+)"', done.stderr)
        return f"failed: {reason[1] if reason else done.stderr.strip()[-90:]}"
    if subprocess.run(["cmp", source, out]).returncode:
        bench.fail("what came by QUIC is not the file")
    return seconds


def measure(godwit, program, directory, megabytes, cell):
    root, mine = both_ends(directory, megabytes)
    with EmulatedPath(cell) as path:
        server = Server(path, godwit, root, directory)
        try:
            copy = copied(path, godwit, server, "f", mine / "f", cell)
        finally:
            server.end()
        found = {f"QUIC, {connections} x {control}": fetched(path, program, root / "f", mine / "f", connections, control, PATIENCE * copy) for connections, control in MANNERS}
    payload = cell["rate"] * 1448 / 1500
    percent = lambda seconds: round(100 * megabytes * (1 << 20) * 8 / 1e6 / seconds / payload, 1)
    told = {name: percent(seconds) if isinstance(seconds, float) else seconds for name, seconds in found.items()}
    bench.progress(f"{title_of(cell)}: copy {percent(copy)} %, {told}")
    return {**cell, "megabytes": megabytes, "copy_percent": percent(copy), "quic": told, "load": os.getloadavg()[0]}


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=512, help="size of the file (default: 512)")
    options = parser.parse_args()
    godwit, program = bench.godwit_binary(options), built()
    os.environ["GODWIT"] = str(godwit)
    with tempfile.TemporaryDirectory(prefix="godwit-quic-") as scratch:
        directory = Path(scratch)
        directory.chmod(0o755)
        # Where anybody may run them.
        programs = [shutil.copy(found, directory) for found in (godwit, program)]
        cells = [measure(*programs, directory, options.megabytes, {**BASE, **cell}) for cell in CELLS]
    around = bench.host(godwit)
    names = [f"QUIC, {connections} x {control}" for connections, control in MANNERS]
    shown = lambda value: f"{value} %" if isinstance(value, float) else value
    text = "\n".join([
        "# Files over QUIC",
        "",
        f"{bench.machine(around)}. quinn 0.11, {options.megabytes} MiB from disk to disk, TLS 1.3 on both sides; percents are of the payload rate of TCP.",
        "Only `godwit copy` verifies what comes. Both ends and the emulator share the cores.",
        "",
        "| path | godwit copy | " + " | ".join(names) + " | load |",
        "|---" * (3 + len(names)) + "|",
        *[f"| {title_of(cell)} | {cell['copy_percent']} % | " + " | ".join(shown(cell["quic"][name]) for name in names) + f" | {cell['load']:.1f} |" for cell in cells],
        "",
        f"Command: `{bench.shown_command()}`, as root.",
        "",
    ])
    bench.write("quic", options.results, text, around, [], {"cells": cells})


if __name__ == "__main__":
    main()
