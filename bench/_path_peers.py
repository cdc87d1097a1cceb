"""Other programs that fetch a file over the emulated path of transfer.py, each at its best settings: a server at the far end, a client at the near one.

Each is a class with `name`, `needs` (commands), `server(path, root, directory)` and `client(path, target)`, which give the words of commands.
"""

import shutil
import subprocess
import time

PORT = 8444


class Aria2:
    """Ranges of one file over 16 connections of HTTPS, as multi-path HTTP clients do; nginx serves it."""

    name = "aria2 x16, nginx, TLS"
    needs = ("aria2c", "nginx")

    def server(self, path, root, directory):
        places = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self.pem, key = directory / "server.pem", directory / "server.key"
        settings = directory / "nginx.conf"
        settings.write_text(
            f"daemon off; pid {directory}/nginx.pid; error_log {directory}/nginx.log; worker_processes 2; events {{ worker_connections 1024; }}"
            f" http {{ access_log off; sendfile on; tcp_nopush on; {places} server {{ listen {path.b}:{PORT} ssl; ssl_certificate {self.pem};"
            f" ssl_certificate_key {key}; root {root}; }} }}")
        return ["nginx", "-p", directory, "-c", settings]

    def client(self, path, target):
        return ["aria2c", "-q", "-x16", "-s16", "-k1M", "--file-allocation=none", f"--ca-certificate={self.pem}", "--no-conf",
                "-d", target, "-o", "f", f"https://{path.b}:{PORT}/f"]


class GridFtp:
    """Globus' client and server: 16 streams with large buffers, neither encrypted nor verified."""

    name = "GridFTP -p 16"
    needs = ("globus-url-copy", "globus-gridftp-server")

    def server(self, path, root, directory):
        self.root = root
        # Anonymous, as whoever runs it.
        return ["globus-gridftp-server", "-aa", "-anonymous-user", "nobody", "-control-interface", path.b, "-data-interface", path.b, "-p", PORT,
                "-log-single", directory / "gridftp.log"]

    def client(self, path, target):
        return ["globus-url-copy", "-q", "-p", "16", "-tcp-bs", "33554432", "-bs", "1048576", f"ftp://{path.b}:{PORT}{self.root}/f", f"file://{target}/f"]


PEERS = (Aria2, GridFtp)


def installed():
    """Those whose programs are here."""
    return [peer for peer in PEERS if all(shutil.which(need) for need in peer.needs)]


def seconds(peer, path, root, target, directory, patience_s):
    """How long a peer takes to fetch `root`/f into `target`, or None where it fails or takes too long."""
    one = peer()
    server = subprocess.Popen(path.command("b", *one.server(path, root, directory)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.7)
        started = time.monotonic()
        done = subprocess.run(path.command("a", *one.client(path, target)), capture_output=True, text=True, timeout=patience_s)
        took = time.monotonic() - started
        same = done.returncode == 0 and subprocess.run(["cmp", "-s", root / "f", target / "f"]).returncode == 0
        return took if same else None
    except subprocess.TimeoutExpired:
        return None
    finally:
        server.terminate()
        server.wait()
