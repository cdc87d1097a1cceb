"""Private database servers of a benchmark: each starts in a scratch directory on a free port and is removed with it."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, TypeVar

from godwit_bench import harness

START_TIMEOUT_S = 60


AnyDatabase = TypeVar("AnyDatabase", bound="Database")


class Database:
    """A database server in a directory; a context manager."""

    directory: Path
    port: int
    version: str

    def start(self, command: harness.Command, **how: Any) -> None:
        self.log = (self.directory / "log").open("wb")
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, **how)
        started = time.monotonic()
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() - started > START_TIMEOUT_S:
                self.process.kill()
                harness.exit_with_error(f"{command[0]} did not start: {(self.directory / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self: AnyDatabase) -> AnyDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.close()


class Postgresql(Database):
    """PostgreSQL as Debian packages it. It refuses to run as root, so another user runs it."""

    def __init__(self, directory: str) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        if not programs:
            harness.exit_with_error("PostgreSQL is missing; run tools/install-dependencies.sh bench")
        self.directory, self.port = Path(directory), harness.free_port()
        how = {}
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            shutil.chown(self.directory, owner.pw_uid, owner.pw_gid)
            how = {"user": owner.pw_uid, "group": owner.pw_gid, "cwd": self.directory}
        data = self.directory / "data"
        # No checksums, no fsync, and enough memory for all data: the competitor at its best.
        harness.run_checked(
            [programs[-1] / "initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C"],
            stdout=subprocess.DEVNULL,
            **how,
        )
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.directory,
            "fsync": "off",
            "shared_buffers": "1GB",
            "max_wal_size": "8GB",
            "wal_level": "minimal",
            "max_wal_senders": 0,
        }
        self.start([programs[-1] / "postgres", "-D", data, *[f"--{name}={value}" for name, value in settings.items()]], **how)
        self.version = harness.first_output_line([str(programs[-1] / "postgres"), "--version"])

    def is_ready(self) -> bool:
        return subprocess.run(["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode == 0


CLICKHOUSE_CONFIG = """<yandex>
<logger><level>warning</level><console>1</console></logger>
<listen_host>127.0.0.1</listen_host><tcp_port>{port}</tcp_port>
<path>{directory}/data/</path><tmp_path>{directory}/tmp/</tmp_path>
<users_config>{directory}/users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
<mark_cache_size>268435456</mark_cache_size>
</yandex>
"""
CLICKHOUSE_USERS = """<yandex>
<profiles><default><max_memory_usage>8000000000</max_memory_usage></default></profiles>
<users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
<quotas><default></default></quotas>
</yandex>
"""


class Clickhouse(Database):
    """ClickHouse as Debian packages it: blocks of columns over its own protocol."""

    def __init__(self, directory: str) -> None:
        harness.require_tools("clickhouse-server", "clickhouse-client")
        self.directory, self.port = Path(directory), harness.free_port()
        (self.directory / "config.xml").write_text(CLICKHOUSE_CONFIG.format(port=self.port, directory=self.directory))
        (self.directory / "users.xml").write_text(CLICKHOUSE_USERS)
        self.start(["clickhouse-server", f"--config-file={self.directory}/config.xml"])
        self.version = harness.first_output_line(["clickhouse-client", "--version"])

    def execute(self, statement: str, **how: Any) -> None:
        command = ["clickhouse-client", "--host", "127.0.0.1", "--port", str(self.port), "--query", statement]
        subprocess.run(command, check=True, **how)
