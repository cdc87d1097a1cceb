"""Builds the wheel: maturin's (PEP 517), with the programs of the aligners beside `godwit`, which looks for them there.

`GODWIT_BUILD_PROFILE` names cargo's profile (default: release). Where an aligner cannot be built, as without bwa's library, the wheel goes without
it, and says so: reading, serving and copying need none.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import maturin
from maturin import *  # noqa: F403 - the other hooks are maturin's own

ALIGNERS = ("godwit-bwa", "godwit-bwa-mem3")
WORKSPACE = Path(__file__).resolve().parents[2]
# What lies in it is put where programs are (Binary distribution format, "The .data directory"); pyproject.toml names it.
SCRIPTS = WORKSPACE / "python" / "wheel.data" / "scripts"
# maturin wants it to be there whatever it is asked for.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    profile = os.environ.get("GODWIT_BUILD_PROFILE", "release")
    os.environ.setdefault("MATURIN_PEP517_ARGS", f"--locked --profile {profile}")
    add_aligners(profile)
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def add_aligners(profile):
    for old in SCRIPTS.iterdir():
        old.unlink()
    built = WORKSPACE / os.environ.get("CARGO_TARGET_DIR", "target") / {"dev": "debug"}.get(profile, profile)
    for aligner in ALIGNERS:
        command = ["cargo", "build", "--locked", "--profile", profile, "-p", aligner]
        if subprocess.run(command, cwd=WORKSPACE, check=False).returncode:
            print(f"warning: the wheel goes without {aligner}, which could not be built; see above", file=sys.stderr)
            continue
        shutil.copy2(built / aligner, SCRIPTS / aligner)
