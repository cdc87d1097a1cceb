"""Copies over loopback: how fast beside `cp` through a pipe that is hashed, and what a GB costs in CPU beside scp and rclone.

Everything of these runs as whoever runs the benchmark, on 127.0.0.1. CPU seconds are those of both ends.
"""

import os
import shutil
import shlex
import subprocess
import time
from pathlib import Path

import _clients
import _measure as bench
import _path_lab as lab
import _path_peers as peers

SSH_PORT = 8447
# Where Debian keeps daemons, which are no users' commands.
os.environ["PATH"] += ":/usr/sbin:/sbin"


class Loopback:
    """In the place of an emulated path."""

    a = b = "127.0.0.1"

    def command(self, _, *words):
        return list(map(str, words))


def cost(words, server, out, source):
    """Wall seconds of a command from its start to its end, and CPU seconds of it and of a server."""
    before = _clients.tree_cpu_s(server.pid) if server else 0
    told = _clients.process(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # What served a connection that has ended is waited for by its parent, which then has its CPU seconds.
    time.sleep(0.3 if server else 0)
    server_s = _clients.tree_cpu_s(server.pid) - before if server else 0
    if not lab.are_same(source, out):
        bench.fail(f"what came by {words[0]} is not the file")
    return {"wall_s": round(told["wall_s"], 3), "cpu_s": round(told["cpu_s"] + server_s, 2)}


def godwit_words(godwit, server, out):
    return [godwit, "copy", f"{server.url}/f", out, "--mode", "fast", "--quiet", *server.words()]


def pipe(godwit, directory, megabytes, rounds):
    """A file in the page cache by `copy`, and through `tee` while b3sum hashes what it passes on; both make what they wrote durable."""
    bench.need("b3sum")
    root, mine = lab.both_ends(directory, megabytes)
    source, out = root / "f", mine / "f"
    bench.into_page_cache(source)
    path = Loopback()
    quoted = [shlex.quote(str(one)) for one in (out, source)]
    script = "tee {0} < {1} | b3sum > /dev/null && sync -d {0}".format(*quoted)
    found = {"copy": [], "copy, TLS": [], "tee | b3sum": []}
    with lab.Server(path, godwit, root, directory, plain=True) as plain, lab.Server(path, godwit, root, directory) as secure:
        contestants = {
            "copy": (godwit_words(godwit, plain, out), plain.child),
            "copy, TLS": (godwit_words(godwit, secure, out), secure.child),
            "tee | b3sum": (["bash", "-o", "pipefail", "-c", script], None),
        }
        for _ in range(rounds):
            for name, (words, server) in contestants.items():
                lab.emptied(mine)
                # What the last one wrote is not to be written to the disk in this one's time.
                os.sync()
                found[name].append(cost(words, server, out, source))
                bench.progress(f"loopback, {name}: {found[name][-1]}")
    lab.emptied(mine)
    return {"rounds": found, "gb": round(source.stat().st_size / 1e9, 3)}


def ssh_server(directory):
    """An sshd of ours, and the words that make ssh and scp use it."""
    keys = {name: directory / name for name in ("host", "user")}
    for key in keys.values():
        key.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = directory / "sshd_config"
    settings.write_text(
        f"ListenAddress 127.0.0.1:{SSH_PORT}\nHostKey {keys['host']}\nAuthorizedKeysFile {keys['user']}.pub\nStrictModes no\nPermitRootLogin yes\n"
        f"UsePAM no\nPasswordAuthentication no\nPidFile none\nSubsystem sftp internal-sftp\n")
    child = subprocess.Popen([shutil.which("sshd"), "-D", "-e", "-f", settings], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    options = ["-i", keys["user"], "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    return child, options, keys["user"]


def cpu(godwit, directory, megabytes, rounds):
    """CPU seconds of both ends for a GB, from memory to memory."""
    bench.need("scp", "sshd", "rclone", "nginx")
    root, mine = lab.both_ends(directory, megabytes)
    source, out = root / "f", mine / "f"
    path = Loopback()
    rclone = ["rclone", "--config", "/dev/null", "--log-level", "ERROR", "--no-check-certificate"]
    many = ["--multi-thread-streams", "4", "--multi-thread-cutoff", "64M"]
    sshd, ssh_options, key = ssh_server(directory)
    servers = [sshd]
    found = {}
    try:
        with lab.Server(path, godwit, root, directory) as secure, lab.Server(path, godwit, root, directory, name="plain", plain=True) as plain:
            _, words = peers.Aria2().servers(path, root, directory)[0]
            web = subprocess.Popen(list(map(str, words)), stderr=subprocess.DEVNULL)
            servers.append(web)
            time.sleep(0.5)
            sftp = f":sftp,host=127.0.0.1,port={SSH_PORT},user=root,key_file={key}:{source}"
            contestants = {
                "godwit copy, TLS": (godwit_words(godwit, secure, out), secure.child),
                "godwit copy": (godwit_words(godwit, plain, out), plain.child),
                "scp": (["scp", "-q", "-P", SSH_PORT, *ssh_options, f"root@127.0.0.1:{source}", out], sshd),
                "rclone, SFTP": ([*rclone, "copyto", sftp, out, *many], sshd),
                "rclone, HTTPS": ([*rclone, "copyto", f":http,url='https://127.0.0.1:{peers.PORT}/':f", out, *many], web),
            }
            found = {name: [] for name in contestants}
            for _ in range(rounds):
                for name, (command, server) in contestants.items():
                    lab.emptied(mine)
                    found[name].append(cost(command, server, out, source))
                    bench.progress(f"CPU, {name}: {found[name][-1]}")
    finally:
        for server in servers:
            server.terminate()
            server.wait()
    lab.emptied(mine)
    return {"rounds": found, "gb": round(source.stat().st_size / 1e9, 3)}
