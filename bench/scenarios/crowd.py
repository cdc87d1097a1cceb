"""Throughput of an active client while many idle clients and slow readers are connected.

`godwit serve` runs with --connections raised. An active client fetches all reads of a BAM file over Flight again and again, with pyarrow. Rounds
without other clients alternate with rounds in which clients/crowd.py holds idle sockets and slow readers. The other clients use the same cores.
"""

import argparse
import json
import resource
import subprocess
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

PAGE = "/references/0.fa"


class IdleClients:
    """The idle clients and slow readers; a context manager."""

    def __init__(self, interpreter: str, options: argparse.Namespace, address: str, dataset: str) -> None:
        command = [interpreter, client_processes.CLIENTS / "crowd.py", address, options.idle, options.slow, dataset, PAGE]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.began = self.read_status()

    def read_status(self) -> harness.Result:
        line = harness.piped(self.process.stdout).readline()
        if not line:
            harness.exit_with_error(f"the idle clients ended early, with exit code {self.process.wait()}; see above")
        status: harness.Result = json.loads(line)
        return status

    def __enter__(self) -> "IdleClients":
        return self

    def __exit__(self, *_: object) -> None:
        harness.piped(self.process.stdin).close()
        self.ended = self.read_status()
        self.process.wait()


def resident_mib(pid: int) -> float:
    with Path(f"/proc/{pid}/status").open() as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS:"))


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--fetches", type=int, default=40, help="fetches of a round, some of them while the idle clients connect (default: 40)")
    parser.add_argument("--idle", type=int, default=10_000, help="idle sockets (default: 10,000)")
    parser.add_argument("--slow", type=int, default=1_000, help="slow readers (default: 1,000)")
    options = parser.parse_args()
    godwit = harness.godwit_binary(options)
    fasta, bam = harness.simulated_bam(options, godwit)
    interpreter = client_processes.client_python("databases")
    # The server and the clients have one open file per socket.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < options.idle + 2 * options.slow + 1000:
        harness.exit_with_error(f"the limit of open files per process is {files}; raise the limit (ulimit -Hn), or lower --idle")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    measured: harness.Rounds = {"alone": [], "beside the crowd": []}
    memory: dict[str, list[float]] = {"alone": [], "beside the crowd": []}
    crowds: list[harness.Result] = []
    args = ["--connections", 2 * options.idle + options.slow, "--reference", fasta]
    with (
        client_processes.DataServer(godwit, bam.parent, *args) as served,
        client_processes.Client(interpreter, "flight_clients", served.address, server=served.pid) as good,
    ):

        def fetch() -> harness.Result:
            return good.run_job("flight", dataset=bam.name)

        def fetched(name: str) -> None:
            measured[name] += [fetch() for _ in range(options.fetches)]
            memory[name].append(resident_mib(served.pid))

        fetch()
        for _ in range(options.rounds):
            fetched("alone")
            with IdleClients(interpreter, options, served.address, bam.name) as crowd:
                fetched("beside the crowd")
            crowds.append({**crowd.began, "idle at the end": crowd.ended["idle"]})
            harness.report_progress(
                f"{crowds[-1]}, {measured['alone'][-1]['wall_s']:.2f} s alone, {measured['beside the crowd'][-1]['wall_s']:.2f} s beside it"
            )
    rounds = [slice(at * options.fetches, (at + 1) * options.fetches) for at in range(options.rounds)]
    kept = [
        harness.median_field(measured["alone"][part], "wall_s") / harness.median_field(measured["beside the crowd"][part], "wall_s")
        for part in rounds
    ]
    promised = [harness.target("throughput of a good client beside the crowd, of that alone", kept, at_least=0.8)]
    around = harness.measurement_context(options, godwit)
    lines = ["| | wall s of a fetch, median | longest | CPU s of server and client | memory of the server, MiB |", "|---|---|---|---|---|"]
    for name, answers in measured.items():
        longest = max(one["wall_s"] for one in answers)
        lines.append(
            f"| {name} | {harness.median_field(answers, 'wall_s'):.3f} | {longest:.2f} | {harness.median_field(answers, 'cpu_s'):.3f} | "
            f"{max(memory[name]):.0f} |"
        )
    text = "\n".join(
        [
            "# An active client beside idle clients",
            "",
            __doc__.split("\n", 2)[2].strip(),
            "",
            f"{options.idle:,} idle sockets and {options.slow:,} slow readers, {options.rounds} rounds of {options.fetches} fetches; "
            f"{harness.format_host(around)}.",
            "",
            *lines,
            "",
            *(f"- {harness.format_target(one)}" for one in promised),
            f"- Connected: {', '.join(f'{value:,} {name}' for name, value in crowds[-1].items())} (half of the slow readers over HTTP/1.1: "
            "pages; half over Flight: streams).",
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("crowd", options.results, text, around, promised, {"measured": measured, "memory_mib": memory, "crowds": crowds})


if __name__ == "__main__":
    main()
