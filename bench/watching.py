#!/usr/bin/env python3
"""What it costs a server to be watched: metrics that are scraped, spans that are sent.

Two `godwit serve` of the same files, one of which sends spans (--otlp) to a collector that takes and drops them. Two kinds of work, both by
pyarrow: fetching a whole table of a few columns, and asking after a dataset (GetFlightInfo) two thousand times, which is nearly nothing but the
call. In turns: nobody scrapes, somebody scrapes every second, ten times a second, nobody scrapes and spans are sent. Prometheus scrapes every 15
or 60 seconds. That calls are counted at all cannot be switched off, and is in all of them; scraper, collector and client are on the same cores.
"""

import http.server
import statistics
import threading
import time
import urllib.request

import _clients
import _measure as bench

ASKED = 2000
ARMS = {"nobody scrapes": None, "scraped every second": 1.0, "scraped ten times a second": 0.1, "spans are sent": None}


class Collector(http.server.ThreadingHTTPServer):
    """Takes spans and counts requests and bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.server.bytes += len(self.rfile.read(int(self.headers["content-length"])))
            self.server.requests += 1
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.bytes = self.requests = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Scraper:
    """Scrapes every so many seconds, for a `with`; never where that is None."""

    def __init__(self, address, seconds):
        self.url, self.seconds, self.over, self.scraped, self.bytes = f"http://{address}/metrics", seconds, threading.Event(), 0, 0
        self.thread = threading.Thread(target=self.scrape)

    def scrape(self):
        while self.seconds and not self.over.is_set():
            with urllib.request.urlopen(self.url) as answer:
                self.bytes = len(answer.read())
            self.scraped += 1
            self.over.wait(self.seconds)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default: 9)")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table that is fetched (default: 10,000,000)")
    options = parser.parse_args()
    godwit = bench.godwit_binary(options)
    interpreter = _clients.python("databases")
    root = bench.scratch_directory(options, "watching")
    code = (
        "import sys, pyarrow as pa, pyarrow.parquet as pq; n = int(sys.argv[2]);"
        "pq.write_table(pa.table({'a': range(n), 'b': [x % 97 for x in range(n)]}), sys.argv[1])"
    )
    bench.run([interpreter, "-c", code, root / "table.parquet", options.rows])
    collector = Collector()
    measured = {job: {arm: [] for arm in ARMS} for job in ("fetch", "asks")}
    scrapes, scraped_bytes = {arm: 0 for arm in ARMS}, 0
    spans = ["--otlp", f"http://127.0.0.1:{collector.server_port}"]
    with _clients.Served(godwit, root) as plain, _clients.Served(godwit, root, *spans) as traced:
        servers = {arm: traced if arm == "spans are sent" else plain for arm in ARMS}
        clients = {one: _clients.Client(interpreter, "node.py", one.address, server=one.pid) for one in (plain, traced)}
        jobs = {
            "fetch": lambda client: client.ask("flight", dataset="table.parquet"),
            "asks": lambda client: client.ask("info", dataset="table.parquet", times=ASKED),
        }
        for client in clients.values():
            for job in jobs.values():
                job(client)
        for at in range(options.rounds):
            # Whoever is first in a round is another one each time.
            order = list(ARMS)[at % len(ARMS):] + list(ARMS)[: at % len(ARMS)]
            for name, job in jobs.items():
                for arm in order:
                    with Scraper(servers[arm].address, ARMS[arm]) as scraper:
                        measured[name][arm].append(job(clients[servers[arm]]))
                    scrapes[arm] += scraper.scraped
                    scraped_bytes = max(scraped_bytes, scraper.bytes)
            bench.progress(f"round {at + 1}: " + ", ".join(f"{arm} {measured['asks'][arm][-1]['wall_s']:.3f} s" for arm in ARMS))
        for client in clients.values():
            client.close()
        time.sleep(1.5)
    around = bench.circumstances(options, godwit)
    lines = ["| | fetch, wall s | of unwatched | asks, wall s | of unwatched | CPU s of the server for the asks |", "|---|---|---|---|---|---|"]

    def cells(job, arm):
        rounds, base = measured[job][arm], measured[job]["nobody scrapes"]
        quotients = bench.quotients(rounds, base, "wall_s")
        return f"{bench.median(rounds, 'wall_s'):.3f} | {statistics.median(quotients):.3f} ({min(quotients):.2f} - {max(quotients):.2f})"

    for arm in ARMS:
        server = bench.median(measured["asks"][arm], "server_cpu_s")
        lines.append(f"| {arm} | {cells('fetch', arm)} | {cells('asks', arm)} | {server:.2f} |")
    text = "\n".join([
        "# What it costs to be watched",
        "",
        __doc__.split("\n", 2)[2].strip(),
        "",
        f"A table of {options.rows:,} rows and two columns; {ASKED:,} questions; {options.rounds} rounds, medians of all and of the quotients of each round, with the least and the greatest; {bench.machine(around)}.",
        "",
        *lines,
        "",
        f"- Scrapes: {', '.join(f'{count} where {arm}' for arm, count in scrapes.items() if count)}; an answer has {scraped_bytes:,} bytes.",
        f"- Spans: {collector.requests} requests with {collector.bytes:,} bytes of JSON.",
        "",
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    more = {"measured": measured, "scrapes": scrapes, "scraped_bytes": scraped_bytes, "spans": {"requests": collector.requests, "bytes": collector.bytes}}
    bench.write("watching", options.results, text, around, [], more)


if __name__ == "__main__":
    main()
