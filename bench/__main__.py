"""Runs a benchmark of `scenarios/`: python3 bench NAME [ARG ..]. Without a name, lists the names."""

import runpy
import sys
from pathlib import Path

SCENARIOS = Path(__file__).with_name("scenarios")


def main() -> None:
    names = sorted(path.stem for path in SCENARIOS.glob("*.py"))
    if len(sys.argv) < 2:
        print("\n".join(names))
        return
    name = sys.argv[1]
    if name not in names:
        sys.exit(f"bench: error: there is no benchmark `{name}`; the benchmarks are: {', '.join(names)}")
    path = str(SCENARIOS / f"{name}.py")
    sys.argv[:2] = [path]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main()
