"""Reads into Python by the package `godwit`: all of a BAM file and random regions, from its directory and over loopback TLS, beside polars-bio.

All return the same twelve columns as Arrow. The programs are warm, the file is in memory. `godwit.open` starts its own server for the
directory, over loopback without TLS; `godwit.connect` queries a server with TLS and a token. CPU seconds are those of the client and of the
server. The report names each client whose row count differs from `samtools view -c`.
"""

import functools
import os
import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

LOCAL, TLS, COMPETITOR = "godwit.open", "godwit.connect, TLS", "polars-bio"


def measure_regions(
    asks: dict[str, Callable[[harness.Region | None], harness.Result]], chosen: list[harness.Region], rounds: int, expected: dict[harness.Region, int]
) -> tuple[harness.Rounds, dict[str, int]]:
    """Returns each round's medians over all regions, by name, and the number of regions with other row counts."""
    measured: harness.Rounds = {name: [] for name in asks}
    wrong = dict.fromkeys(asks, 0)
    order = random.Random(20261124)
    for round_number in range(rounds):
        found: harness.Rounds = {name: [] for name in asks}
        for region in chosen:
            names = list(asks)
            order.shuffle(names)
            for name in names:
                answer = asks[name](region)
                found[name].append(answer)
                wrong[name] += round_number == 0 and answer["rows"] != expected[region]
        for name, answers in found.items():
            measured[name].append({field: statistics.median(one[field] for one in answers) for field in ("wall_s", "cpu_s", "server_cpu_s")})
        harness.report_progress(f"regions: round {round_number + 1}")
    return measured, wrong


def targets(what: str, measured: harness.Rounds) -> Iterator[harness.Result]:
    yield harness.target(f"{what}, {LOCAL} over {COMPETITOR}", harness.ratios(measured[LOCAL], measured[COMPETITOR], "wall_s"), at_most=1)
    yield harness.target(f"{what}, {TLS} over {LOCAL}", harness.ratios(measured[TLS], measured[LOCAL], "wall_s"), at_most=1.5)


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--regions", type=int, default=30, help="regions of each length (default: 30)")
    parser.add_argument("--lengths", default="10000,100000,1000000", help="bases of regions (default: 10000,100000,1000000)")
    options = parser.parse_args()
    harness.require_tools("samtools", "openssl")
    godwit = harness.godwit_binary(options)
    os.environ |= {"PYTHONPATH": str(harness.PYTHON_PACKAGE), "GODWIT_PROGRAM": str(godwit)}
    fasta, bam = harness.simulated_bam(options, godwit)

    def count(*region: str) -> int:
        return int(harness.first_output_line(["samtools", "view", "-c", str(bam), *region]))

    interpreters = {name: client_processes.client_python(name) for name in ("readers", "databases")}
    private = client_processes.scratch_directory("reads")
    folder = Path(private.name)
    (pem, key), tokens = harness.write_certificate(folder, "server", "DNS:localhost", "IP:127.0.0.1"), folder / "tokens"
    token = harness.create_token(godwit, "bench", tokens)
    sections: list[str] = []
    promised: list[harness.Result] = []
    raw: harness.Result = {}
    with client_processes.DataServer(godwit, bam.parent, "--tls-cert", pem, "--tls-key", key, "--tokens", tokens) as served:
        url = f"grpc+tls://{served.address}"
        tls = client_processes.Client(interpreters["databases"], "godwit_package", url, bam.name, token, pem, server=served.pid)
        local = client_processes.Client(interpreters["databases"], "godwit_package", bam.parent, bam.name)
        local.server = local.run_job("process")["process"]
        competitor = client_processes.Client(interpreters["readers"], "readers", COMPETITOR, bam)
        # Each reads a region, or all reads.
        asks: dict[str, Callable[[harness.Region | None], harness.Result]] = {
            LOCAL: lambda region: local.run_job("rows", columns=harness.READ_COLUMNS, region=region),
            TLS: lambda region: tls.run_job("rows", columns=harness.READ_COLUMNS, region=region),
            COMPETITOR: lambda region: competitor.run_job("rows", region=region),
        }
        whole = {name: functools.partial(ask, None) for name, ask in asks.items()}
        expected = count()
        for name, read_all in whole.items():
            if read_all()["rows"] != expected:
                harness.exit_with_error(f"{name} does not return the {expected} reads of the file")
        measured = client_processes.run_interleaved(options.rounds, whole, "all reads")
        raw["all reads"] = measured
        sections += [f"## All reads: {expected:,}", "", *client_processes.markdown_table(measured, COMPETITOR), ""]
        promised += targets("all reads", measured)
        draw = random.Random(options.seed)
        for length in map(int, options.lengths.split(",")):
            chosen = list(harness.random_regions(fasta, length, options.regions, draw))
            rows = {region: count(harness.format_region(region)) for region in chosen}
            measured, wrong = measure_regions(asks, chosen, options.rounds, rows)
            title = f"Regions of {length:,} bases ({statistics.median(rows.values()):,.0f} reads)"
            raw[title] = {"measured": measured, "regions_with_other_rows": wrong}
            sections += [f"## {title}", "", *client_processes.markdown_table(measured, COMPETITOR), ""]
            sections += [f"{name} returned other rows for {number} of {len(chosen)} regions.\n" for name, number in wrong.items() if number]
            promised += targets(title[0].lower() + title[1:], measured)
        local.server = None
        local.run_job("close")
        for client in (tls, local, competitor):
            client.close()
    around = harness.measurement_context(options, godwit)
    around["versions"] |= client_processes.package_versions(interpreters["readers"], COMPETITOR, "polars") | client_processes.package_versions(
        interpreters["databases"], "pyarrow"
    )
    report = "\n".join(
        [
            "# Reads into Python by the package",
            "",
            f"{bam.stat().st_size / 1e6:.0f} MB of BAM, {options.regions} random regions of each length, {options.rounds} interleaved rounds;"
            f" {harness.format_host(around)}. {client_processes.format_versions(around)}.",
            "",
            "The value of a round for regions is the median over them.",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            *sections,
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("reads", options.results, report, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
