"""The report of the path benchmark: measurements, targets and plots."""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes
from godwit_bench.network import cells, competitors
from godwit_bench.plots import draw_plots

SWEEPS = {
    "rtt": "round-trip time, ms",
    "rate": "rate, Mbit/s",
    "loss_per_s": "losses a second",
    "jitter": "jitter, share of the latency",
    "streams": "streams",
}
# The unit in which a copy verifies and resends data (docs/decisions/0017-copy-files-in-verified-blocks.md).
BLOCK_MIB = 0.25
# A measurement is invalid if the emulator is later than this share of the delay of its path.
LATE_SHARE = 0.05


def payload_percents(cell: cells.Cell) -> list[float]:
    """Returns the percentage of the payload rate in each run."""
    return [round(cells.percent_of(cell, seconds), 1) for seconds in cell["runs"]]


def ratios_to_best_competitor(cell: cells.Cell) -> list[float]:
    """Returns the ratio of each run to the best competitor; empty if no competitor has a result."""
    best = max((percent for percent in cell["peers_percent"].values() if percent), default=None)
    return [percent / best for percent in payload_percents(cell)] if best else []


def cell_name(cell: cells.Cell) -> str:
    return f"{cell['megabytes']} MiB, {cells.cell_title(cell)}"


def cell_target(cell: cells.Cell) -> Iterator[harness.Result]:
    """Returns the target of a cell that has a required percentage."""
    asked = min(cells.target_percent(cell), cell["bound_percent"])
    yield harness.target(f"{cell_name(cell)}, of the payload rate (bound {cell['bound_percent']})", payload_percents(cell), at_least=asked, unit="%")
    if ratios_to_best_competitor(cell):
        yield harness.target(f"{cell_name(cell)}, over the best peer", ratios_to_best_competitor(cell), at_least=1)


def cell_targets(found: list[harness.Result]) -> Iterator[harness.Result]:
    """Yields the targets of each cell with a required percentage, and one target for all other cells together."""
    for cell in filter(cells.target_percent, found):
        yield from cell_target(cell)
    others = [
        statistics.median(ratios_to_best_competitor(cell)) for cell in found if not cells.target_percent(cell) and ratios_to_best_competitor(cell)
    ]
    if others:
        yield harness.target(f"{len(others)} cells without a bar, over the best peer, the lowest of them", [min(others)], at_least=1)


def fairness_targets(found: harness.Result) -> Iterator[harness.Result]:
    where = f"queue {found['queue']}"
    if found["mode"] == "polite":
        yield harness.target(
            f"cubic flow beside polite, {where}, of its rate alone",
            [found["cubic_keeps_percent"]],
            at_least=90 if found["queue"] == "1bdp" else 60,
            unit="%",
        )
        if found["queue"] == "1bdp":
            yield harness.target("polite alone, of the link", [found["copy_alone_mbit_per_s"] / 2], at_least=88, unit="%")
    if found["mode"] == "fair":
        # Beside two flows of its kind, a flow would have a third of the rate.
        yield harness.target(f"cubic flow beside fair, {where}, of its rate alone", [found["cubic_keeps_percent"]], at_least=33.3, unit="%")


