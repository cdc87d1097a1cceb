"""Scoring a table through the service, beside the same model in the client's process and behind JSON over HTTP.

XGBoost, 100 trees of depth 6. Each round measures every transport for all rows in batches, then for rows one by one, then for several concurrent
threads. Local scoring converts the same batches from Arrow to matrices of floats, the type that the library computes with. One thread scores one
row everywhere. The JSON service is FastAPI on uvicorn over a persistent connection; once with Python's own json, and once with orjson at both
ends. All scores are the same.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator

from godwit_bench import harness
from godwit_bench.harness import client_processes

LOCAL, SERVICE, JSON, ORJSON = "local", "godwit.scoring", "JSON over HTTP", "JSON over HTTP, orjson"
TRANSPORTS = {LOCAL: "local", SERVICE: "service", JSON: "json", ORJSON: "orjson"}


def measure(options: argparse.Namespace, clients: dict[str, client_processes.Client]) -> dict[str, harness.Rounds]:
    """Measures the rounds of each transport, by job."""
    jobs: dict[str, Callable[[client_processes.Client], harness.Result]] = {
        "batches": lambda client: client.run_job("batches", rows=options.batch_rows),
        "row": lambda client: client.run_job("row", calls=options.calls),
        "callers": lambda client: client.run_job("callers", count=options.callers, calls=options.calls // options.callers),
    }
    measured: dict[str, harness.Rounds] = {job: {transport: [] for transport in clients} for job in jobs}
    for round_number in range(options.rounds + 1):
        for job, ask in jobs.items():
            for transport, client in clients.items():
                if job == "callers" and transport == LOCAL:
                    continue
                found = ask(client)
                # The first round is a warm-up.
                if round_number > 0:
                    measured[job][transport].append(found)
                    harness.report_progress(f"round {round_number}: {job}, {transport}: {found}")
    for job in ("batches", "row"):
        sums = {transport: round(rounds[0]["sum"], 1) for transport, rounds in measured[job].items()}
        if len(set(sums.values())) > 1:
            harness.exit_with_error(f"the transports return different scores: {job}, {sums}")
    del measured["callers"][LOCAL]
    return measured


def tables(measured: dict[str, harness.Rounds], options: argparse.Namespace) -> Iterator[str]:
    yield f"## {options.rows:,} rows of {options.features} features, in batches of {options.batch_rows:,}\n"
    yield "| way | s, median | spread | x local | CPU s, both ends | rows / s |\n|---|---|---|---|---|---|"
    for transport, rounds in measured["batches"].items():
        wall, against = harness.median_field(rounds, "wall_s"), harness.median_ratio(rounds, measured["batches"][LOCAL], "wall_s")
        cpu = harness.median_field(rounds, "cpu_s")
        yield f"| {transport} | {wall:.3f} | {harness.format_range(rounds, 'wall_s')} | {against:.2f} | {cpu:.2f} | {options.rows / wall:,.0f} |"
    yield f"\n## One row at a time, one caller, {options.calls:,} calls\n"
    yield "| way | ms, median | 99th percentile |\n|---|---|---|"
    for transport, rounds in measured["row"].items():
        yield f"| {transport} | {harness.median_field(rounds, 'median_ms'):.3f} | {harness.median_field(rounds, 'p99_ms'):.3f} |"
    yield f"\n## One row at a time, {options.callers} callers at a time\n"
    yield "| way | rows / s |\n|---|---|"
    for transport, rounds in measured["callers"].items():
        yield f"| {transport} | {harness.median_field(rounds, 'rows_per_s'):,.0f} |"


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the table (default: 500,000)")
    parser.add_argument("--features", type=int, default=20, help="columns of the table (default: 20)")
    parser.add_argument("--batch-rows", type=int, default=16_384, help="rows of a batch (default: 16,384)")
    parser.add_argument("--calls", type=int, default=1_000, help="calls of one row each (default: 1,000)")
    parser.add_argument("--callers", type=int, default=8, help="concurrent threads (default: 8)")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(harness.PYTHON_PACKAGE)
    interpreter = client_processes.client_python("scoring")
    folder = harness.build_once(
        options.cache.resolve() / f"scoring-{options.rows}-{options.features}",
        lambda new: harness.run_checked(
            [interpreter, client_processes.CLIENTS / "make_scoring_data.py", options.rows, options.features, new / "table.parquet", new / "model.ubj"]
        ),
    )
    model, table = folder / "model.ubj", folder / "table.parquet"
    with (
        client_processes.AddressServer([interpreter, "-m", "godwit.scoring", str(model), "--listen", "127.0.0.1:0"]) as service,
        client_processes.AddressServer(client_processes.client_command(interpreter, "json_service", model)) as json_service,
    ):
        where = {LOCAL: model, SERVICE: service.address, JSON: json_service.address, ORJSON: json_service.address}
        servers = {SERVICE: service.pid, JSON: json_service.pid, ORJSON: json_service.pid}
        clients = {
            transport: client_processes.Client(interpreter, "scoring", word, where[transport], table, server=servers.get(transport))
            for transport, word in TRANSPORTS.items()
        }
        measured = measure(options, clients)
        for client in clients.values():
            client.close()
    batches = measured["batches"]
    promised = [
        harness.target("batches, the service over local scoring", harness.ratios(batches[SERVICE], batches[LOCAL], "wall_s"), at_most=1.25),
        harness.target("batches, JSON over HTTP over the service", harness.ratios(batches[JSON], batches[SERVICE], "wall_s"), at_least=10),
    ]
    around = harness.host_description(options.godwit or "godwit")
    around["versions"] |= client_processes.package_versions(interpreter, "pyarrow", "xgboost-cpu", "fastapi", "uvicorn", "orjson")
    fastest = harness.ratios(batches[ORJSON], batches[SERVICE], "wall_s")
    text = "\n".join(
        [
            "# Scoring: the service beside local scoring and JSON",
            "",
            f"XGBoost, 100 trees of depth 6, double precision in; {harness.format_host(around)}. {client_processes.format_versions(around)}.",
            "",
            *tables(measured, options),
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            f"- With orjson at both ends, JSON takes {statistics.median(fastest):.1f} times as long as the service.",
            "",
        ]
    )
    harness.write_result("score", options.results, text, around, promised, {"rounds": measured})


if __name__ == "__main__":
    main()
