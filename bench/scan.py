#!/usr/bin/env python3
"""All reads of a BAM file as Arrow, and how many there are: CPU seconds beside polars-bio, pysam and oxbow.

All give the same twelve columns. The programs are warm, the file is in memory; CPU seconds are those of the client and, where there is one,
of the server. `godwit query` is a process of its own that writes an Arrow stream to a pipe, into nothing.
"""

import statistics
import subprocess

import _clients
import _measure as bench
from query import COLUMNS, READERS

ROWS_BASE, COUNT_BASE = "polars-bio", "polars-bio"
# What CPU seconds are held against: times as many as godwit's.
ASKED = {"polars-bio": 2, "pysam": 3}


def competitors(godwit, bam, node, readers):
    rows_of = f"SELECT {', '.join(COLUMNS)} FROM reads('{bam.name}')"
    count_of = f"SELECT count(*) FROM reads('{bam.name}')"
    # Which answers the index does not know: godwit has no need to read the file for the number of all reads.
    mapped = f"{count_of} WHERE mapping_quality >= 0"

    def query(sql, kind):
        return lambda: _clients.process([godwit, "query", "--quiet", "--data", bam.parent, "--format", kind, sql], stdout=subprocess.DEVNULL)

    rows = {
        "godwit query": query(rows_of, "arrow"),
        "godwit serve, pyarrow Flight": lambda: node.ask("flight", dataset=bam.name, columns=COLUMNS),
        "godwit serve, ADBC": lambda: node.ask("sql", sql=rows_of),
    }
    counts = {
        "godwit query": query(count_of, "csv"),
        "godwit serve, ADBC": lambda: node.ask("sql", sql=count_of),
        "godwit serve, ADBC, every read looked at": lambda: node.ask("sql", sql=mapped),
        "samtools view -c": lambda: _clients.process(["samtools", "view", "-c", bam], stdout=subprocess.DEVNULL),
    }
    for name, reader in readers.items():
        rows[name] = lambda reader=reader: reader.ask("rows")
        counts[name] = lambda reader=reader: reader.ask("count")
    return {"rows": rows, "count": counts}


def promises(measured):
    for name in ("godwit query", "godwit serve, pyarrow Flight", "godwit serve, ADBC"):
        for peer, times in ASKED.items():
            quotients = bench.quotients(measured[peer], measured[name], "cpu_s")
            yield bench.promise(f"BAM to Arrow, CPU of {peer} over {name}", quotients, at_least=times)


def check(measured, reads):
    """Everybody has to have given every read."""
    for name, answers in measured.items():
        for answer in answers:
            found = answer.get("first") or answer.get("rows")
            if found not in (None, reads):
                bench.fail(f"{name} gave {found} reads, not {reads}")


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    options = parser.parse_args()
    bench.need("samtools")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference(options, godwit)
    bam = bench.aligned(options, godwit, fasta, bench.reads(options, godwit, fasta, gzip=True)).resolve()
    bench.into_page_cache(bam)
    reads = int(bench.first_line(["samtools", "view", "-c", str(bam)]))
    interpreters = {name: _clients.python(name) for name in ("readers", "databases")}
    sections, raw, promised = [], {}, []
    with _clients.Served(godwit, bam.parent) as served:
        node = _clients.Client(interpreters["databases"], "node.py", served.address, server=served.pid)
        readers = {name: _clients.Client(interpreters["readers"], "readers.py", name, bam) for name in READERS}
        for kind, asked in competitors(godwit, bam, node, readers).items():
            for ask in asked.values():
                ask()
            measured = _clients.interleaved(options.rounds, asked, kind)
            check(measured, reads)
            title = "All reads, twelve columns" if kind == "rows" else "Number of reads"
            sections += [f"## {title}", "", *_clients.table(measured, ROWS_BASE if kind == "rows" else COUNT_BASE, 1, "s"), ""]
            raw[title] = measured
            promised += promises(measured) if kind == "rows" else []
        for client in (node, *readers.values()):
            client.close()
    around = bench.circumstances(options, godwit)
    around["versions"] |= _clients.versions(interpreters["readers"], *READERS, "polars", "pyarrow")
    rate = reads / statistics.median(answer["cpu_s"] for answer in raw["All reads, twelve columns"]["godwit query"])
    text = "\n".join([
        "# All reads of a BAM file as Arrow",
        "",
        f"{reads:,} reads, {bam.stat().st_size / 1e6:.0f} MB of BAM, {options.rounds} interleaved rounds; {bench.machine(around)}."
        f" {_clients.version_words(around)}.",
        "",
        f"CPU seconds are of both ends. `godwit query` gives {rate:,.0f} reads per CPU second. Where the index says how many reads there are, the file is"
        " not read to count them.",
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("scan", options.results, text, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
