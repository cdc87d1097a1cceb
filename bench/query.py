#!/usr/bin/env python3
"""Reads of random regions from a warm server, beside `samtools view REGION` and Python readers of BAM.

Each round runs every tool on the same regions. Tools that return Arrow return the columns that all of them support; samtools writes SAM to /dev/null.
Rows are counted: the report names each tool whose count differs from `samtools view -c`. `godwit query` and samtools are commands, started for each region;
the others are long-running programs, as notebooks and services are.
"""

import random
import statistics
import subprocess
import time

import _client_processes
import _measure as bench

COLUMNS = ["name", "flags", "contig", "position", "end_position", "mapping_quality", "cigar", "mate_contig", "mate_position",
           "template_length", "bases", "qualities"]
READERS = ["pysam", "polars-bio", "oxbow"]
SAMTOOLS_VIEW, SAMTOOLS_COUNT = "samtools view", "samtools view -c"


def regions(fasta, length, count, draw):
    """Returns random regions within contigs: contig, start and end, 0-based and half-open."""
    contigs = [(name, bases) for name, bases in bench.read_contigs(fasta) if bases > length]
    weights = [bases for _, bases in contigs]
    for name, bases in draw.choices(contigs, weights, k=count):
        start = draw.randrange(bases - length)
        yield name, start, start + length


def format_region(region):
    contig, start, end = region
    return f"{contig}:{start + 1}-{end}"


def time_command(args):
    """Returns the wall and CPU seconds of a command, and the number it prints."""
    found = _client_processes.time_process(args, stderr=subprocess.DEVNULL)
    return found | {"rows": int(found["last"]) if found["last"].isdigit() else None}


def competitors(godwit, bam, served, flight_client, readers):
    """Returns the competitors for rows and for counts: each maps a name to a function that takes a region and returns its time and result."""
    sql = f"FROM reads('{bam.name}') WHERE region('{{}}')"
    rows_of, count_of = f"SELECT {', '.join(COLUMNS)} {sql}", f"SELECT count(*) {sql}"
    query = [godwit, "query", "--quiet", "--data", bam.parent, "--format"]
    at = [godwit, "query", "--quiet", "--at", f"grpc://{served.address}", "--format"]
    knows_at = "--at" in subprocess.run([godwit, "query", "--help"], stdout=subprocess.PIPE, text=True).stdout

    def first_value(answer):
        return answer | {"rows": answer["first"]}

    rows = {
        SAMTOOLS_VIEW: lambda region: time_command(["samtools", "view", bam, format_region(region)]) | {"rows": None},
        "godwit serve, pyarrow Flight": lambda region: flight_client.run_job("flight", dataset=bam.name, columns=COLUMNS, regions=[format_region(region)]),
        "godwit serve, ADBC": lambda region: flight_client.run_job("sql", sql=rows_of.format(format_region(region))),
    }
    counts = {
        SAMTOOLS_COUNT: lambda region: time_command(["samtools", "view", "-c", bam, format_region(region)]),
        "godwit serve, ADBC": lambda region: first_value(flight_client.run_job("sql", sql=count_of.format(format_region(region)))),
    }
    for name, args in {"godwit query --at": at if knows_at else None, "godwit query": query}.items():
        if args:
            rows[name] = lambda region, args=args: time_command([*args, "arrow", rows_of.format(format_region(region))]) | {"rows": None}
            counts[name] = lambda region, args=args: time_command([*args, "csv", count_of.format(format_region(region))])
    for name, reader in readers.items():
        rows[f"{name}, warm"] = lambda region, reader=reader: reader.run_job("rows", region=region)
        counts[f"{name}, warm"] = lambda region, reader=reader: reader.run_job("count", region=region)
    return {"rows": rows, "count": counts}


def measure(asked, chosen, rounds, expected):
    """Returns the seconds of each tool in each round, the median over regions; and the regions with other row counts."""
    measured, wrong = {name: [] for name in asked}, {name: 0 for name in asked}
    for round_number in range(rounds):
        found = {name: [] for name in asked}
        for region in chosen:
            for name, ask in asked.items():
                answer = ask(region)
                found[name].append(answer)
                if round_number == 0 and answer["rows"] not in (None, expected[region]):
                    wrong[name] += 1
        for name, answers in found.items():
            measured[name].append({field: statistics.median(one[field] for one in answers) for field in ("wall_s", "cpu_s")})
    return measured, wrong


