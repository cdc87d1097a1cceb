"""Builds the wheel (PEP 517): the package `godwit`, and the programs that packaging/programs.txt lists.

`GODWIT_BUILD_PROFILE` names cargo's profile (default: release). If a program other than `godwit` cannot be built, for example because bwa's library
is missing, the build prints a warning and the wheel does not contain that program: reading, serving and copying do not need an aligner.
`GODWIT_INSTALLED_PREFIX` names a prefix into which `./install` has put all of them; the wheel then also contains the licenses from there. With
`SOURCE_DATE_EPOCH`, two builds have the same bytes.
"""

import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORKSPACE_ROOT = Path(__file__).resolve().parents[2]
SOURCES = WORKSPACE_ROOT / "python" / "src"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    programs = list(built_programs())
    tag = f"py3-none-{platform_tag(programs)}"
    package_files = [path for path in sorted(SOURCES.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    files = {path.relative_to(SOURCES).as_posix(): path.read_bytes() for path in package_files}
    scripts = {f"godwit-{version()}.data/scripts/{path.name}": path.read_bytes() for path in programs}
    return write_wheel(Path(wheel_directory), tag, files | scripts)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that refers to python/src, without programs: `GODWIT_PROGRAM` or the PATH provides `godwit`."""
    return write_wheel(Path(wheel_directory), "py3-none-any", {"godwit.pth": f"{SOURCES}\n".encode()})


def built_programs():
    """Returns the paths of the programs, which cargo builds unless `GODWIT_INSTALLED_PREFIX` is set."""
    lines = (WORKSPACE_ROOT / "packaging" / "programs.txt").read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    if "GODWIT_INSTALLED_PREFIX" in os.environ:
        return [Path(os.environ["GODWIT_INSTALLED_PREFIX"]) / "bin" / name for name in names]
    profile = os.environ.get("GODWIT_BUILD_PROFILE", "release")
    built = WORKSPACE_ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / {"dev": "debug"}.get(profile, profile)
    return [built / name for name in names if build_program(name, profile)]


def build_program(name, profile):
    command = ["cargo", "build", "--locked", "--profile", profile, "-p", name]
    status = subprocess.run(command, cwd=WORKSPACE_ROOT, check=name == "godwit").returncode
    if status:
        print(f"warning: the wheel does not contain {name}, because its build failed; see above", file=sys.stderr)
    return status == 0


def platform_tag(programs):
    """Returns the tag for the newest version of glibc that a program requires (PEP 600)."""
    symbols = "".join(subprocess.run(["objdump", "-T", path], check=True, capture_output=True, text=True).stdout for path in programs)
    minor = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols))
    return f"manylinux_2_{minor}_{platform.machine()}"


def license_files():
    if "GODWIT_INSTALLED_PREFIX" in os.environ:
        return sorted((Path(os.environ["GODWIT_INSTALLED_PREFIX"]) / "share" / "doc" / "godwit").iterdir())
    return [WORKSPACE_ROOT / "LICENSE-APACHE", WORKSPACE_ROOT / "LICENSE-MIT"]


def project():
    return tomllib.loads((WORKSPACE_ROOT / "python" / "pyproject.toml").read_text())["project"]


def version():
    return tomllib.loads((WORKSPACE_ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def metadata():
    """Returns the core metadata of the package (version 2.4)."""
    described = project()
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {described['name']}",
        f"Version: {version()}",
        f"Summary: {described['description']}",
        f"License-Expression: {described['license']}",
        *(f"License-File: {path.name}" for path in license_files()),
        f"Requires-Python: {described['requires-python']}",
        "Description-Content-Type: text/markdown",
        *(f"Requires-Dist: {requirement}" for requirement in described["dependencies"]),
    ]
    for extra, requirements in described["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines.extend(f"Requires-Dist: {requirement} ; extra == '{extra}'" for requirement in requirements)
    readme = (WORKSPACE_ROOT / "python" / described["readme"]).read_text()
    return "\n".join([*lines, "", readme]).encode()


def write_wheel(directory, tag, files):
    """Writes the files, and those that describe them, sorted and with one modification time; returns the wheel's name."""
    information = f"godwit-{version()}.dist-info"
    files = dict(sorted(files.items()))
    for path in license_files():
        files[f"{information}/licenses/{path.name}"] = path.read_bytes()
    files[f"{information}/METADATA"] = metadata()
    files[f"{information}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: godwit_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = f"{information}/RECORD"
    files[record] = "".join(f"{name},{checksum(content)},{len(content)}\n" for name, content in files.items()).encode() + f"{record},,\n".encode()
    name = f"godwit-{version()}-{tag}.whl"
    modified = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))[:6]
    with zipfile.ZipFile(directory / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, modified)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if ".data/scripts/" in path else 0o100644) << 16
            wheel.writestr(entry, content)
    return name


def checksum(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    print(build_wheel(sys.argv[1]))
