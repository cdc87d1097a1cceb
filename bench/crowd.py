#!/usr/bin/env python3
"""What a good client keeps while many others hold sockets and read slowly.

`godwit serve` with --connections raised; the good client fetches all reads of a BAM file over Flight again and again, with pyarrow. Beside it
are, in turns with nobody, the idle sockets and slow readers of clients/crowd.py. What they cost is also their own, on the same cores.
"""

import json
import resource
import statistics
import subprocess

import _clients
import _measure as bench

PAGE = "/references/0.fa"


class Crowd:
    """The others, for a `with`."""

    def __init__(self, interpreter, options, address, dataset):
        command = [interpreter, _clients.CLIENTS / "crowd.py", address, options.idle, options.slow, dataset, PAGE]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.began = self.line()

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            bench.fail(f"the crowd ended by itself, with {self.process.wait()}; see above")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.ended = self.line()
        self.process.wait()


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS:"))


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--fetches", type=int, default=40, help="of a round, some of them while the crowd arrives (default: 40)")
    parser.add_argument("--idle", type=int, default=10_000, help="idle sockets (default: 10,000)")
    parser.add_argument("--slow", type=int, default=1_000, help="slow readers (default: 1,000)")
    options = parser.parse_args()
    godwit = bench.godwit_binary(options)
    fasta = bench.reference(options, godwit)
    bam = bench.aligned(options, godwit, fasta, bench.reads(options, godwit, fasta, gzip=True)).resolve()
    bench.into_page_cache(bam)
    interpreter = _clients.python("databases")
    # The server and the crowd have as many files open as sockets.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < options.idle + 2 * options.slow + 1000:
        bench.fail(f"a process may have only {files} open files here; raise the limit (ulimit -Hn), or lower --idle")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    measured, memory, crowds = {"alone": [], "beside the crowd": []}, {"alone": [], "beside the crowd": []}, []
    words = ["--connections", 2 * options.idle + options.slow, "--reference", fasta]
    with _clients.Served(godwit, bam.parent, *words) as served, _clients.Client(interpreter, "node.py", served.address, server=served.pid) as good:
        fetch = lambda: good.ask("flight", dataset=bam.name)

        def fetched(name):
            measured[name] += [fetch() for _ in range(options.fetches)]
            memory[name].append(resident_mib(served.pid))

        fetch()
        for _ in range(options.rounds):
            fetched("alone")
            with Crowd(interpreter, options, served.address, bam.name) as crowd:
                fetched("beside the crowd")
            crowds.append({**crowd.began, "idle at the end": crowd.ended["idle"]})
            bench.progress(f"{crowds[-1]}, {measured['alone'][-1]['wall_s']:.2f} s alone, {measured['beside the crowd'][-1]['wall_s']:.2f} s beside it")
    middle = lambda name: statistics.median(answer["wall_s"] for answer in measured[name])
    rounds = [slice(at * options.fetches, (at + 1) * options.fetches) for at in range(options.rounds)]
    kept = [statistics.median(one["wall_s"] for one in measured["alone"][part]) / statistics.median(one["wall_s"] for one in measured["beside the crowd"][part]) for part in rounds]
    promised = [bench.promise("throughput of a good client beside the crowd, of that alone", kept, at_least=0.8)]
    around = bench.circumstances(options, godwit)
    lines = ["| | wall s of a fetch, median | longest | CPU s of server and client | memory of the server, MiB |", "|---|---|---|---|---|"]
    for name, answers in measured.items():
        longest = max(one["wall_s"] for one in answers)
        lines.append(f"| {name} | {middle(name):.3f} | {longest:.2f} | {statistics.median(one['cpu_s'] for one in answers):.3f} | {max(memory[name]):.0f} |")
    text = "\n".join([
        "# A good client in a crowd",
        "",
        __doc__.split("\n", 2)[2].strip(),
        "",
        f"{options.idle:,} idle sockets and {options.slow:,} slow readers, {options.rounds} rounds of {options.fetches} fetches; {bench.machine(around)}.",
        "",
        *lines,
        "",
        *(f"- {bench.in_words(one)}" for one in promised),
        f"- There were: {', '.join(f'{value:,} {name}' for name, value in crowds[-1].items())} (half of the slow readers over HTTP/1.1: pages; half over Flight: streams).",
        "",
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("crowd", options.results, text, around, promised, {"measured": measured, "memory_mib": memory, "crowds": crowds})


if __name__ == "__main__":
    main()
