"""An upper bound of a QUIC path: a file over quinn (bench/quic) beside `godwit copy`, over emulated paths.

Both copy from disk to disk with TLS 1.3, by a user without privileges. The quinn program verifies no data and accepts any certificate, so it is an
upper bound of QUIC in godwit. Needs root for the path; docs/decisions/0035-copy-over-tcp-not-quic.md has the conclusions.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from godwit_bench import harness
from godwit_bench.network.cells import BASE, Cell, cell_title, percent_of
from godwit_bench.network.emulated_path import EmulatedPath, PathServer, empty_directory, prepare_directories, time_copy

CELLS: list[Cell] = [
    {},
    {"loss": 0.001},
    {"rtt": 100},
    {"rate": 250},
    {"rate": 250, "loss": 0.005},
]
# Connections, and congestion control.
CONNECTION_SETTINGS = [(1, "cubic"), (8, "cubic"), (8, "bbr")]
# The time limit as a multiple of the copy's time; the exact time of slower downloads is not needed.
TIMEOUT_FACTOR = 4


def build_program() -> Path:
    """Returns the program; cargo builds it if it is missing."""
    target = harness.ROOT / "target" / "quic"
    manifest = harness.ROOT / "bench" / "quic" / "Cargo.toml"
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", manifest, "--target-dir", target], check=True)
    return target / "release" / "quic-bulk"


def time_download(path: EmulatedPath, program: Path, source: Path, out: Path, connections: int, control: str, timeout_s: float) -> float | str:
    """Returns the seconds of a download, or the reason for a missing time."""
    empty_directory(out.parent)
    server = subprocess.Popen(
        path.command("b", "env", f"CONTROL={control}", program, "serve", f"{path.b}:7777", source), stdout=subprocess.PIPE, text=True
    )
    harness.piped(server.stdout).readline()
    started = time.monotonic()
    try:
        done = subprocess.run(
            path.command("a", program, "get", f"{path.b}:7777", out, connections, control), capture_output=True, text=True, timeout=timeout_s
        )
        seconds = time.monotonic() - started
    except subprocess.TimeoutExpired:
        return f"over {timeout_s:.0f} s"
    finally:
        server.kill()
        server.wait()
    if done.returncode:
        reason = re.search(r'reason: "([^"]+)"', done.stderr)
        return f"failed: {reason[1] if reason else done.stderr.strip()[-90:]}"
    if not harness.have_same_bytes(source, out):
        harness.exit_with_error("the file received by QUIC differs from the source")
    return seconds


def measure(godwit: Path, program: Path, directory: Path, megabytes: int, cell: Cell) -> harness.Result:
    root, mine = prepare_directories(directory, megabytes)
    with EmulatedPath(cell) as path:
        server = PathServer(path, godwit, root, directory)
        try:
            copy = time_copy(path, godwit, server, "f", mine / "f", cell)
        finally:
            server.kill()
        found = {
            f"QUIC, {connections} x {control}": time_download(path, program, root / "f", mine / "f", connections, control, TIMEOUT_FACTOR * copy)
            for connections, control in CONNECTION_SETTINGS
        }

    def percent(seconds: float) -> float:
        return round(percent_of({**cell, "megabytes": megabytes}, seconds), 1)

    figures = {name: percent(seconds) if isinstance(seconds, float) else seconds for name, seconds in found.items()}
    harness.report_progress(f"{cell_title(cell)}: copy {percent(copy)} %, {figures}")
    return {**cell, "megabytes": megabytes, "copy_percent": percent(copy), "quic": figures, "load": os.getloadavg()[0]}


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=512, help="size of the file (default: 512)")
    options = parser.parse_args()
    godwit, program = harness.godwit_binary(options), build_program()
    os.environ["GODWIT"] = str(godwit)
    with tempfile.TemporaryDirectory(prefix="godwit-quic-") as scratch:
        directory = Path(scratch)
        directory.chmod(0o755)
        # In a directory in which every user may run them.
        copies = [Path(shutil.copy(found, directory)) for found in (godwit, program)]
        cells = [measure(copies[0], copies[1], directory, options.megabytes, {**BASE, **cell}) for cell in CELLS]
    around = harness.host_description(godwit)
    names = [f"QUIC, {connections} x {control}" for connections, control in CONNECTION_SETTINGS]

    def shown(value: object) -> str:
        return f"{value} %" if isinstance(value, float) else str(value)

    text = "\n".join(
        [
            "# Files over QUIC",
            "",
            f"{harness.format_host(around)}. quinn 0.11, {options.megabytes} MiB from disk to disk, TLS 1.3 on both sides; percentages are of "
            "the payload rate of TCP.",
            "Only `godwit copy` verifies the received data. Both ends and the emulator share the cores.",
            "",
            "| path | godwit copy | " + " | ".join(names) + " | load |",
            "|---" * (3 + len(names)) + "|",
            *[
                f"| {cell_title(cell)} | {cell['copy_percent']} % | "
                + " | ".join(shown(cell["quic"][name]) for name in names)
                + f" | {cell['load']:.1f} |"
                for cell in cells
            ],
            "",
            f"Command: `{harness.command_line()}`, as root.",
            "",
        ]
    )
    harness.write_result("quic", options.results, text, around, [], {"cells": cells})


if __name__ == "__main__":
    main()
