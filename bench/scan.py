#!/usr/bin/env python3
"""All reads of a BAM file as Arrow, and their number: CPU seconds beside polars-bio, pysam and oxbow.

All return the same twelve columns. The programs are warm, the file is in memory; CPU seconds are those of the client and, if there is one,
of the server. `godwit query` is a separate process that writes an Arrow stream to a pipe whose data are discarded.
"""

import statistics
import subprocess

import _client_processes
import _measure as bench
from query import COLUMNS, READERS

ROWS_BASE, COUNT_BASE = "polars-bio", "polars-bio"
# The required CPU seconds as a multiple of godwit's.
REQUIRED_SPEEDUP = {"polars-bio": 2, "pysam": 3}


def competitors(godwit, bam, flight_client, readers):
    rows_of = f"SELECT {', '.join(COLUMNS)} FROM reads('{bam.name}')"
    count_of = f"SELECT count(*) FROM reads('{bam.name}')"
    # The index cannot answer this count. For the number of all reads, godwit does not read the file.
    mapped = f"{count_of} WHERE mapping_quality >= 0"

    def query(sql, kind):
        return lambda: _client_processes.time_process([godwit, "query", "--quiet", "--data", bam.parent, "--format", kind, sql], stdout=subprocess.DEVNULL)

    rows = {
        "godwit query": query(rows_of, "arrow"),
        "godwit serve, pyarrow Flight": lambda: flight_client.run_job("flight", dataset=bam.name, columns=COLUMNS),
        "godwit serve, ADBC": lambda: flight_client.run_job("sql", sql=rows_of),
    }
    counts = {
        "godwit query": query(count_of, "csv"),
        "godwit serve, ADBC": lambda: flight_client.run_job("sql", sql=count_of),
        "godwit serve, ADBC, every read looked at": lambda: flight_client.run_job("sql", sql=mapped),
        "samtools view -c": lambda: _client_processes.time_process(["samtools", "view", "-c", bam], stdout=subprocess.DEVNULL),
    }
    for name, reader in readers.items():
        rows[name] = lambda reader=reader: reader.run_job("rows")
        counts[name] = lambda reader=reader: reader.run_job("count")
    return {"rows": rows, "count": counts}


def targets(measured):
    for name in ("godwit query", "godwit serve, pyarrow Flight", "godwit serve, ADBC"):
        for competitor, times in REQUIRED_SPEEDUP.items():
            quotients = bench.ratios(measured[competitor], measured[name], "cpu_s")
            yield bench.target(f"BAM to Arrow, CPU of {competitor} over {name}", quotients, at_least=times)


def check_read_counts(measured, reads):
    """Fails unless every client received every read."""
    for name, answers in measured.items():
        for answer in answers:
            found = answer.get("first") or answer.get("rows")
            if found not in (None, reads):
                bench.exit_with_error(f"{name} returned {found} reads, expected {reads}")


def main():
    parser = bench.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    options = parser.parse_args()
    bench.require_tools("samtools")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference_fasta(options, godwit)
    bam = bench.aligned_bam(options, godwit, fasta, bench.simulated_reads(options, godwit, fasta, gzip=True)).resolve()
    bench.load_into_page_cache(bam)
    reads = int(bench.first_output_line(["samtools", "view", "-c", str(bam)]))
    interpreters = {name: _client_processes.client_python(name) for name in ("readers", "databases")}
    sections, raw, promised = [], {}, []
    with _client_processes.DataServer(godwit, bam.parent) as served:
        flight_client = _client_processes.Client(interpreters["databases"], "flight_clients.py", served.address, server=served.pid)
        readers = {name: _client_processes.Client(interpreters["readers"], "readers.py", name, bam) for name in READERS}
        for kind, asked in competitors(godwit, bam, flight_client, readers).items():
            for ask in asked.values():
                ask()
            measured = _client_processes.run_interleaved(options.rounds, asked, kind)
            check_read_counts(measured, reads)
            title = "All reads, twelve columns" if kind == "rows" else "Number of reads"
            sections += [f"## {title}", "", *_client_processes.markdown_table(measured, ROWS_BASE if kind == "rows" else COUNT_BASE, 1, "s"), ""]
            raw[title] = measured
            promised += targets(measured) if kind == "rows" else []
        for client in (flight_client, *readers.values()):
            client.close()
    around = bench.measurement_context(options, godwit)
    around["versions"] |= _client_processes.package_versions(interpreters["readers"], *READERS, "polars", "pyarrow")
    rate = reads / statistics.median(answer["cpu_s"] for answer in raw["All reads, twelve columns"]["godwit query"])
    text = "\n".join([
        "# All reads of a BAM file as Arrow",
        "",
        f"{reads:,} reads, {bam.stat().st_size / 1e6:.0f} MB of BAM, {options.rounds} interleaved rounds; {bench.format_host(around)}."
        f" {_client_processes.format_versions(around)}.",
        "",
        f"CPU seconds are of both ends. `godwit query` returns {rate:,.0f} reads per CPU second. If the index has the number of reads, the file is"
        " not read to count them.",
        "",
        *[f"- {bench.format_target(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.command_line()}`",
        "",
    ])
    bench.write_result("scan", options.results, text, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