def fault_targets(faults: list[harness.Result]) -> Iterator[harness.Result]:
    points = [point for fault in faults if fault["fault"] == "killed" for point in fault["points"] if not point["ended_before"]]
    cuts = points + [fault for fault in faults if fault["fault"] == "outage"]
    if points:
        yield harness.target(
            f"{len(points)} ends killed, sent again at most", [max(point["sent_again_mib"] for point in points)], at_most=16, unit="MiB"
        )
    for end, what in (("server", "its return"), ("copy", "its second start")):
        on_after = [point["on_after_s"] or 1e9 for point in points if point["end"] == end]
        if on_after:
            yield harness.target(f"{len(on_after)} times the {end} killed, going on after {what} at the latest", [max(on_after)], at_most=2, unit="s")
    for fault in faults:
        if fault["fault"] == "outage":
            yield harness.target(f"no path for {fault['for_s']} s, going on after its return", [fault["on_after_s"] or 1e9], at_most=2, unit="s")
            yield harness.target(f"no path for {fault['for_s']} s, sent again", [fault["sent_again_mib"]], at_most=16, unit="MiB")
        if fault["fault"] == "flipped bits":
            # A block, and the messages around it.
            yield harness.target(
                f"{fault['flipped']} flipped bits, sent again for each", [fault["mib_for_each_flip"]], at_most=1.05 * BLOCK_MIB, unit="MiB"
            )
    if faults:
        wrong = sum(not one["right"] for one in [*points, *(fault for fault in faults if fault["fault"] != "killed")])
        yield harness.target(
            f"{len(cuts) + sum(fault['fault'] not in ('killed', 'outage') for fault in faults)} faults, ended otherwise than they should",
            [wrong],
            at_most=0,
        )


def local_targets(found: harness.Result) -> Iterator[harness.Result]:
    pipe = found["rounds"]["tee | b3sum"]
    for name in ("copy", "copy, TLS"):
        speeds = [other["wall_s"] / one["wall_s"] for one, other in zip(found["rounds"][name], pipe, strict=False)]
        yield harness.target(f"{found['gb']:.1f} GB over loopback, {found['medium']}, {name}, speed over that of tee | b3sum", speeds, at_least=0.8)


def targets(results: dict[str, list[harness.Result]]) -> Iterator[harness.Result]:
    yield from cell_targets(results["cells"])
    for found in results["files"]:
        yield harness.target(f"{found['count']} files of {found['size']} bytes, 1000 Mbit/s, 40 ms", found["runs"], at_most=2.0, unit="s")
        best = min((took for took in found["peers_s"].values() if took), default=None)
        if best:
            yield harness.target(f"{found['count']} files of {found['size']} bytes, speed over the best peer", [best / found["seconds"]], at_least=1)
    for found in results["sources"]:
        yield harness.target(
            f"{found['count']} sources of {found['rate']} Mbit/s, {found['megabytes']} MiB, of the sum (bound {found['bound_percent']})",
            [found["percent_of_sum"]],
            at_least=95,
            unit="%",
        )
    for found in results["third"]:
        quotients = [100 * direct / third for direct, third in zip(found["direct_runs"], found["third_runs"], strict=False)]
        yield harness.target(f"third party, {found['megabytes']} MiB, 1000 Mbit/s, 40 ms, of the direct rate", quotients, at_least=99, unit="%")
    for found in results["fairness"]:
        yield from fairness_targets(found)
    yield from fault_targets(results["faults"])
    for found in results["loopback"]:
        yield from local_targets(found)


def format_range(values: Sequence[float], places: int = 1) -> str:
    return f"{min(values):.{places}f} - {max(values):.{places}f}" if len(values) > 1 else ""


def cell_table(found: list[harness.Result]) -> list[str]:
    names = sorted({name for cell in found for name in cell["peers_percent"]})
    several_counts = len({cell["iperf3_streams"] for cell in found}) > 1
    heads = ["path", "MiB", "s", "%", "spread", "bound", "iperf3", *names, "late us", "load", "measured"]
    rows = []
    for cell in found:
        iperf = f"{cell['iperf3_percent']}" + (f" (x{cell['iperf3_streams']})" if several_counts else "")
        others = [cell["peers_percent"].get(name) or ("-" if name in cell["peers_percent"] else "") for name in names]
        rows.append(
            [
                cells.cell_title(cell),
                cell["megabytes"],
                f"{cell['seconds']:.2f}",
                cell["percent"],
                format_range(payload_percents(cell)),
                cell["bound_percent"],
                iperf,
                *others,
                cell["emulator_late_us_p99"],
                f"{cell['load']:.1f}",
                cell.get("commit", "earlier"),
            ]
        )
    return harness.plain_table(heads, rows)


