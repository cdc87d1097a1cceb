"""Runs a page of the guide as somebody does who types it: page.py PAGE. Blocks of Python share what they know, blocks of `sh` are typed between them.

A command that ends with `&` goes on beside the rest, and the next block waits for the first line that it prints. It gets a port of its own.
"""

import re
import subprocess
import sys
from pathlib import Path

PLACE = re.compile(r"127\.0\.0\.1:\d+")


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
                written = PLACE.search(code).group()
                command = code.rstrip().removesuffix("&").replace(written, "127.0.0.1:0")
                program = subprocess.Popen(["bash", "-euc", f"exec {command}"], stdout=subprocess.PIPE, text=True)
                beside.append(program)
                places[written] = PLACE.search(program.stdout.readline()).group()
            else:
                subprocess.run(["bash", "-euc", code], check=True)
    finally:
        for program in beside:
            program.terminate()
            program.communicate()


main(sys.argv[1])
