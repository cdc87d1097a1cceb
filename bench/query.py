#!/usr/bin/env python3
"""Reads of random regions, from a server that is warm, beside `samtools view REGION` and what reads BAM in Python.

Each round asks every tool for the same regions. What gives Arrow gives the columns that all can give; samtools writes SAM into nothing.
Rows are counted: who gives others than `samtools view -c` is named. `godwit query` and samtools are commands, started anew for each region;
the others are programs that stay, as notebooks and services are.
"""

import random
import statistics
import subprocess
import time

import _clients
import _measure as bench

COLUMNS = ["name", "flags", "contig", "position", "end_position", "mapping_quality", "cigar", "mate_contig", "mate_position",
           "template_length", "bases", "qualities"]
READERS = ["pysam", "polars-bio", "oxbow"]
VIEW, COUNT = "samtools view", "samtools view -c"


def regions(fasta, length, count, draw):
    """Regions within contigs: contig, start and end, 0-based and half-open."""
    contigs = [(name, bases) for name, bases in bench.contigs(fasta) if bases > length]
    weights = [bases for _, bases in contigs]
    for name, bases in draw.choices(contigs, weights, k=count):
        start = draw.randrange(bases - length)
        yield name, start, start + length


def text(region):
    contig, start, end = region
    return f"{contig}:{start + 1}-{end}"


def command(words):
    """Wall and CPU seconds of a command, and the number it prints."""
    found = _clients.process(words, stderr=subprocess.DEVNULL)
    return found | {"rows": int(found["last"]) if found["last"].isdigit() else None}


def competitors(godwit, bam, served, node, readers):
    """Name -> what takes a region and gives what it took; by what is asked."""
    sql = f"FROM reads('{bam.name}') WHERE region('{{}}')"
    rows_of, count_of = f"SELECT {', '.join(COLUMNS)} {sql}", f"SELECT count(*) {sql}"
    query = [godwit, "query", "--quiet", "--data", bam.parent, "--format"]
    at = [godwit, "query", "--quiet", "--at", f"grpc://{served.address}", "--format"]
    knows_at = "--at" in subprocess.run([godwit, "query", "--help"], stdout=subprocess.PIPE, text=True).stdout

    def first(answer):
        return answer | {"rows": answer["first"]}

    rows = {
        VIEW: lambda region: command(["samtools", "view", bam, text(region)]) | {"rows": None},
        "godwit serve, pyarrow Flight": lambda region: node.ask("flight", dataset=bam.name, columns=COLUMNS, regions=[text(region)]),
        "godwit serve, ADBC": lambda region: node.ask("sql", sql=rows_of.format(text(region))),
    }
    counts = {
        COUNT: lambda region: command(["samtools", "view", "-c", bam, text(region)]),
        "godwit serve, ADBC": lambda region: first(node.ask("sql", sql=count_of.format(text(region)))),
    }
    for name, words in {"godwit query --at": at if knows_at else None, "godwit query": query}.items():
        if words:
            rows[name] = lambda region, words=words: command([*words, "arrow", rows_of.format(text(region))]) | {"rows": None}
            counts[name] = lambda region, words=words: command([*words, "csv", count_of.format(text(region))])
    for name, reader in readers.items():
        rows[f"{name}, warm"] = lambda region, reader=reader: reader.ask("rows", region=region)
        counts[f"{name}, warm"] = lambda region, reader=reader: reader.ask("count", region=region)
    return {"rows": rows, "count": counts}


def measure(asked, chosen, rounds, expected):
    """Seconds of each tool in each round, the median over regions; and the regions for which it gave other rows."""
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
        against = bench.quotient(rounds, measured[base], "wall_s")
        lines.append(f"| {name} | {statistics.median(wall):.1f} | {min(wall):.1f} - {max(wall):.1f} | {against:.2f} | {cpu:.1f} | {wrong[name]} |")
    return lines


def promises(kind, length, measured):
    base = VIEW if kind == "rows" else COUNT
    for name in measured:
        if name.startswith("godwit serve") or name == "godwit query --at":
            quotients = bench.quotients(measured[name], measured[base], "wall_s")
            yield bench.promise(f"{kind} of a region of {length:,} bases, {name}, over {base}", quotients, at_most=2)


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--regions", type=int, default=40, help="regions of each length (default: 40)")
    parser.add_argument("--lengths", default="1000,10000,100000", help="bases of regions (default: 1000,10000,100000)")
    options = parser.parse_args()
    bench.need("samtools")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference(options, godwit)
    bam = bench.aligned(options, godwit, fasta, bench.reads(options, godwit, fasta, gzip=True)).resolve()
    bench.into_page_cache(bam)
    interpreters = {name: _clients.python(name) for name in ("readers", "databases")}
    draw, sections, promised, raw = random.Random(options.seed), [], [], {}
    with _clients.Served(godwit, bam.parent) as served:
        node = _clients.Client(interpreters["databases"], "node.py", served.address, server=served.pid)
        readers = {name: _clients.Client(interpreters["readers"], "readers.py", name, bam) for name in READERS}
        asked = competitors(godwit, bam, served, node, readers)
        for length in map(int, options.lengths.split(",")):
            chosen = list(regions(fasta, length, options.regions, draw))
            expected = {region: command(["samtools", "view", "-c", bam, text(region)])["rows"] for region in chosen}
            reads = statistics.median(expected.values())
            for kind, tools in asked.items():
                started = time.monotonic()
                measured, wrong = measure(tools, chosen, options.rounds, expected)
                title = f"{'Reads' if kind == 'rows' else 'Number of reads'}, regions of {length:,} bases ({reads:.0f} reads)"
                sections += [f"## {title}", "", *table(measured, wrong, VIEW if kind == "rows" else COUNT), ""]
                promised += promises(kind, length, measured)
                raw[title] = {"measured": measured, "regions_with_other_rows": wrong}
                print(f"bench: {title}: {time.monotonic() - started:.0f} s")
        for client in (node, *readers.values()):
            client.close()
    report(options, godwit, bam, interpreters, sections, promised, raw)


def report(options, godwit, bam, interpreters, sections, promised, raw):
    around = bench.circumstances(options, godwit)
    around["versions"] |= _clients.versions(interpreters["readers"], *READERS)
    around["versions"] |= _clients.versions(interpreters["databases"], "pyarrow", "adbc-driver-flightsql")
    text_of = "\n".join([
        "# Regions of a BAM file",
        "",
        f"{options.regions} random regions of each length, {options.rounds} rounds, {bam.stat().st_size / 1e6:.0f} MB of BAM; {bench.machine(around)}."
        f" {_clients.version_words(around)}.",
        "",
        "Each round's figure is the median over its regions. CPU is of both ends. Commands are started anew for each region, from Python.",
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("query", options.results, text_of, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