def cells_by_group(found: list[harness.Result]) -> Iterator[list[str]]:
    """Groups the cells for the tables: the sweep of streams, long files, the factorial, and the rest."""
    known = {cells.cell_key(cell): cell for cell in found}
    seen = set()
    titles = {
        "bars": "One file, where bars are set",
        "sweeps": "One factor at a time",
        "streams": "By the number of streams",
        "real": "The two real paths of the study (9 hops, 15 hops), each as one bottleneck of its round trip",
        "square": "25 cells of the factorial",
        "long": f"One file of {cells.LONG_MEGABYTES} MiB",
        "full": "The rest of the factorial",
    }
    for medium in cells.STORAGE_MEDIA:
        for group, title in titles.items():
            keys = [key for key in map(cells.cell_key, cells.cells_of_groups([group], [medium])) if key in known and key not in seen]
            seen |= set(keys)
            if keys:
                where = ", from memory to memory" if medium == "memory" else ""
                yield [f"## {title}{where}", "", *cell_table([known[key] for key in dict.fromkeys(keys)])]
    others = [cell for key, cell in known.items() if key not in seen]
    if others:
        yield ["## Other cells", "", *cell_table(others)]


def fairness_table(rows: list[harness.Result]) -> list[str]:
    heads = ["mode", "queue", "cubic alone, Mbit/s", "beside the copy", "keeps", "its losses alone", "beside", "copy alone, Mbit/s", "beside cubic"]
    keys = (
        "mode",
        "queue",
        "cubic_alone_mbit_per_s",
        "cubic_beside_mbit_per_s",
        "cubic_keeps_percent",
        "cubic_retransmits_alone",
        "cubic_retransmits_beside",
        "copy_alone_mbit_per_s",
        "copy_beside_mbit_per_s",
    )
    return ["## Beside a flow of CUBIC, 200 Mbit/s, 40 ms", "", *harness.plain_table(heads, ([row[key] for key in keys] for row in rows))]


def files_table(rows: list[harness.Result]) -> list[str]:
    names = sorted({name for row in rows for name in row["peers_s"]})
    body = (
        [row["count"], row["size"], row["seconds"], format_range(row["runs"], 2), *(row["peers_s"].get(name) or "-" for name in names)]
        for row in rows
    )
    return [
        "## Many files, 1000 Mbit/s, 40 ms",
        "",
        *harness.plain_table(["files", "bytes each", "s", "spread", *(f"{name}, s" for name in names)], body),
    ]


def sources_table(rows: list[harness.Result]) -> list[str]:
    heads = ["sources", "Mbit/s each", "MiB", "s", "spread", "% of the sum", "bound", "one alone, s", "% of the rate of one alone, times all"]
    body = (
        [
            row["count"],
            row["rate"],
            row["megabytes"],
            row["seconds"],
            format_range(row["runs"], 2),
            row["percent_of_sum"],
            row["bound_percent"],
            row["one_source_s"],
            row["percent_of_one_source_alone_times_all"],
        ]
        for row in rows
    )
    return ["## Several sources, each over its own path of 40 ms", "", *harness.plain_table(heads, body)]


def third_party_table(rows: list[harness.Result]) -> list[str]:
    body = (
        [
            row["megabytes"],
            f"{statistics.median(row['direct_runs']):.2f}",
            format_range(row["direct_runs"], 2),
            f"{statistics.median(row['third_runs']):.2f}",
            format_range(row["third_runs"], 2),
            row["percent_of_direct"],
        ]
        for row in rows
    )
    heads = ["MiB", "direct, s", "spread", "from server to server, s", "spread", "% of the direct rate"]
    return ["## From one server to another, 1000 Mbit/s, 40 ms", "", *harness.plain_table(heads, body)]


