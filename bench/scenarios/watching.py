"""The cost of observability for a server: scraped metrics and exported spans.

Two `godwit serve` of the same files, one of which exports spans (--otlp) to a collector that discards them. Two kinds of work, both by
pyarrow: fetching a whole table of a few columns, and calling GetFlightInfo for a dataset two thousand times, which is almost only the cost of the
call. The settings alternate: no scrapes, a scrape every second, ten scrapes a second, no scrapes with exported spans. Prometheus scrapes every 15
or 60 seconds. The counting of calls cannot be disabled, so all settings include it; scraper, collector and client use the same cores.
"""

import http.server
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable

from godwit_bench import harness
from godwit_bench.harness import client_processes

REQUESTS_PER_ROUND = 2000
SCRAPE_INTERVALS = {"no scrapes": None, "scraped every second": 1.0, "scraped ten times a second": 0.1, "spans are sent": None}


class SpanHandler(http.server.BaseHTTPRequestHandler):
    """Receives the spans of one request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, SpanCollector)
        self.server.bytes += len(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests += 1
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class SpanCollector(http.server.ThreadingHTTPServer):
    """A collector that receives spans and counts requests and bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SpanHandler)
        self.bytes = self.requests = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Scraper:
    """A thread that scrapes at an interval, and never if it is None; a context manager."""

    def __init__(self, address: str, seconds: float | None) -> None:
        self.url, self.seconds, self.over, self.scraped, self.bytes = f"http://{address}/metrics", seconds, threading.Event(), 0, 0
        self.thread = threading.Thread(target=self.scrape)

    def scrape(self) -> None:
        while self.seconds and not self.over.is_set():
            with urllib.request.urlopen(self.url) as answer:
                self.bytes = len(answer.read())
            self.scraped += 1
            self.over.wait(self.seconds)

    def __enter__(self) -> "Scraper":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default: 9)")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the fetched table (default: 10,000,000)")
    options = parser.parse_args()
    godwit = harness.godwit_binary(options)
    interpreter = client_processes.client_python("databases")
    root = harness.scratch_directory(options, "watching")
    code = (
        "import sys, pyarrow as pa, pyarrow.parquet as pq; n = "
        "int(sys.argv[2]);pq.write_table(pa.table({'a': range(n), 'b': [x % 97 for x in range(n)]}), sys.argv[1])"
    )
    harness.run_checked([interpreter, "-c", code, root / "table.parquet", options.rows])
    collector = SpanCollector()
    measured: dict[str, harness.Rounds] = {job: {arm: [] for arm in SCRAPE_INTERVALS} for job in ("fetch", "asks")}
    scrapes, scraped_bytes = dict.fromkeys(SCRAPE_INTERVALS, 0), 0
    spans = ["--otlp", f"http://127.0.0.1:{collector.server_port}"]
    with client_processes.DataServer(godwit, root) as plain, client_processes.DataServer(godwit, root, *spans) as traced:
        servers = {arm: traced if arm == "spans are sent" else plain for arm in SCRAPE_INTERVALS}
        clients = {one: client_processes.Client(interpreter, "flight_clients", one.address, server=one.pid) for one in (plain, traced)}
        jobs: dict[str, Callable[[client_processes.Client], harness.Result]] = {
            "fetch": lambda client: client.run_job("flight", dataset="table.parquet"),
            "asks": lambda client: client.run_job("info", datasets=["table.parquet"] * REQUESTS_PER_ROUND),
        }
        for client in clients.values():
            for job in jobs.values():
                job(client)
        for at in range(options.rounds):
            # Each round starts with a different setting.
            order = list(SCRAPE_INTERVALS)[at % len(SCRAPE_INTERVALS) :] + list(SCRAPE_INTERVALS)[: at % len(SCRAPE_INTERVALS)]
            for name, job in jobs.items():
                for arm in order:
                    with Scraper(servers[arm].address, SCRAPE_INTERVALS[arm]) as scraper:
                        measured[name][arm].append(job(clients[servers[arm]]))
                    scrapes[arm] += scraper.scraped
                    scraped_bytes = max(scraped_bytes, scraper.bytes)
            harness.report_progress(f"round {at + 1}: " + ", ".join(f"{arm} {measured['asks'][arm][-1]['wall_s']:.3f} s" for arm in SCRAPE_INTERVALS))
        for client in clients.values():
            client.close()
        time.sleep(1.5)
    around = harness.measurement_context(options, godwit)
    lines = ["| | fetch, wall s | of unwatched | asks, wall s | of unwatched | CPU s of the server for the asks |", "|---|---|---|---|---|---|"]

    def cells(job: str, arm: str) -> str:
        rounds, base = measured[job][arm], measured[job]["no scrapes"]
        quotients = harness.ratios(rounds, base, "wall_s")
        return f"{harness.median_field(rounds, 'wall_s'):.3f} | {statistics.median(quotients):.3f} ({min(quotients):.2f} - {max(quotients):.2f})"

    for arm in SCRAPE_INTERVALS:
        server = harness.median_field(measured["asks"][arm], "server_cpu_s")
        lines.append(f"| {arm} | {cells('fetch', arm)} | {cells('asks', arm)} | {server:.2f} |")
    text = "\n".join(
        [
            "# Cost of observability",
            "",
            __doc__.split("\n", 2)[2].strip(),
            "",
            f"A table of {options.rows:,} rows and two columns; {REQUESTS_PER_ROUND:,} requests; {options.rounds} rounds, medians of all and of "
            f"the ratios of each round, with minimum and maximum; {harness.format_host(around)}.",
            "",
            *lines,
            "",
            f"- Scrapes: {', '.join(f'{count} where {arm}' for arm, count in scrapes.items() if count)}; an answer has {scraped_bytes:,} bytes.",
            f"- Spans: {collector.requests} requests with {collector.bytes:,} bytes of JSON.",
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    more = {
        "measured": measured,
        "scrapes": scrapes,
        "scraped_bytes": scraped_bytes,
        "spans": {"requests": collector.requests, "bytes": collector.bytes},
    }
    harness.write_result("watching", options.results, text, around, [], more)


if __name__ == "__main__":
    main()
