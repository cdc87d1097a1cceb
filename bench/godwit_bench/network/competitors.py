"""Competitors that fetch a file over an emulated path, each with its best settings: a server at the far end, a client at the near end.

Each class has `name`, `needs` (required commands and files), `servers(path, root, directory)`, which returns the end and the command line
of each server, and `client(path, target)`, which returns the timed command line. The classes for many files fetch the files below `root`/d.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TypeAlias

from godwit_bench import harness
from godwit_bench.network.cells import Cell
from godwit_bench.network.emulated_path import EmulatedPath, NetworkPath

PORT, NEAR_PORT, PLAIN_PORT = 8444, 8445, 8446
# Programs that are not measured, and the reason.
NOT_INSTALLED = {
    "bbcp": "Debian has no package for it",
    "FDT": "Maven Central has no artifact `fast-data-transfer:fdt`, the name in its own build",
}


class Aria2:
    """aria2: ranges of one file over 16 HTTPS connections, its maximum, like multi-path HTTP clients; nginx serves the file."""

    name = "aria2 x16, nginx, TLS"
    needs: tuple[str, ...] = ("aria2c", "nginx")

    def servers(self, path: NetworkPath, root: Path, directory: Path) -> list[tuple[str, harness.Command]]:
        places = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self.pem, key = directory / "server.pem", directory / "server.key"
        settings = directory / "nginx.conf"
        settings.write_text(
            f"daemon off; pid {directory}/nginx.pid; error_log {directory}/nginx.log; worker_processes 2; events {{ worker_connections 1024; }} "
            f"http {{ access_log off; sendfile on; tcp_nopush on; {places} server {{ listen {path.b}:{PORT} ssl; listen {path.b}:{PLAIN_PORT}; "
            f"ssl_certificate {self.pem}; ssl_certificate_key {key}; root {root}; }} }}"
        )
        return [("b", ["nginx", "-p", directory, "-c", settings])]

    def client(self, path: NetworkPath, target: Path) -> harness.Command:
        args = ["-q", "-x16", "-s16", "-k1M", "--file-allocation=none", f"--ca-certificate={self.pem}", "--no-conf"]
        return ["aria2c", *args, "-d", target, "-o", "f", f"https://{path.b}:{PORT}/f"]


class Aria2Many(Aria2):
    """aria2 with 64 concurrent files, without TLS: it would make one TLS connection per file."""

    name = "aria2 -j64, nginx"

    def servers(self, path: NetworkPath, root: Path, directory: Path) -> list[tuple[str, harness.Command]]:
        found = super().servers(path, root, directory)
        self.list = directory / "urls"
        self.list.write_text("".join(f"http://{path.b}:{PLAIN_PORT}/d/{file.name}\n" for file in sorted((root / "d").iterdir())))
        return found

    def client(self, path: NetworkPath, target: Path) -> harness.Command:
        return ["aria2c", "-q", "-j64", "--file-allocation=none", "--no-conf", "-d", target / "d", "-i", self.list]


class GridFtp:
    """The Globus client and server, without encryption and without verification."""

    needs: tuple[str, ...] = ("globus-url-copy", "globus-gridftp-server")
    # Two servers at one end must not share a log.
    log = "gridftp.log"

    def __init__(self, streams: int | str = 16) -> None:
        self.streams, self.name = streams, f"GridFTP -p {streams}"

    def listening(self, address: str, port: int, log: Path, *more: object) -> harness.Command:
        # Anonymous access, as the user that runs the server.
        return ["globus-gridftp-server", "-aa", "-control-interface", address, "-data-interface", address, "-p", port, "-l", log, *more]

    def servers(self, path: NetworkPath, root: Path, directory: Path) -> list[tuple[str, harness.Command]]:
        self.root = root
        return [("b", self.listening(path.b, PORT, directory / self.log))]

    def client(self, path: NetworkPath, target: Path) -> harness.Command:
        # The kernel's autotuning reaches larger windows than a user may request.
        return ["globus-url-copy", "-q", "-p", self.streams, "-bs", 1 << 20, f"ftp://{path.b}:{PORT}{self.root}/f", f"file://{target}/f"]


class GridFtpMany(GridFtp):
    def __init__(self) -> None:
        super().__init__()
        self.name = "GridFTP -fast -cc 32"

    def client(self, path: NetworkPath, target: Path) -> harness.Command:
        return ["globus-url-copy", "-q", "-fast", "-cc", 32, "-cd", "-r", f"ftp://{path.b}:{PORT}{self.root}/d/", f"file://{target}/d/"]


class GridFtpUdt(GridFtp):
    """GridFTP over UDT with one stream, its usual setting. The client supports UDT only between two servers, so each end has a server."""

    needs = (*GridFtp.needs, "/usr/lib/*/libglobus_xio_udt_driver.so")

    def __init__(self) -> None:
        super().__init__()
        self.name = "GridFTP, UDT"

    def servers(self, path: NetworkPath, root: Path, directory: Path) -> list[tuple[str, harness.Command]]:
        self.root = root
        udt = ("-threads", 2, "-dc-whitelist", "udt", "-dc-default", "udt")
        return [
            ("b", self.listening(path.b, PORT, directory / "far.log", *udt)),
            ("a", self.listening(path.a, NEAR_PORT, directory / "near.log", *udt)),
        ]

    def client(self, path: NetworkPath, target: Path) -> harness.Command:
        return ["globus-url-copy", "-q", "-bs", 1 << 20, f"ftp://{path.b}:{PORT}{self.root}/f", f"ftp://{path.a}:{NEAR_PORT}{target}/f"]


Competitor: TypeAlias = Aria2 | GridFtp


def is_installed(need: str) -> bool:
    return any(Path("/").glob(need[1:])) if need.startswith("/") else shutil.which(need) is not None


def competitors_for_cell(cell: Cell, long: bool) -> list[Competitor]:
    """Returns the installed competitors for a cell. Sweeps of streams include only programs with streams; long files exclude programs that take
    minutes.
    """
    found: list[Competitor] = [Aria2(), GridFtp()]
    if cell["streams"] != "auto":
        found = [GridFtp(cell["streams"])]
    elif not long:
        found.append(GridFtpUdt())
    return [competitor for competitor in found if all(map(is_installed, competitor.needs))]


def competitors_for_many_files() -> list[Competitor]:
    found: list[Competitor] = [Aria2Many(), GridFtpMany()]
    return [competitor for competitor in found if all(map(is_installed, competitor.needs))]


def time_competitor(
    competitor: Competitor, path: EmulatedPath, root: Path, target: Path, directory: Path, timeout_s: float, what: str = "f"
) -> tuple[float | None, str | None]:
    """Returns the seconds in which a competitor fetches `root`/f into `target`, and None; or None and the reason for the missing time."""
    path.flush_tcp_metrics()
    running = []
    try:
        for end, args in competitor.servers(path, root, directory):
            running.append(subprocess.Popen(path.command(end, *args), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))
        time.sleep(0.8)
        started = time.monotonic()
        done = subprocess.run(path.command("a", *competitor.client(path, target)), capture_output=True, text=True, timeout=timeout_s)
        took = time.monotonic() - started
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            return None, f"failed with exit code {done.returncode}" + (f": {said[-1][-100:]}" if said else "")
        same = subprocess.run(["diff", "-rq", root / what, target / what], capture_output=True).returncode == 0
        return (took, None) if same else (None, "the received file differs from the source")
    except subprocess.TimeoutExpired:
        return None, f"over {timeout_s:.0f} s"
    finally:
        for server in running:
            # The Globus server has a process per client, which may outlive it.
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()
