"""Builds the wheel with maturin (PEP 517) and adds the programs that `godwit` starts: the SQL engine and the aligners. `godwit` finds them
beside itself.

`GODWIT_BUILD_PROFILE` names cargo's profile (default: release). If a program cannot be built, for example because bwa's library is missing, the
build prints a warning and the wheel does not contain that program: reading and copying need none of them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import maturin
from maturin import *  # noqa: F403 - the other hooks are those of maturin

PROGRAMS = ("godwit-sql", "godwit-bwa", "godwit-bwa-mem3")
WORKSPACE_ROOT = Path(__file__).resolve().parents[2]
# The installer copies these files to the directory of programs (Binary distribution format, "The .data directory"); pyproject.toml names it.
SCRIPTS = WORKSPACE_ROOT / "python" / "wheel.data" / "scripts"
# maturin requires the directory for every hook.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    profile = os.environ.get("GODWIT_BUILD_PROFILE", "release")
    os.environ.setdefault("MATURIN_PEP517_ARGS", f"--locked --profile {profile}")
    add_programs(profile)
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def add_programs(profile):
    for old in SCRIPTS.iterdir():
        old.unlink()
    built = WORKSPACE_ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / {"dev": "debug"}.get(profile, profile)
    for program in PROGRAMS:
        command = ["cargo", "build", "--locked", "--profile", profile, "-p", program]
        if subprocess.run(command, cwd=WORKSPACE_ROOT, check=False).returncode:
            print(f"warning: the wheel does not contain {program}, because its build failed; see above", file=sys.stderr)
            continue
        shutil.copy2(built / program, SCRIPTS / program)
