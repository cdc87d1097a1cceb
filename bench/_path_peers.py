"""Other programs that fetch a file over an emulated path, each at its best settings: a server at the far end, a client at the near one.

Each is a class with `name`, `needs` (commands, and files that have to be there), `servers(path, root, directory)`, which gives the ends and the words of
what has to run before, and `client(path, target)`, the words of what is timed. With `many`, it fetches the files below `root`/d.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

PORT, NEAR_PORT, PLAIN_PORT = 8444, 8445, 8446
# What else is asked for, and why it does not run here.
NOT_RUN = {
    "bbcp": "Debian has no package of it",
    "FDT": "Maven Central has no artifact `fast-data-transfer:fdt`, as its own build names it",
}


class Aria2:
    """Ranges of one file over 16 connections of HTTPS, the most that it makes, as multi-path HTTP clients do; nginx serves it."""

    name = "aria2 x16, nginx, TLS"
    needs = ("aria2c", "nginx")

    def servers(self, path, root, directory):
        places = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self.pem, key = directory / "server.pem", directory / "server.key"
        settings = directory / "nginx.conf"
        settings.write_text(
            f"daemon off; pid {directory}/nginx.pid; error_log {directory}/nginx.log; worker_processes 2; events {{ worker_connections 1024; }}"
            f" http {{ access_log off; sendfile on; tcp_nopush on; {places} server {{ listen {path.b}:{PORT} ssl; listen {path.b}:{PLAIN_PORT}; ssl_certificate {self.pem};"
            f" ssl_certificate_key {key}; root {root}; }} }}")
        return [("b", ["nginx", "-p", directory, "-c", settings])]

    def client(self, path, target):
        return ["aria2c", "-q", "-x16", "-s16", "-k1M", "--file-allocation=none", f"--ca-certificate={self.pem}", "--no-conf",
                "-d", target, "-o", "f", f"https://{path.b}:{PORT}/f"]


class Aria2Many(Aria2):
    """64 files at a time, without TLS: it would make a connection with handshakes for each file."""

    name = "aria2 -j64, nginx"

    def servers(self, path, root, directory):
        found = super().servers(path, root, directory)
        self.list = directory / "urls"
        self.list.write_text("".join(f"http://{path.b}:{PLAIN_PORT}/d/{file.name}\n" for file in sorted((root / "d").iterdir())))
        return found

    def client(self, path, target):
        return ["aria2c", "-q", "-j64", "--file-allocation=none", "--no-conf", "-d", target / "d", "-i", self.list]


class GridFtp:
    """Globus' client and server, neither encrypted nor verified."""

    needs = ("globus-url-copy", "globus-gridftp-server")
    # Two servers at one end would want one log.
    log = "gridftp.log"

    def __init__(self, streams=16):
        self.streams, self.name = streams, f"GridFTP -p {streams}"

    def listening(self, address, port, log, *more):
        # Anonymous, as whoever runs it.
        return ["globus-gridftp-server", "-aa", "-control-interface", address, "-data-interface", address, "-p", port, "-l", log, *more]

    def servers(self, path, root, directory):
        self.root = root
        return [("b", self.listening(path.b, PORT, directory / self.log))]

    def client(self, path, target):
        # The kernel's own tuning gives larger windows than a user may ask for.
        return ["globus-url-copy", "-q", "-p", self.streams, "-bs", 1 << 20, f"ftp://{path.b}:{PORT}{self.root}/f", f"file://{target}/f"]


class GridFtpMany(GridFtp):
    def __init__(self):
        super().__init__()
        self.name = "GridFTP -fast -cc 32"

    def client(self, path, target):
        return ["globus-url-copy", "-q", "-fast", "-cc", 32, "-cd", "-r", f"ftp://{path.b}:{PORT}{self.root}/d/", f"file://{target}/d/"]


class GridFtpUdt(GridFtp):
    """The same over UDT, with one stream, as it is used. The client has that between two servers only, so that there is one at each end."""

    needs = (*GridFtp.needs, "/usr/lib/*/libglobus_xio_udt_driver.so")

    def __init__(self):
        super().__init__()
        self.name = "GridFTP, UDT"

    def servers(self, path, root, directory):
        self.root = root
        udt = ("-threads", 2, "-dc-whitelist", "udt", "-dc-default", "udt")
        return [
            ("b", self.listening(path.b, PORT, directory / "far.log", *udt)),
            ("a", self.listening(path.a, NEAR_PORT, directory / "near.log", *udt)),
        ]

    def client(self, path, target):
        return ["globus-url-copy", "-q", "-bs", 1 << 20, f"ftp://{path.b}:{PORT}{self.root}/f", f"ftp://{path.a}:{NEAR_PORT}{target}/f"]


def is_here(need):
    return any(Path("/").glob(need[1:])) if need.startswith("/") else shutil.which(need) is not None


def of_cell(cell, long):
    """Those whose programs are here: all, beside a sweep of streams only who has streams, and beside long files none that takes minutes."""
    if cell["streams"] != "auto":
        found = [GridFtp(cell["streams"])]
    else:
        found = [Aria2(), GridFtp()] + ([] if long else [GridFtpUdt()])
    return [peer for peer in found if all(map(is_here, peer.needs))]


def of_many_files():
    return [peer for peer in (Aria2Many(), GridFtpMany()) if all(map(is_here, peer.needs))]


def timed(peer, path, root, target, directory, patience_s, what="f"):
    """How long a peer takes to fetch `root`/f into `target`, and None; or None, and why it has no time."""
    path.forget()
    running = []
    try:
        for end, words in peer.servers(path, root, directory):
            running.append(subprocess.Popen(path.command(end, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))
        time.sleep(0.8)
        started = time.monotonic()
        done = subprocess.run(path.command("a", *peer.client(path, target)), capture_output=True, text=True, timeout=patience_s)
        took = time.monotonic() - started
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            return None, f"failed with exit code {done.returncode}" + (f": {said[-1][-100:]}" if said else "")
        same = subprocess.run(["diff", "-rq", root / what, target / what], capture_output=True).returncode == 0
        return (took, None) if same else (None, "what came is not the file")
    except subprocess.TimeoutExpired:
        return None, f"over {patience_s:.0f} s"
    finally:
        for server in running:
            # Globus' has a process for each client, which may outlive it.
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()
