"""The shuffle between workers of one machine: all-to-all throughput, stages, exposed communication; and iperf3 by message size.

First `godwit bench shuffle` for every number of workers and payload. Then two workers and messages from 256 B to 256 MB (2.6 GB with --large),
in interleaved rounds with iperf3: two workers fetch from each other at once, so iperf3 also runs in both directions at once, over the same
bytes, written in pieces of the message size up to its maximum of 1 MiB.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from godwit_bench import harness

MESSAGE_BYTES = [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20]
LARGE_MESSAGE_BYTES = 2_600_000_000
# Above this iperf3 rejects --length.
IPERF3_MAX_MESSAGE_BYTES = 1 << 20


def parse_arguments() -> argparse.Namespace:
    parser = harness.program_parser(__doc__)
    parser.add_argument("--nodes", default="1,2,4,8", help="numbers of workers (default: 1,2,4,8)")
    parser.add_argument("--bytes", default="64M,256M", help="payloads per worker (default: 64M,256M)")
    parser.add_argument("--message", default="2M", help="message size of the first part (default: 2M)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pair-bytes", type=int, default=256 << 20, help="bytes each way of the second part, at least a message (default: 256 MiB)")
    parser.add_argument("--large", action="store_true", help="messages of 2.6 GB too; takes 16 GB of memory")
    return parser.parse_args()


def measure_shuffle(godwit: Path, workers: int | str, size: int | str, message: int | str, rounds: int) -> list[harness.Result]:
    args = ["--nodes", workers, "--bytes", size, "--message", message, "--rounds", rounds, "--format", "json"]
    results: list[harness.Result] = harness.run_json([godwit, "bench", "shuffle", *args])
    return results


def measure_iperf3(port: int, size: int, message: int) -> float:
    """Returns the MB/s of the slower direction; both run at once."""
    args = ["--bytes", size, "--length", min(message, IPERF3_MAX_MESSAGE_BYTES), "--bidir", "--json"]
    end = harness.run_json(["iperf3", "--client", "127.0.0.1", "--port", port, *args])["end"]
    return float(min(end[direction]["bits_per_second"] for direction in ("sum_received", "sum_received_bidir_reverse"))) / 8e6


def measure_by_message_size(options: argparse.Namespace, godwit: Path) -> list[harness.Result]:
    """Returns the MB/s per worker of godwit and iperf3, by message size."""
    port = harness.free_port()
    server = subprocess.Popen(["iperf3", "--server", "--port", str(port)], stdout=subprocess.DEVNULL)
    measured = []
    try:
        time.sleep(1)
        for message in MESSAGE_BYTES + ([LARGE_MESSAGE_BYTES] if options.large else []):
            size = max(options.pair_bytes, message)
            rates = {"message_bytes": message, "bytes_each_way": size, "godwit": [], "iperf3": [], "cpu_s_per_gb": []}
            for _ in range(options.rounds):
                # Half of the data of a worker is for the other worker.
                result = measure_shuffle(godwit, 2, 2 * size, message, 1)[0]
                rates["godwit"].append(result["mb_per_s_per_node"])
                rates["cpu_s_per_gb"].append(result["cpu_s_per_gb"])
                rates["iperf3"].append(measure_iperf3(port, size, message))
            print(f"bench: messages of {message:,} bytes: godwit {rates['godwit']}, iperf3 {rates['iperf3']} MB/s", file=sys.stderr)
            measured.append(rates)
    finally:
        server.kill()
        server.wait()
    return measured


def all_to_all_table(results: list[harness.Result]) -> list[str]:
    lines = [
        "| nodes | MB per node | MB fetched per node | transfer s | MB/s per node | MB/s in all | CPU s/GB | make | connect | transfer | "
        "verify | exposed |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        stages = result["stages"]
        # A single worker fetches nothing.
        rates = [
            f"{result[key]:.{digits}f}" if result[key] is not None else "-"
            for key, digits in (("mb_per_s_per_node", 0), ("mb_per_s", 0), ("cpu_s_per_gb", 2))
        ]
        shares = [f"{100 * stages[stage]['share']:.0f} %" for stage in ("make", "connect", "transfer", "verify")]
        cells = [
            result["nodes"],
            f"{result['bytes_per_node'] / 1e6:.1f}",
            f"{result['fetched_bytes_per_node'] / 1e6:.1f}",
            f"{stages['transfer']['seconds']:.3f}",
            *rates,
            *shares,
            f"{100 * result['exposed_share']:.0f} %",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def message_table(measured: list[harness.Result]) -> list[str]:
    lines = [
        "| message bytes | godwit MB/s per node, median | spread | CPU s/GB | iperf3 MB/s, median | spread | x iperf3 |",
        "|---|---|---|---|---|---|---|",
    ]
    for rates in measured:
        own, competitor = statistics.median(rates["godwit"]), statistics.median(rates["iperf3"])
        spreads = {name: f"{min(rates[name]):.0f} - {max(rates[name]):.0f}" for name in ("godwit", "iperf3")}
        lines.append(
            f"| {rates['message_bytes']:,} | {own:.0f} | {spreads['godwit']} | {statistics.median(rates['cpu_s_per_gb']):.2f}"
            f" | {competitor:.0f} | {spreads['iperf3']} | {own / competitor:.2f} |"
        )
    return lines


def main() -> None:
    options = parse_arguments()
    harness.require_tools("iperf3")
    godwit = harness.godwit_binary(options)
    load = os.getloadavg()[0]
    results = measure_shuffle(godwit, options.nodes, options.bytes, options.message, options.rounds)
    measured = measure_by_message_size(options, godwit)
    around = harness.host_description(godwit) | {"load_at_start": load}
    text = "\n".join(
        [
            "# Shuffles between workers of one machine",
            "",
            f"{options.rounds} rounds, medians; {harness.format_host(around)}, at the start {load:.1f}. "
            f"{harness.first_output_line(['iperf3', '--version'])}.",
            "",
            "Every worker fetches its slice from every other at once, over loopback. Times are those of the slowest worker. Shares are those "
            "of the four",
            "steps; exposed is the time of a transfer with concurrent verification beyond the time of verification alone.",
            "",
            *all_to_all_table(results),
            "",
            "## Two workers by message size",
            "",
            "Both fetch from each other at once; iperf3 also runs in both directions at once, with writes of at most 1 MiB. It discards the "
            "received data,",
            "but a worker stores them in memory.",
            "",
            *message_table(measured),
            "",
        ]
    )
    harness.write_result("shuffle", options.results, text, around, [], {"all_to_all": results, "by_message": measured})


if __name__ == "__main__":
    main()
