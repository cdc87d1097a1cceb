"""Copies over loopback: speed beside `cp` through a hashed pipe, and CPU seconds for a GB beside scp and rclone.

All programs run on 127.0.0.1 as the user that runs the benchmark. CPU seconds are those of both ends.
"""

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from godwit_bench import harness
from godwit_bench.harness import client_processes
from godwit_bench.network import competitors
from godwit_bench.network import emulated_path as emulation

SSH_PORT = 8447
# Debian installs daemons in these directories, which are not in the PATH of ordinary users.
os.environ["PATH"] += ":/usr/sbin:/sbin"


class Loopback:
    """A path object for the loopback device, with the interface of an emulated path."""

    a = b = "127.0.0.1"

    def command(self, _: object, *args: object) -> list[str]:
        return list(map(str, args))


def time_copy_and_server(args: harness.Command, server: subprocess.Popen[Any] | None, out: Path, source: Path) -> Any:
    """Returns the wall seconds of a command from start to end, and the CPU seconds of the command and of a server."""
    before = client_processes.tree_cpu_s(server.pid) if server else 0
    client = client_processes.time_process(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # The kernel adds the CPU seconds of a connection's process to its parent only after the parent has waited for it.
    time.sleep(0.3 if server else 0)
    server_s = client_processes.tree_cpu_s(server.pid) - before if server else 0
    if not harness.have_same_bytes(source, out):
        harness.exit_with_error(f"the copy by {args[0]} differs from the file")
    return {"wall_s": round(client["wall_s"], 3), "cpu_s": round(client["cpu_s"] + server_s, 2)}


def godwit_args(godwit: Path, server: emulation.PathServer, out: Path) -> harness.Command:
    return [godwit, "copy", f"{server.url}/f", out, "--mode", "fast", "--quiet", *server.credential_args()]


def measure_pipe(godwit: Path, directory: Path, megabytes: int, rounds: int) -> harness.Result:
    """Copies a file from the page cache by `copy`, and through `tee` while b3sum hashes its output; both sync the written file."""
    harness.require_tools("b3sum")
    root, mine = emulation.prepare_directories(directory, megabytes)
    source, out = root / "f", mine / "f"
    harness.load_into_page_cache(source)
    path = Loopback()
    quoted = [shlex.quote(str(one)) for one in (out, source)]
    script = "tee {0} < {1} | b3sum > /dev/null && sync -d {0}".format(*quoted)
    found: harness.Rounds = {"copy": [], "copy, TLS": [], "tee | b3sum": []}
    with emulation.PathServer(path, godwit, root, directory, plain=True) as plain, emulation.PathServer(path, godwit, root, directory) as secure:
        contestants: dict[str, tuple[harness.Command, subprocess.Popen[Any] | None]] = {
            "copy": (godwit_args(godwit, plain, out), plain.process),
            "copy, TLS": (godwit_args(godwit, secure, out), secure.process),
            "tee | b3sum": (["bash", "-o", "pipefail", "-c", script], None),
        }
        for _ in range(rounds):
            for name, (args, server) in contestants.items():
                emulation.empty_directory(mine)
                # Data that the previous program wrote must not be written to disk during this measurement.
                os.sync()
                found[name].append(time_copy_and_server(args, server, out, source))
                harness.report_progress(f"loopback, {name}: {found[name][-1]}")
    emulation.empty_directory(mine)
    return {"rounds": found, "gb": round(source.stat().st_size / 1e9, 3)}


def start_ssh_server(directory: Path) -> tuple[subprocess.Popen[bytes], list[object], Path]:
    """Starts a private sshd; returns it and the arguments with which ssh and scp use it."""
    keys = {name: directory / name for name in ("host", "user")}
    for key in keys.values():
        key.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = directory / "sshd_config"
    settings.write_text(
        f"ListenAddress 127.0.0.1:{SSH_PORT}\nHostKey {keys['host']}\nAuthorizedKeysFile {keys['user']}.pub\nStrictModes no\nPermitRootLogin yes\n"
        f"UsePAM no\nPasswordAuthentication no\nPidFile none\nSubsystem sftp internal-sftp\n"
    )
    child = subprocess.Popen([shutil.which("sshd") or "sshd", "-D", "-e", "-f", settings], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    options = ["-i", keys["user"], "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    return child, options, keys["user"]


def measure_cpu(godwit: Path, directory: Path, megabytes: int, rounds: int) -> harness.Result:
    """Measures the CPU seconds of both ends for a GB, from memory to memory."""
    harness.require_tools("scp", "sshd", "rclone", "nginx")
    root, mine = emulation.prepare_directories(directory, megabytes)
    source, out = root / "f", mine / "f"
    path = Loopback()
    rclone = ["rclone", "--config", "/dev/null", "--log-level", "ERROR", "--no-check-certificate"]
    many = ["--multi-thread-streams", "4", "--multi-thread-cutoff", "64M"]
    sshd, ssh_options, key = start_ssh_server(directory)
    servers = [sshd]
    found: harness.Rounds = {}
    try:
        with (
            emulation.PathServer(path, godwit, root, directory) as secure,
            emulation.PathServer(path, godwit, root, directory, name="plain", plain=True) as plain,
        ):
            _, args = competitors.Aria2().servers(path, root, directory)[0]
            web = subprocess.Popen(list(map(str, args)), stderr=subprocess.DEVNULL)
            servers.append(web)
            time.sleep(0.5)
            sftp = f":sftp,host=127.0.0.1,port={SSH_PORT},user=root,key_file={key}:{source}"
            contestants: dict[str, tuple[harness.Command, subprocess.Popen[Any]]] = {
                "godwit copy, TLS": (godwit_args(godwit, secure, out), secure.process),
                "godwit copy": (godwit_args(godwit, plain, out), plain.process),
                "scp": (["scp", "-q", "-P", SSH_PORT, *ssh_options, f"root@127.0.0.1:{source}", out], sshd),
                "rclone, SFTP": ([*rclone, "copyto", sftp, out, *many], sshd),
                "rclone, HTTPS": ([*rclone, "copyto", f":http,url='https://127.0.0.1:{competitors.PORT}/':f", out, *many], web),
            }
            found = {name: [] for name in contestants}
            for _ in range(rounds):
                for name, (command, server) in contestants.items():
                    emulation.empty_directory(mine)
                    found[name].append(time_copy_and_server(command, server, out, source))
                    harness.report_progress(f"CPU, {name}: {found[name][-1]}")
    finally:
        for server in servers:
            server.terminate()
            server.wait()
    emulation.empty_directory(mine)
    return {"rounds": found, "gb": round(source.stat().st_size / 1e9, 3)}
