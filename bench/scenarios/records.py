"""Arrow Flight by streams and records, as in the published figures: 1 to 16 concurrent streams, 0.2 to 90 million records of 32 bytes in each.

Both ends are godwit's, as separate processes, over loopback and, if this runs as root, between two network namespaces with a pair of
virtual interfaces. Before each measurement, iperf3 sends over as many streams. Measurements that need more memory than `--most-bytes` are omitted:
all data is distinct and in memory before the clock starts. The benchmark `flight` measures one stream, other clients, TLS and other batches.
"""

import argparse
import os
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from godwit_bench import harness
from godwit_bench.harness import client_processes
from godwit_bench.plots import draw_plots

RECORD_BYTES = 32
METHODS = {"get": "DoGet", "put": "DoPut"}
# Addresses that no other interface of this machine is likely to have.
SERVER, CLIENT = "10.213.77.1", "10.213.77.2"


class Namespaces:
    """Two network namespaces with a veth pair between them; a context manager."""

    def __init__(self) -> None:
        self.server, self.client = f"godwit-a-{os.getpid()}", f"godwit-b-{os.getpid()}"

    def __enter__(self) -> "Namespaces":
        for name in (self.server, self.client):
            harness.run_checked(["ip", "netns", "add", name])
        harness.run_checked(["ip", "link", "add", "cable", "netns", self.server, "type", "veth", "peer", "name", "cable", "netns", self.client])
        for name, address in ((self.server, SERVER), (self.client, CLIENT)):
            for args in (["addr", "add", f"{address}/30", "dev", "cable"], ["link", "set", "cable", "up"], ["link", "set", "lo", "up"]):
                harness.run_checked(["ip", "-n", name, *args])
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self.server, self.client):
            harness.run_checked(["ip", "netns", "del", name])


class Network:
    """The namespaces and addresses of both ends."""

    def __init__(self, godwit: Path, namespaces: Namespaces | None = None) -> None:
        self.godwit, self.address = godwit, SERVER if namespaces else "127.0.0.1"
        self.port = harness.free_port()
        self.at_server = ["ip", "netns", "exec", namespaces.server] if namespaces else []
        self.at_client = ["ip", "netns", "exec", namespaces.client] if namespaces else []

    def start(self, command: harness.Command) -> subprocess.Popen[str]:
        words = [*self.at_server, *map(str, command)]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Network":
        self.iperf = self.start(["iperf3", "-s", "-p", self.port, "--forceflush"])
        harness.piped(self.iperf.stdout).readline()
        return self

    def __exit__(self, *_: object) -> None:
        self.iperf.terminate()
        self.iperf.wait()

    def run_json(self, command: harness.Command) -> Any:
        return harness.run_json([*self.at_client, *command])

    def measure_iperf3(self, streams: int) -> float:
        """Returns MB/s for a second. With a number of bytes instead of a time, iperf3 3.12 may never end with many streams."""
        args = ["-c", self.address, "-p", self.port, "-P", streams, "-t", 1, "-J"]
        return float(self.run_json(["iperf3", *args])["end"]["sum_received"]["bits_per_second"]) / 8e6

    def measure_flight(self, method: str, streams: int, count: int, rounds: int) -> harness.Result:
        """Returns the median and range of MB/s; the server is restarted, so that its memory is that of this measurement."""
        server = self.start([self.godwit, "bench", "flight", "--until-stdin-closes", "--listen", f"{self.address}:0"])
        address = harness.piped(server.stdout).readline().strip().removeprefix("listening on ").removeprefix("tcp:")
        try:
            args = ["--method", method, "--streams", streams, "--bytes", count, "--rounds", rounds, "--format", "json"]
            found: harness.Result = self.run_json([self.godwit, "bench", "flight", "--at", address, *args])[0]
            return found
        finally:
            harness.piped(server.stdin).close()
            server.wait()