def faults_table(faults: list[harness.Result]) -> list[str]:
    rows = []
    for end in ("copy", "server"):
        points = [
            point for fault in faults if fault["fault"] == "killed" for point in fault["points"] if point["end"] == end and not point["ended_before"]
        ]
        if points:
            again, after = [point["sent_again_mib"] for point in points], [point["on_after_s"] or float("inf") for point in points]
            lost = [point["arrived_not_kept_mib"] for point in points if point.get("arrived_not_kept_mib")]
            said = f"of what was sent again, had arrived: {statistics.median(lost)} MiB (at most {max(lost)})" if lost else ""
            rows.append(
                [
                    f"{end} killed at random points",
                    len(points),
                    sum(point["right"] for point in points),
                    f"{statistics.median(again):.1f} (at most {max(again)})",
                    f"{statistics.median(after):.2f} (at most {max(after):.2f})",
                    said,
                ]
            )
    for fault in faults:
        if fault["fault"] == "killed":
            continue
        sent_again = fault.get("sent_again_mib", fault.get("more_mib", ""))
        title = {
            "outage": f"no path for {fault.get('for_s')} s",
            "flipped bits": f"{fault.get('flipped')} flipped bits, TLS off: {fault.get('damaged')} blocks damaged",
        }
        said = f"exit {fault['exit']}: {fault['said'].removeprefix('godwit: error: ')}" if fault["exit"] else ""
        rows.append([title.get(fault["fault"], fault["fault"]), 1, int(fault["right"]), sent_again, fault.get("on_after_s", ""), said])
    heads = ["fault", "times", "as it should be", "sent again, MiB", "going on after, s", "remark"]
    return ["## Faults, 256 MiB, 1000 Mbit/s (bits: 500), 40 ms", "", *harness.plain_table(heads, rows)]


def local_tables(results: dict[str, list[harness.Result]]) -> list[str]:
    lines = []
    if results["loopback"]:
        rows = []
        for found in results["loopback"]:
            for name, rounds in found["rounds"].items():
                wall = [one["wall_s"] for one in rounds]
                rows.append(
                    [
                        found["medium"],
                        name,
                        f"{statistics.median(wall):.2f}",
                        format_range(wall, 2),
                        f"{found['gb'] / statistics.median(wall):.2f}",
                        f"{statistics.median(one['cpu_s'] for one in rounds) / found['gb']:.2f}",
                    ]
                )
        gb = results["loopback"][0]["gb"]
        lines += [
            f"## Loopback, {gb:.1f} GB in the page cache",
            "",
            *harness.plain_table(["medium", "tool", "s", "spread", "GB/s", "CPU s a GB"], rows),
        ]
    for found in results["cpu"]:
        rows = [
            [
                name,
                f"{statistics.median(one['cpu_s'] for one in rounds) / found['gb']:.2f}",
                format_range([one["cpu_s"] / found["gb"] for one in rounds], 2),
                f"{statistics.median(one['wall_s'] for one in rounds) / found['gb']:.2f}",
            ]
            for name, rounds in found["rounds"].items()
        ]
        lines += [
            f"## CPU of both ends over loopback, {found['gb']:.1f} GB from memory to memory",
            "",
            *harness.plain_table(["tool", "CPU s a GB", "spread", "wall s a GB"], rows),
        ]
    return lines


def sweep_plot(found: list[harness.Result], factor: str, label: str) -> harness.Result:
    """Returns the cells in which only one factor differs from the base cell."""
    usual = [cell for cell in found if all(cell[key] == value for key, value in cells.BASE.items() if key != factor) and cell[factor] != "auto"]
    usual.sort(key=lambda cell: cell[factor])
    iperf = "iperf3" if factor == "streams" else "iperf3 x16"
    lines = {"godwit": [[cell[factor], cell["percent"]] for cell in usual], iperf: [[cell[factor], cell["iperf3_percent"]] for cell in usual]}

    def called(name: str) -> str:
        return "GridFTP" if factor == "streams" else name

    for name in sorted({called(name) for cell in usual for name in cell["peers_percent"]}):
        points = [
            [cell[factor], percent]
            for cell in usual
            for competitor, percent in cell["peers_percent"].items()
            if called(competitor) == name and percent
        ]
        lines |= {name: points} if points else {}
    lines = {name: points for name, points in lines.items() if points}
    plot = {
        "name": f"transfer-{factor.replace('_', '-')}",
        "title": f"Share of the link by {label}",
        "x": label,
        "y": "% of the payload rate",
        "lines": lines,
    }
    return plot | ({"log": "x"} if factor == "streams" else {})


