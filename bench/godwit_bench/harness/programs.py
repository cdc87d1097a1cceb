"""Programs of a benchmark: the binary that is measured, competitors, and preparation steps."""

import argparse
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr

from godwit_bench.harness.command_line import exit_with_error
from godwit_bench.harness.repository import ROOT, target_directory
from godwit_bench.harness.result_types import Command

CACHE = Path.home() / ".cache/godwit"
# Where the scripts fetch.sh below tests/tools install Java programs.
PICARD = CACHE / "picard-3.4.0"
GATK = CACHE / "gatk-4.6.2.0"


def require_tools(*tools: str) -> None:
    """Ends the benchmark with advice if a tool is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        exit_with_error(f"missing: {' '.join(missing)}; run tools/install-dependencies.sh bench")


def godwit_binary(options: argparse.Namespace) -> Path:
    """Returns the binary to measure; builds it unless --godwit names one."""
    if options.godwit:
        return Path(options.godwit).resolve()
    programs = ["-p", "godwit", "-p", "godwit-sql", "-p", "godwit-bwa", "-p", "godwit-bwa-mem3"]
    subprocess.run(["cargo", "build", "--release", *programs], cwd=ROOT, check=True)
    return target_directory().resolve() / "release" / "godwit"


def cargo_tool(options: argparse.Namespace, crate: str, version: str, program: str) -> Path:
    """Returns the path of a program from the Rust registry; installs it once."""
    folder = Path(options.cache).resolve() / f"{crate}-{version}"
    build_once(folder, lambda part: run_checked(["cargo", "install", "--locked", "--version", version, "--root", part, crate]))
    return folder / "bin" / program


def run_checked(command: Command, **how: Any) -> None:
    """Runs a preparation step; ends the benchmark if it fails."""
    print("bench:", " ".join(map(str, command)), file=sys.stderr)
    try:
        subprocess.run(list(map(str, command)), check=True, **how)
    except (OSError, subprocess.CalledProcessError) as error:
        exit_with_error(error)


def build_once(final: Path, build: Callable[[Path], object]) -> Path:
    """Builds a directory under a temporary name and renames it to `final` when it is complete; does nothing if it exists."""
    if not final.exists():
        aside = final.with_name(final.name + ".part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        build(aside)
        aside.rename(final)
    return final


def first_output_line(command: Sequence[str], wanted: str = "") -> str:
    """Returns the first output line of a command that contains `wanted`; empty if the command does not run."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    except OSError:
        return ""
    return next((line.strip() for line in done.stdout.splitlines() if wanted in line), "")


def run_json(command: Command) -> Any:
    """Runs a command and returns what it prints as JSON; ends the benchmark if it fails."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        exit_with_error(f"{' '.join(words[:4])} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return json.loads(done.stdout)


def piped(stream: IO[AnyStr] | None) -> IO[AnyStr]:
    """Returns a standard stream of a process that was started with this stream as a pipe."""
    assert stream is not None
    return stream


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def create_token(godwit: Path, user: str, tokens: Path) -> str:
    """Creates a token of a user in a token file, and returns it."""
    done = subprocess.run([godwit, "token", user, "--tokens", tokens], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def write_certificate(directory: Path, name: str, *alternative_names: str) -> tuple[Path, Path]:
    """Writes a self-signed certificate NAME.pem with these alternative names, as `DNS:localhost`, and its key NAME.key."""
    pem, key = directory / f"{name}.pem", directory / f"{name}.key"
    command: list[str | Path] = ["openssl", "req", "-x509", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-addext", f"subjectAltName={','.join(alternative_names)}", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command, "-out", pem, "-keyout", key], check=True, capture_output=True)
    return pem, key
