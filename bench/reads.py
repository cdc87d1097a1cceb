#!/usr/bin/env python3
"""Reads into Python by the package `godwit`: all of a BAM file and random regions, from its directory and over loopback TLS, beside polars-bio.

All give the same twelve columns as Arrow. The programs are warm, the file is in memory. `godwit.open` starts a server of its own for the directory, over
loopback without TLS; `godwit.connect` asks one with TLS and a token. CPU seconds are those of the client and of the server. Who gives others than
`samtools view -c` counts is named.
"""

import os
import random
import statistics
import subprocess
from pathlib import Path

import _clients
import _measure as bench
from query import COLUMNS, regions, text

PACKAGE = bench.ROOT / "python" / "src"
LOCAL, TLS, PEER = "godwit.open", "godwit.connect, TLS", "polars-bio"


def certificate(folder):
    """A certificate for this machine that signs itself, and its key."""
    names = folder / "server.pem", folder / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-out", names[0], "-keyout", names[1]]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    bench.run(command, stderr=subprocess.DEVNULL)
    return names


def token_of(godwit, tokens):
    done = subprocess.run([godwit, "token", "bench", "--tokens", tokens], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def measure_regions(asks, chosen, rounds, expected):
    """Each round's medians over all regions, by name, and how many regions each gave other rows for."""
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
        bench.progress(f"regions: round {round_number + 1}")
    return measured, wrong


def promises(what, measured):
    yield bench.promise(f"{what}, {LOCAL} over {PEER}", bench.quotients(measured[LOCAL], measured[PEER], "wall_s"), at_most=1)
    yield bench.promise(f"{what}, {TLS} over {LOCAL}", bench.quotients(measured[TLS], measured[LOCAL], "wall_s"), at_most=1.5)


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--regions", type=int, default=30, help="regions of each length (default: 30)")
    parser.add_argument("--lengths", default="10000,100000,1000000", help="bases of regions (default: 10000,100000,1000000)")
    options = parser.parse_args()
    bench.need("samtools", "openssl")
    godwit = bench.godwit_binary(options)
    os.environ |= {"PYTHONPATH": str(PACKAGE), "GODWIT_PROGRAM": str(godwit)}
    fasta = bench.reference(options, godwit)
    bam = bench.aligned(options, godwit, fasta, bench.reads(options, godwit, fasta, gzip=True)).resolve()
    bench.into_page_cache(bam)
    count = lambda *region: int(bench.first_line(["samtools", "view", "-c", str(bam), *region]))  # noqa: E731
    interpreters = {name: _clients.python(name) for name in ("readers", "databases")}
    private = _clients.scratch_directory("reads")
    folder = Path(private.name)
    (pem, key), tokens = certificate(folder), folder / "tokens"
    token = token_of(godwit, tokens)
    sections, promised, raw = [], [], {}
    with _clients.Served(godwit, bam.parent, "--tls-cert", pem, "--tls-key", key, "--tokens", tokens) as served:
        url = f"grpc+tls://{served.address}"
        tls = _clients.Client(interpreters["databases"], "package.py", url, bam.name, token, pem, server=served.pid)
        local = _clients.Client(interpreters["databases"], "package.py", bam.parent, bam.name)
        local.server = local.ask("process")["process"]
        peer = _clients.Client(interpreters["readers"], "readers.py", PEER, bam)
        asks = {
            LOCAL: lambda region=None: local.ask("rows", columns=COLUMNS, region=region),
            TLS: lambda region=None: tls.ask("rows", columns=COLUMNS, region=region),
            PEER: lambda region=None: peer.ask("rows", region=region),
        }
        expected = count()
        for name, ask in asks.items():
            if ask()["rows"] != expected:
                bench.fail(f"{name} does not give the {expected} reads of the file")
        measured = _clients.interleaved(options.rounds, asks, "all reads")
        raw["all reads"] = measured
        sections += [f"## All reads: {expected:,}", "", *_clients.table(measured, PEER), ""]
        promised += promises("all reads", measured)
        draw = random.Random(options.seed)
        for length in map(int, options.lengths.split(",")):
            chosen = list(regions(fasta, length, options.regions, draw))
            expected = {region: count(text(region)) for region in chosen}
            measured, wrong = measure_regions(asks, chosen, options.rounds, expected)
            title = f"Regions of {length:,} bases ({statistics.median(expected.values()):,.0f} reads)"
            raw[title] = {"measured": measured, "regions_with_other_rows": wrong}
            sections += [f"## {title}", "", *_clients.table(measured, PEER), ""]
            sections += [f"{name} gave other rows for {number} of {len(chosen)} regions.\n" for name, number in wrong.items() if number]
            promised += promises(title[0].lower() + title[1:], measured)
        local.server = None
        local.ask("close")
        for client in (tls, local, peer):
            client.close()
    around = bench.circumstances(options, godwit)
    around["versions"] |= _clients.versions(interpreters["readers"], PEER, "polars") | _clients.versions(interpreters["databases"], "pyarrow")
    report = "\n".join([
        "# Reads into Python by the package",
        "",
        f"{bam.stat().st_size / 1e6:.0f} MB of BAM, {options.regions} random regions of each length, {options.rounds} interleaved rounds;"
        f" {bench.machine(around)}. {_clients.version_words(around)}.",
        "",
        "A round's figure for regions is the median over them.",
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("reads", options.results, report, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