def table(measured, wrong, base):
    lines = [f"| tool | ms, median | spread of rounds | x {base} | CPU ms | regions with other rows |", "|---|---|---|---|---|---|"]
    for name, rounds in measured.items():
        wall, cpu = [1e3 * one["wall_s"] for one in rounds], statistics.median(1e3 * one["cpu_s"] for one in rounds)
        against = bench.median_ratio(rounds, measured[base], "wall_s")
        lines.append(f"| {name} | {statistics.median(wall):.1f} | {min(wall):.1f} - {max(wall):.1f} | {against:.2f} | {cpu:.1f} | {wrong[name]} |")
    return lines


def targets(kind, length, measured):
    base = SAMTOOLS_VIEW if kind == "rows" else SAMTOOLS_COUNT
    for name in measured:
        if name.startswith("godwit serve") or name == "godwit query --at":
            quotients = bench.ratios(measured[name], measured[base], "wall_s")
            yield bench.target(f"{kind} of a region of {length:,} bases, {name}, over {base}", quotients, at_most=2)


def main():
    parser = bench.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--regions", type=int, default=40, help="regions of each length (default: 40)")
    parser.add_argument("--lengths", default="1000,10000,100000", help="bases of regions (default: 1000,10000,100000)")
    options = parser.parse_args()
    bench.require_tools("samtools")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference_fasta(options, godwit)
    bam = bench.aligned_bam(options, godwit, fasta, bench.simulated_reads(options, godwit, fasta, gzip=True)).resolve()
    bench.load_into_page_cache(bam)
    interpreters = {name: _client_processes.client_python(name) for name in ("readers", "databases")}
    draw, sections, promised, raw = random.Random(options.seed), [], [], {}
    with _client_processes.DataServer(godwit, bam.parent) as served:
        flight_client = _client_processes.Client(interpreters["databases"], "flight_clients.py", served.address, server=served.pid)
        readers = {name: _client_processes.Client(interpreters["readers"], "readers.py", name, bam) for name in READERS}
        asked = competitors(godwit, bam, served, flight_client, readers)
        for length in map(int, options.lengths.split(",")):
            chosen = list(regions(fasta, length, options.regions, draw))
            expected = {region: time_command(["samtools", "view", "-c", bam, format_region(region)])["rows"] for region in chosen}
            reads = statistics.median(expected.values())
            for kind, tools in asked.items():
                started = time.monotonic()
                measured, wrong = measure(tools, chosen, options.rounds, expected)
                title = f"{'Reads' if kind == 'rows' else 'Number of reads'}, regions of {length:,} bases ({reads:.0f} reads)"
                sections += [f"## {title}", "", *table(measured, wrong, SAMTOOLS_VIEW if kind == "rows" else SAMTOOLS_COUNT), ""]
                promised += targets(kind, length, measured)
                raw[title] = {"measured": measured, "regions_with_other_rows": wrong}
                print(f"bench: {title}: {time.monotonic() - started:.0f} s")
        for client in (flight_client, *readers.values()):
            client.close()
    report(options, godwit, bam, interpreters, sections, promised, raw)


def report(options, godwit, bam, interpreters, sections, promised, raw):
    around = bench.measurement_context(options, godwit)
    around["versions"] |= _client_processes.package_versions(interpreters["readers"], *READERS)
    around["versions"] |= _client_processes.package_versions(interpreters["databases"], "pyarrow", "adbc-driver-flightsql")
    text_of = "\n".join([
        "# Regions of a BAM file",
        "",
        f"{options.regions} random regions of each length, {options.rounds} rounds, {bam.stat().st_size / 1e6:.0f} MB of BAM; {bench.format_host(around)}."
        f" {_client_processes.format_versions(around)}.",
        "",
        "The value of a round is the median over its regions. CPU is of both ends. Commands are started for each region, from Python.",
        "",
        *[f"- {bench.format_target(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.command_line()}`",
        "",
    ])
    bench.write_result("query", options.results, text_of, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
