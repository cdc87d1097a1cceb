"""All reads of a BAM file as Arrow, and their number: CPU seconds beside polars-bio, pysam and oxbow.

All return the same twelve columns. The programs are warm, the file is in memory; CPU seconds are those of the client and, if there is one,
of the server. `godwit query` is a separate process that writes an Arrow stream to a pipe whose data are discarded.
"""

import functools
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

ROWS_BASE, COUNT_BASE = "polars-bio", "polars-bio"
# The required CPU seconds as a multiple of godwit's.
REQUIRED_SPEEDUP = {"polars-bio": 2, "pysam": 3}


def competitors(
    godwit: Path, bam: Path, flight_client: client_processes.Client, readers: dict[str, client_processes.Client]
) -> dict[str, dict[str, Callable[[], harness.Result]]]:
    rows_of = f"SELECT {', '.join(harness.READ_COLUMNS)} FROM reads('{bam.name}')"
    count_of = f"SELECT count(*) FROM reads('{bam.name}')"
    # The index cannot answer this count. For the number of all reads, godwit does not read the file.
    mapped = f"{count_of} WHERE mapping_quality >= 0"

    def query(sql: str, kind: str) -> Callable[[], harness.Result]:
        return lambda: client_processes.time_process(
            [godwit, "query", "--quiet", "--data", bam.parent, "--format", kind, sql], stdout=subprocess.DEVNULL
        )

    rows = {
        "godwit query": query(rows_of, "arrow"),
        "godwit serve, pyarrow Flight": lambda: flight_client.run_job("flight", dataset=bam.name, columns=harness.READ_COLUMNS),
        "godwit serve, ADBC": lambda: flight_client.run_job("sql", sql=rows_of),
    }
    counts = {
        "godwit query": query(count_of, "csv"),
        "godwit serve, ADBC": lambda: flight_client.run_job("sql", sql=count_of),
        "godwit serve, ADBC, every read looked at": lambda: flight_client.run_job("sql", sql=mapped),
        "samtools view -c": lambda: client_processes.time_process(["samtools", "view", "-c", bam], stdout=subprocess.DEVNULL),
    }
    for name, reader in readers.items():
        rows[name] = functools.partial(reader.run_job, "rows")
        counts[name] = functools.partial(reader.run_job, "count")
    return {"rows": rows, "count": counts}


def targets(measured: harness.Rounds) -> Iterator[harness.Result]:
    for name in ("godwit query", "godwit serve, pyarrow Flight", "godwit serve, ADBC"):
        for competitor, times in REQUIRED_SPEEDUP.items():
            quotients = harness.ratios(measured[competitor], measured[name], "cpu_s")
            yield harness.target(f"BAM to Arrow, CPU of {competitor} over {name}", quotients, at_least=times)


def check_read_counts(measured: harness.Rounds, reads: int) -> None:
    """Fails unless every client received every read."""
    for name, answers in measured.items():
        for answer in answers:
            found = answer.get("first") or answer.get("rows")
            if found not in (None, reads):
                harness.exit_with_error(f"{name} returned {found} reads, expected {reads}")


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    options = parser.parse_args()
    harness.require_tools("samtools")
    godwit = harness.godwit_binary(options)
    _, bam = harness.simulated_bam(options, godwit)
    reads = int(harness.first_output_line(["samtools", "view", "-c", str(bam)]))
    interpreters = {name: client_processes.client_python(name) for name in ("readers", "databases")}
    sections: list[str] = []
    raw: dict[str, harness.Rounds] = {}
    promised: list[harness.Result] = []
    with client_processes.DataServer(godwit, bam.parent) as served:
        flight_client = client_processes.Client(interpreters["databases"], "flight_clients", served.address, server=served.pid)
        readers = {name: client_processes.Client(interpreters["readers"], "readers", name, bam) for name in harness.BAM_READERS}
        for kind, asked in competitors(godwit, bam, flight_client, readers).items():
            for ask in asked.values():
                ask()
            measured = client_processes.run_interleaved(options.rounds, asked, kind)
            check_read_counts(measured, reads)
            title = "All reads, twelve columns" if kind == "rows" else "Number of reads"
            sections += [f"## {title}", "", *client_processes.markdown_table(measured, ROWS_BASE if kind == "rows" else COUNT_BASE, 1, "s"), ""]
            raw[title] = measured
            promised += targets(measured) if kind == "rows" else []
        for client in (flight_client, *readers.values()):
            client.close()
    around = harness.measurement_context(options, godwit)
    around["versions"] |= client_processes.package_versions(interpreters["readers"], *harness.BAM_READERS, "polars", "pyarrow")
    rate = reads / statistics.median(answer["cpu_s"] for answer in raw["All reads, twelve columns"]["godwit query"])
    text = "\n".join(
        [
            "# All reads of a BAM file as Arrow",
            "",
            f"{reads:,} reads, {bam.stat().st_size / 1e6:.0f} MB of BAM, {options.rounds} interleaved rounds; {harness.format_host(around)}."
            f" {client_processes.format_versions(around)}.",
            "",
            f"CPU seconds are of both ends. `godwit query` returns {rate:,.0f} reads per CPU second. If the index has the number of reads, the "
            "file is not read to count them.",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            *sections,
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("scan", options.results, text, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
