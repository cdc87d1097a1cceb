#!/usr/bin/env python3
"""Reads into Python by the package `godwit`: all of a BAM file and random regions, from its directory and over loopback TLS, beside polars-bio.

All return the same twelve columns as Arrow. The programs are warm, the file is in memory. `godwit.open` starts its own server for the directory, over
loopback without TLS; `godwit.connect` queries a server with TLS and a token. CPU seconds are those of the client and of the server. The report names each
client whose row count differs from `samtools view -c`.
"""

import os
import random
import statistics
import subprocess
from pathlib import Path

import _client_processes
import _measure as bench
from query import COLUMNS, regions, format_region

PACKAGE = bench.ROOT / "python" / "src"
LOCAL, TLS, COMPETITOR = "godwit.open", "godwit.connect, TLS", "polars-bio"


def write_certificate(folder):
    """Writes a self-signed certificate for this machine, and its key."""
    names = folder / "server.pem", folder / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-out", names[0], "-keyout", names[1]]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    bench.run_checked(command, stderr=subprocess.DEVNULL)
    return names


def create_token(godwit, tokens):
    done = subprocess.run([godwit, "token", "bench", "--tokens", tokens], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def measure_regions(asks, chosen, rounds, expected):
    """Returns each round's medians over all regions, by name, and the number of regions with other row counts."""
    measured, wrong = {name: [] for name in asks}, dict.fromkeys(asks, 0)
    order = random.Random(20261124)
    for round_number in range(rounds):
        found = {name: [] for name in asks}
        for region in chosen:
            names = list(asks)
            order.shuffle(names)
            for name in names:
                answer = asks[name](region)
                found[name].append(answer)
                wrong[name] += round_number == 0 and answer["rows"] != expected[region]
        for name, answers in found.items():
            measured[name].append({field: statistics.median(one[field] for one in answers) for field in ("wall_s", "cpu_s", "server_cpu_s")})
        bench.report_progress(f"regions: round {round_number + 1}")
    return measured, wrong


def targets(what, measured):
    yield bench.target(f"{what}, {LOCAL} over {COMPETITOR}", bench.ratios(measured[LOCAL], measured[COMPETITOR], "wall_s"), at_most=1)
    yield bench.target(f"{what}, {TLS} over {LOCAL}", bench.ratios(measured[TLS], measured[LOCAL], "wall_s"), at_most=1.5)


def main():
    parser = bench.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--regions", type=int, default=30, help="regions of each length (default: 30)")
    parser.add_argument("--lengths", default="10000,100000,1000000", help="bases of regions (default: 10000,100000,1000000)")
    options = parser.parse_args()
    bench.require_tools("samtools", "openssl")
    godwit = bench.godwit_binary(options)
    os.environ |= {"PYTHONPATH": str(PACKAGE), "GODWIT_PROGRAM": str(godwit)}
    fasta = bench.reference_fasta(options, godwit)
    bam = bench.aligned_bam(options, godwit, fasta, bench.simulated_reads(options, godwit, fasta, gzip=True)).resolve()
    bench.load_into_page_cache(bam)
    count = lambda *region: int(bench.first_output_line(["samtools", "view", "-c", str(bam), *region]))  # noqa: E731
    interpreters = {name: _client_processes.client_python(name) for name in ("readers", "databases")}
    private = _client_processes.scratch_directory("reads")
    folder = Path(private.name)
    (pem, key), tokens = write_certificate(folder), folder / "tokens"
    token = create_token(godwit, tokens)
    sections, promised, raw = [], [], {}
    with _client_processes.DataServer(godwit, bam.parent, "--tls-cert", pem, "--tls-key", key, "--tokens", tokens) as served:
        url = f"grpc+tls://{served.address}"
        tls = _client_processes.Client(interpreters["databases"], "godwit_package.py", url, bam.name, token, pem, server=served.pid)
        local = _client_processes.Client(interpreters["databases"], "godwit_package.py", bam.parent, bam.name)
        local.server = local.run_job("process")["process"]
        competitor = _client_processes.Client(interpreters["readers"], "readers.py", COMPETITOR, bam)
        asks = {
            LOCAL: lambda region=None: local.run_job("rows", columns=COLUMNS, region=region),
            TLS: lambda region=None: tls.run_job("rows", columns=COLUMNS, region=region),
            COMPETITOR: lambda region=None: competitor.run_job("rows", region=region),
        }
        expected = count()
        for name, ask in asks.items():
            if ask()["rows"] != expected:
                bench.exit_with_error(f"{name} does not return the {expected} reads of the file")
        measured = _client_processes.run_interleaved(options.rounds, asks, "all reads")
        raw["all reads"] = measured
        sections += [f"## All reads: {expected:,}", "", *_client_processes.markdown_table(measured, COMPETITOR), ""]
        promised += targets("all reads", measured)
        draw = random.Random(options.seed)
        for length in map(int, options.lengths.split(",")):
            chosen = list(regions(fasta, length, options.regions, draw))
            expected = {region: count(format_region(region)) for region in chosen}
            measured, wrong = measure_regions(asks, chosen, options.rounds, expected)
            title = f"Regions of {length:,} bases ({statistics.median(expected.values()):,.0f} reads)"
            raw[title] = {"measured": measured, "regions_with_other_rows": wrong}
            sections += [f"## {title}", "", *_client_processes.markdown_table(measured, COMPETITOR), ""]
            sections += [f"{name} returned other rows for {number} of {len(chosen)} regions.\n" for name, number in wrong.items() if number]
            promised += targets(title[0].lower() + title[1:], measured)
        local.server = None
        local.run_job("close")
        for client in (tls, local, competitor):
            client.close()
    around = bench.measurement_context(options, godwit)
    around["versions"] |= _client_processes.package_versions(interpreters["readers"], COMPETITOR, "polars") | _client_processes.package_versions(interpreters["databases"], "pyarrow")
    report = "\n".join([
        "# Reads into Python by the package",
        "",
        f"{bam.stat().st_size / 1e6:.0f} MB of BAM, {options.regions} random regions of each length, {options.rounds} interleaved rounds;"
        f" {bench.format_host(around)}. {_client_processes.format_versions(around)}.",
        "",
        "The value of a round for regions is the median over them.",
        "",
        *[f"- {bench.format_target(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.command_line()}`",
        "",
    ])
    bench.write_result("reads", options.results, report, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
