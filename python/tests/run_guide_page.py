"""Runs a page of the guide like a user who types it: run_guide_page.py PAGE. Blocks of Python share their variables; blocks of `sh` run in between.

A command that ends with `&` runs in the background, and the next block waits for the first line that it prints. It gets a free port.
"""

import re
import subprocess
import sys
from pathlib import Path

ADDRESS_PATTERN = re.compile(r"127\.0\.0\.1:\d+")


def main(page):
    known = {"__name__": "page"}
    places = {}
    beside = []
    try:
        for language, code in re.findall(r"^```(python|sh)\n(.*?)^```$", Path(page).read_text(), re.MULTILINE | re.DOTALL):
            for written, taken in places.items():
                code = code.replace(written, taken)
            if language == "python":
                exec(compile(code, page, "exec"), known)
            elif code.rstrip().endswith("&"):
                written = ADDRESS_PATTERN.search(code).group()
                command = code.rstrip().removesuffix("&").replace(written, "127.0.0.1:0")
                program = subprocess.Popen(["bash", "-euc", f"exec {command}"], stdout=subprocess.PIPE, text=True)
                beside.append(program)
                places[written] = ADDRESS_PATTERN.search(program.stdout.readline()).group()
            else:
                subprocess.run(["bash", "-euc", code], check=True)
    finally:
        for program in beside:
            program.terminate()
            program.communicate()


main(sys.argv[1])