def measure(network: Network, options: argparse.Namespace, name: str) -> list[harness.Result]:
    """Returns the measurements, one for each method, number of streams and number of records."""
    results = []
    for streams in options.streams:
        iperf = [network.measure_iperf3(streams) for _ in range(options.rounds)]
        for records in options.records:
            count = int(records * 1e6) * streams * RECORD_BYTES
            if count > options.most_bytes:
                continue
            for method in METHODS:
                found = network.measure_flight(method, streams, count, options.rounds)
                found |= {"records": records, "iperf3_mb_per_s": statistics.median(iperf), "iperf3": iperf}
                results.append(found)
                harness.report_progress(
                    f"{name}: {METHODS[method]}, {streams} streams of {records:g} million records: {found['mb_per_s']:.0f} MB/s,"
                    f" iperf3 {found['iperf3_mb_per_s']:.0f} MB/s"
                )
    return results


def table(results: list[harness.Result]) -> list[str]:
    lines = ["| method | streams | million records each | GB | MB/s, median | spread | iperf3 MB/s | x iperf3 |", "|---|---|---|---|---|---|---|---|"]
    lines += [
        f"| {METHODS[found['method']]} | {found['streams']} | {found['records']:g} | {found['bytes'] / 1e9:.2f} | {found['mb_per_s']:.0f}"
        f" | {found['mb_per_s_slowest']:.0f} - {found['mb_per_s_fastest']:.0f} | {found['iperf3_mb_per_s']:.0f}"
        f" | {found['mb_per_s'] / found['iperf3_mb_per_s']:.2f} |"
        for found in results
    ]
    return lines


def plots(sections: dict[str, list[harness.Result]]) -> Iterator[harness.Result]:
    for network, results in sections.items():
        for method, called in METHODS.items():
            lines: dict[str, list[list[float]]] = {}
            for found in results:
                if found["method"] == method:
                    lines.setdefault(f"{found['streams']} streams", []).append([found["records"], found["mb_per_s"]])
                    lines.setdefault(f"iperf3, {found['streams']} streams", []).append([found["records"], found["iperf3_mb_per_s"]])
            lines = {name: points for name, points in lines.items() if not name.startswith("iperf3") or " 1 " in name or " 16 " in name}
            yield {
                "name": f"records-{'loopback' if network == 'Loopback' else 'namespaces'}-{method}",
                "title": f"{called}, {network.lower()}",
                "x": "million records of 32 bytes in each stream",
                "y": "MB/s",
                "log": "x",
                "bold": list("0123456789"),
                "lines": lines,
            }


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each kind (default: 3)")
    parser.add_argument("--streams", type=harness.comma_separated(int), default="1,2,4,8,16", help="(default: 1,2,4,8,16)")
    parser.add_argument(
        "--records", type=harness.comma_separated(float), default="0.2,1,10,30,60,90", help="million records of a stream (default: 0.2,1,10,30,60,90)"
    )
    parser.add_argument("--most-bytes", type=int, default=6 << 30, help="maximum bytes of one measurement (default: 6 GiB)")
    options = parser.parse_args()
    harness.require_tools("iperf3", "ip")
    godwit = harness.godwit_binary(options)
    sections = {}
    with Network(godwit) as network:
        sections["Loopback"] = measure(network, options, "loopback")
    if os.getuid() == 0:
        with Namespaces() as namespaces, Network(godwit, namespaces) as network:
            sections["Between two namespaces"] = measure(network, options, "between namespaces")
    else:
        harness.report_progress("skipped: only root may create network namespaces")
    around, drawn = harness.host_description(godwit), list(plots(sections))
    text = "\n".join(
        [
            "# Flight by streams and records",
            "",
            f"Records of {RECORD_BYTES} bytes, 65,536 in a batch, {options.rounds} rounds, iperf3 with default settings for a second before "
            f"each number of streams; {harness.format_host(around)}. {around['versions']['godwit']}, "
            f"{harness.first_output_line(['iperf3', '--version'])}. Measurements of more than {options.most_bytes / 1e9:.1f} GB were omitted. "
            "Of an even number of rounds the faster one in the middle is reported. iperf3 sends one buffer again and again; Flight sends "
            "distinct batches from memory. All ends share the cores.",
            "",
            *[f"![{figure['title']}]({figure['name']}.svg)" for figure in drawn],
            "",
            *(line for name, results in sections.items() for line in (f"## {name}", "", *table(results), "")),
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("records", options.results, text, around, [], {"measured": sections, "plots": drawn})
    draw_plots(client_processes.client_python("databases"), options.results / "records.json")


if __name__ == "__main__":
    main()
