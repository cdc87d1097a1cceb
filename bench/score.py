#!/usr/bin/env python3
"""Scoring a table through the service, beside the same model in the caller's process and behind JSON over HTTP.

XGBoost, 100 trees of depth 6. Each round asks every way for all rows in batches, then for rows one by one, then by several callers at a time.
Local scoring takes the same batches from Arrow into matrices of floats, which is what the library computes with. One row is scored by one
thread everywhere. The JSON service is FastAPI on uvicorn over a connection that is kept; once with Python's own json, and once with orjson at both
ends. All scores are the same.
"""

import os
import statistics
import subprocess

import _clients
import _measure as bench

PACKAGE = bench.ROOT / "python" / "src"
LOCAL, SERVICE, JSON, ORJSON = "local", "godwit.scoring", "JSON over HTTP", "JSON over HTTP, orjson"
WAYS = {LOCAL: "local", SERVICE: "service", JSON: "json", ORJSON: "orjson"}


class Started:
    """A service that prints where it is, for a `with`."""

    def __init__(self, interpreter, *words):
        self.process = subprocess.Popen([interpreter, *map(str, words)], stdout=subprocess.PIPE, text=True, cwd=_clients.CLIENTS)
        self.address = self.process.stdout.readline().split()[-1:]
        if not self.address:
            bench.fail(f"{words} did not start; see above")
        self.address = self.address[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def measure(options, clients):
    """Rounds of each way, by job."""
    jobs = {
        "batches": lambda client: client.ask("batches", rows=options.batch_rows),
        "row": lambda client: client.ask("row", calls=options.calls),
        "callers": lambda client: client.ask("callers", count=options.callers, calls=options.calls // options.callers),
    }
    measured = {job: {way: [] for way in clients} for job in jobs}
    for round_number in range(options.rounds + 1):
        for job, ask in jobs.items():
            for way, client in clients.items():
                if job == "callers" and way == LOCAL:
                    continue
                found = ask(client)
                # The first round only warms.
                if round_number > 0:
                    measured[job][way].append(found)
                    bench.progress(f"round {round_number}: {job}, {way}: {found}")
    for job in ("batches", "row"):
        sums = {way: round(rounds[0]["sum"], 1) for way, rounds in measured[job].items()}
        if len(set(sums.values())) > 1:
            bench.fail(f"not all ways give the same scores: {job}, {sums}")
    del measured["callers"][LOCAL]
    return measured


def tables(measured, options):
    yield f"## {options.rows:,} rows of {options.features} features, in batches of {options.batch_rows:,}\n"
    yield "| way | s, median | spread | x local | CPU s, both ends | rows / s |\n|---|---|---|---|---|---|"
    for way, rounds in measured["batches"].items():
        wall, against = bench.median(rounds, "wall_s"), bench.quotient(rounds, measured["batches"][LOCAL], "wall_s")
        cpu = bench.median(rounds, "cpu_s")
        yield f"| {way} | {wall:.3f} | {bench.spread(rounds, 'wall_s')} | {against:.2f} | {cpu:.2f} | {options.rows / wall:,.0f} |"
    yield f"\n## One row at a time, one caller, {options.calls:,} calls\n"
    yield "| way | ms, median | 99th percentile |\n|---|---|---|"
    for way, rounds in measured["row"].items():
        yield f"| {way} | {bench.median(rounds, 'median_ms'):.3f} | {bench.median(rounds, 'p99_ms'):.3f} |"
    yield f"\n## One row at a time, {options.callers} callers at a time\n"
    yield "| way | rows / s |\n|---|---|"
    for way, rounds in measured["callers"].items():
        yield f"| {way} | {bench.median(rounds, 'rows_per_s'):,.0f} |"


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the table (default: 500,000)")
    parser.add_argument("--features", type=int, default=20, help="columns of the table (default: 20)")
    parser.add_argument("--batch-rows", type=int, default=16_384, help="rows of a batch (default: 16,384)")
    parser.add_argument("--calls", type=int, default=1_000, help="calls for one row each (default: 1,000)")
    parser.add_argument("--callers", type=int, default=8, help="callers at a time (default: 8)")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(PACKAGE)
    interpreter = _clients.python("scoring")
    folder = bench.make(
        options.cache.resolve() / f"scoring-{options.rows}-{options.features}",
        lambda new: bench.run([interpreter, _clients.CLIENTS / "scoring_made.py", options.rows, options.features, new / "table.parquet", new / "model.ubj"]),
    )
    model, table = folder / "model.ubj", folder / "table.parquet"
    with (
        Started(interpreter, "-m", "godwit.scoring", model, "--listen", "127.0.0.1:0") as service,
        Started(interpreter, "json_service.py", model) as json_service,
    ):
        where = {LOCAL: model, SERVICE: service.address, JSON: json_service.address, ORJSON: json_service.address}
        servers = {SERVICE: service.process.pid, JSON: json_service.process.pid, ORJSON: json_service.process.pid}
        clients = {
            way: _clients.Client(interpreter, "scoring.py", word, where[way], table, server=servers.get(way)) for way, word in WAYS.items()
        }
        measured = measure(options, clients)
        for client in clients.values():
            client.close()
    batches = measured["batches"]
    promised = [
        bench.promise("batches, the service over local scoring", bench.quotients(batches[SERVICE], batches[LOCAL], "wall_s"), at_most=1.25),
        bench.promise("batches, JSON over HTTP over the service", bench.quotients(batches[JSON], batches[SERVICE], "wall_s"), at_least=10),
    ]
    around = bench.host(options.godwit or "godwit")
    around["versions"] |= _clients.versions(interpreter, "pyarrow", "xgboost-cpu", "fastapi", "uvicorn", "orjson")
    fastest = bench.quotients(batches[ORJSON], batches[SERVICE], "wall_s")
    text = "\n".join([
        "# Scoring: the service beside local scoring and JSON",
        "",
        f"XGBoost, 100 trees of depth 6, double precision in; {bench.machine(around)}. {_clients.version_words(around)}.",
        "",
        *tables(measured, options),
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        f"- With orjson at both ends, JSON takes {statistics.median(fastest):.1f} times as long as the service.",
        "",
    ])
    bench.write("score", options.results, text, around, promised, {"rounds": measured})


if __name__ == "__main__":
    main()