def remarks(results: dict[str, list[harness.Result]]) -> Iterator[str]:
    for cell in results["cells"]:
        quotients = ratios_to_best_competitor(cell)
        if quotients and not cells.target_percent(cell) and statistics.median(quotients) < 1:
            yield f"slower than the best competitor: {cell_name(cell)}, {statistics.median(quotients):.2f} of its rate."
    late = [cell for cell in results["cells"] if (cell["emulator_late_us_p99"] or 0) > LATE_SHARE * cell["rtt"] / 2 * 1e3]
    for cell in late:
        yield f"the emulator was late in {cells.cell_title(cell)}, by {cell['emulator_late_us_p99']} us: the measured rate may be too low."
    failed: dict[tuple[str, str], list[harness.Result]] = {}
    for cell in results["cells"]:
        for name, reason in cell.get("peers_why_not", {}).items():
            failed.setdefault((name, reason.rpartition(" ")[0] if reason.startswith("over") else reason), []).append(cell)
    for (name, reason), where in failed.items():
        yield f"{name} has no result in {len(where)} cells: {f'it takes {reason} s' if reason.startswith('over') else reason}."
    for name, reason in competitors.NOT_INSTALLED.items():
        yield f"{name} was not run: {reason}."


def write_report(options: argparse.Namespace, godwit: Path, results: dict[str, list[harness.Result]]) -> None:
    around, promised = harness.host_description(godwit), list(targets(results))
    plots = (sweep_plot(results["cells"], factor, label) for factor, label in SWEEPS.items())
    drawn = [plot for plot in plots if any(len(points) > 1 for points in plot["lines"].values())]
    versions = [
        harness.first_output_line(["aria2c", "--version"], "aria2"),
        harness.first_output_line(["globus-gridftp-server", "--version"]),
        harness.first_output_line(["rclone", "--version"]),
    ]
    parts = [("fairness", fairness_table), ("files", files_table), ("sources", sources_table), ("third", third_party_table), ("faults", faults_table)]
    text = "\n".join(
        [
            "# Copies over emulated long fat networks",
            "",
            f"{harness.format_host(around)}. {around['versions']['godwit']}, {harness.first_output_line(['iperf3', '--version'])}, "
            f"{', '.join(filter(None, versions))}; congestion control that users may take: "
            f"{Path('/proc/sys/net/ipv4/tcp_allowed_congestion_control').read_text().strip()}.",
            "",
            "By a user without privileges, TLS, tokens and BLAKE3, set-up included, `--mode fast` and no other option; from disk to disk "
            "unless stated otherwise, the medians of several copies if the row has a spread. Percentages are of the payload rate of TCP. The "
            "bound is the rate after handshakes and slow start. Both ends and the emulator share the cores. Competitors run once, in the same "
            "minutes as the copy; they do not verify, and only aria2 encrypts; `-`: see the remarks. `measured` is the commit of the "
            "measurement.",
            "",
            *[f"![{plot['title']}]({plot['name']}.svg)" for plot in drawn],
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            *[f"- {remark}" for remark in remarks(results)],
            "",
            *[line for group in cells_by_group(results["cells"]) for line in group],
            *[line for part, shown in parts if results[part] for line in shown(results[part])],
            *local_tables(results),
            "Command: `cargo xtask bench path`, as root; `--only`, `--cells` and `--minutes` measure a part, and the next run continues.",
            "",
        ]
    )
    harness.write_result("transfer", options.results, text, around, promised, {**results, "plots": drawn})
    draw_plots(client_processes.client_python("databases"), options.results / "transfer.json")
