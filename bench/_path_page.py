"""What was measured of copies over paths, held against what was asked, as a page with plots."""

import statistics
from pathlib import Path

import _clients
import _measure as bench
import _path_cells as cells
import _path_peers as peers

SWEEPS = {"rtt": "round-trip time, ms", "rate": "rate, Mbit/s", "loss_per_s": "losses a second", "jitter": "jitter, share of the latency", "streams": "streams"}
# What a copy verifies, and fetches again, as a whole (docs/decisions/0017-copy-files-in-verified-blocks.md).
BLOCK_MIB = 0.25
# An emulator that is later than this share of the delay of its path spoils what is measured.
LATE_SHARE = 0.05


def found_percents(cell):
    """Share of the payload rate in each run."""
    return [round(cells.percent_of(cell, seconds), 1) for seconds in cell["runs"]]


def over_best_peer(cell):
    """Quotient of each run, or nothing where no other program has a figure."""
    best = max((percent for percent in cell["peers_percent"].values() if percent), default=None)
    return [percent / best for percent in found_percents(cell)] if best else []


def cell_name(cell):
    return f"{cell['megabytes']} MiB, {cells.title_of(cell)}"


def bar_promises(cell):
    """Of a cell that a bar is set for."""
    asked = min(cells.bar_percent(cell), cell["bound_percent"])
    yield bench.promise(f"{cell_name(cell)}, of the payload rate (bound {cell['bound_percent']})", found_percents(cell), at_least=asked, unit="%")
    if over_best_peer(cell):
        yield bench.promise(f"{cell_name(cell)}, over the best peer", over_best_peer(cell), at_least=1)


def cell_promises(found):
    """Those of each cell with a bar, and one for all others together."""
    for cell in filter(cells.bar_percent, found):
        yield from bar_promises(cell)
    others = [statistics.median(over_best_peer(cell)) for cell in found if not cells.bar_percent(cell) and over_best_peer(cell)]
    if others:
        yield bench.promise(f"{len(others)} cells without a bar, over the best peer, the lowest of them", [min(others)], at_least=1)


def fairness_promises(found):
    where = f"queue {found['queue']}"
    if found["mode"] == "polite":
        yield bench.promise(f"cubic flow beside polite, {where}, of its rate alone", [found["cubic_keeps_percent"]], at_least=90 if found["queue"] == "1bdp" else 60, unit="%")
        if found["queue"] == "1bdp":
            yield bench.promise("polite alone, of the link", [found["copy_alone_mbit_per_s"] / 2], at_least=88, unit="%")
    if found["mode"] == "fair":
        # Beside two flows of its kind it would have a third.
        yield bench.promise(f"cubic flow beside fair, {where}, of its rate alone", [found["cubic_keeps_percent"]], at_least=33.3, unit="%")


def fault_promises(faults):
    points = [point for fault in faults if fault["fault"] == "killed" for point in fault["points"] if not point["ended_before"]]
    cuts = points + [fault for fault in faults if fault["fault"] == "outage"]
    if points:
        yield bench.promise(f"{len(points)} ends killed, sent again at most", [max(point["sent_again_mib"] for point in points)], at_most=16, unit="MiB")
    for end, what in (("server", "its return"), ("copy", "its second start")):
        on_after = [point["on_after_s"] or 1e9 for point in points if point["end"] == end]
        if on_after:
            yield bench.promise(f"{len(on_after)} times the {end} killed, going on after {what} at the latest", [max(on_after)], at_most=2, unit="s")
    for fault in faults:
        if fault["fault"] == "outage":
            yield bench.promise(f"no path for {fault['for_s']} s, going on after its return", [fault["on_after_s"] or 1e9], at_most=2, unit="s")
            yield bench.promise(f"no path for {fault['for_s']} s, sent again", [fault["sent_again_mib"]], at_most=16, unit="MiB")
        if fault["fault"] == "flipped bits":
            # A block, and the messages around it.
            yield bench.promise(f"{fault['flipped']} flipped bits, sent again for each", [fault["mib_for_each_flip"]], at_most=1.05 * BLOCK_MIB, unit="MiB")
    if faults:
        wrong = sum(not one["right"] for one in [*points, *(fault for fault in faults if fault["fault"] != "killed")])
        yield bench.promise(f"{len(cuts) + sum(fault['fault'] not in ('killed', 'outage') for fault in faults)} faults, ended otherwise than they should", [wrong], at_most=0)


def local_promises(found):
    pipe = found["rounds"]["tee | b3sum"]
    for name in ("copy", "copy, TLS"):
        speeds = [other["wall_s"] / one["wall_s"] for one, other in zip(found["rounds"][name], pipe)]
        yield bench.promise(f"{found['gb']:.1f} GB over loopback, {found['medium']}, {name}, speed over that of tee | b3sum", speeds, at_least=0.8)


def promises(results):
    yield from cell_promises(results["cells"])
    for found in results["files"]:
        yield bench.promise(f"{found['count']} files of {found['size']} bytes, 1000 Mbit/s, 40 ms", found["runs"], at_most=2.0, unit="s")
        best = min((took for took in found["peers_s"].values() if took), default=None)
        if best:
            yield bench.promise(f"{found['count']} files of {found['size']} bytes, speed over the best peer", [best / found["seconds"]], at_least=1)
    for found in results["sources"]:
        yield bench.promise(
            f"{found['count']} sources of {found['rate']} Mbit/s, {found['megabytes']} MiB, of the sum (bound {found['bound_percent']})",
            [found["percent_of_sum"]], at_least=95, unit="%")
    for found in results["third"]:
        quotients = [100 * direct / third for direct, third in zip(found["direct_runs"], found["third_runs"])]
        yield bench.promise(f"third party, {found['megabytes']} MiB, 1000 Mbit/s, 40 ms, of the direct rate", quotients, at_least=99, unit="%")
    for found in results["fairness"]:
        yield from fairness_promises(found)
    yield from fault_promises(results["faults"])
    for found in results["loopback"]:
        yield from local_promises(found)


def table(heads, rows):
    return ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def spread(values, places=1):
    return f"{min(values):.{places}f} - {max(values):.{places}f}" if len(values) > 1 else ""


def cell_table(found):
    names = sorted({name for cell in found for name in cell["peers_percent"]})
    several_counts = len({cell["iperf3_streams"] for cell in found}) > 1
    heads = ["path", "MiB", "s", "%", "spread", "bound", "iperf3", *names, "late us", "load", "measured"]
    rows = []
    for cell in found:
        iperf = f"{cell['iperf3_percent']}" + (f" (x{cell['iperf3_streams']})" if several_counts else "")
        others = [cell["peers_percent"].get(name) or ("-" if name in cell["peers_percent"] else "") for name in names]
        rows.append([cells.title_of(cell), cell["megabytes"], f"{cell['seconds']:.2f}", cell["percent"], spread(found_percents(cell)), cell["bound_percent"], iperf,
                     *others, cell["emulator_late_us_p99"], f"{cell['load']:.1f}", cell.get("commit", "earlier")])
    return table(heads, rows)


def cells_by_group(found):
    """Tables: the sweep of streams, long files, what is of the factorial, and the rest."""
    known = {cells.key_of(cell): cell for cell in found}
    seen = set()
    titles = {"bars": "One file, where bars are set", "sweeps": "One factor at a time", "streams": "By the number of streams", "real": "The two real paths of the study (9 hops, 15 hops), each as one bottleneck of its round trip",
              "square": "25 cells of the factorial", "long": f"One file of {cells.LONG_MEGABYTES} MiB", "full": "The rest of the factorial"}
    for medium in cells.MEDIA:
        for group, title in titles.items():
            keys = [key for key in map(cells.key_of, cells.named([group], [medium])) if key in known and key not in seen]
            seen |= set(keys)
            if keys:
                where = ", from memory to memory" if medium == "memory" else ""
                yield [f"## {title}{where}", "", *cell_table([known[key] for key in dict.fromkeys(keys)])]
    others = [cell for key, cell in known.items() if key not in seen]
    if others:
        yield ["## Other cells", "", *cell_table(others)]


def fairness_table(rows):
    heads = ["mode", "queue", "cubic alone, Mbit/s", "beside the copy", "keeps", "its losses alone", "beside", "copy alone, Mbit/s", "beside cubic"]
    keys = ("mode", "queue", "cubic_alone_mbit_per_s", "cubic_beside_mbit_per_s", "cubic_keeps_percent", "cubic_retransmits_alone",
            "cubic_retransmits_beside", "copy_alone_mbit_per_s", "copy_beside_mbit_per_s")
    return ["## Beside a flow of CUBIC, 200 Mbit/s, 40 ms", "", *table(heads, ([row[key] for key in keys] for row in rows))]


def files_table(rows):
    names = sorted({name for row in rows for name in row["peers_s"]})
    body = ([row["count"], row["size"], row["seconds"], spread(row["runs"], 2), *(row["peers_s"].get(name) or "-" for name in names)] for row in rows)
    return ["## Many files, 1000 Mbit/s, 40 ms", "", *table(["files", "bytes each", "s", "spread", *(f"{name}, s" for name in names)], body)]


def sources_table(rows):
    heads = ["sources", "Mbit/s each", "MiB", "s", "spread", "% of the sum", "bound", "one alone, s", "% of the rate of one alone, times all"]
    body = ([row["count"], row["rate"], row["megabytes"], row["seconds"], spread(row["runs"], 2), row["percent_of_sum"], row["bound_percent"], row["one_source_s"],
             row["percent_of_one_source_alone_times_all"]] for row in rows)
    return ["## Several sources, each over a path of its own of 40 ms", "", *table(heads, body)]


def third_table(rows):
    body = ([row["megabytes"], f"{statistics.median(row['direct_runs']):.2f}", spread(row["direct_runs"], 2), f"{statistics.median(row['third_runs']):.2f}",
             spread(row["third_runs"], 2), row["percent_of_direct"]] for row in rows)
    heads = ["MiB", "direct, s", "spread", "from server to server, s", "spread", "% of the direct rate"]
    return ["## From one server to another, 1000 Mbit/s, 40 ms", "", *table(heads, body)]


def faults_table(faults):
    rows = []
    for end in ("copy", "server"):
        points = [point for fault in faults if fault["fault"] == "killed" for point in fault["points"] if point["end"] == end and not point["ended_before"]]
        if points:
            again, after = [point["sent_again_mib"] for point in points], [point["on_after_s"] or float("inf") for point in points]
            lost = [point["arrived_not_kept_mib"] for point in points if point.get("arrived_not_kept_mib")]
            said = f"of what was sent again, had arrived: {statistics.median(lost)} MiB (at most {max(lost)})" if lost else ""
            rows.append([f"{end} killed at random points", len(points), sum(point["right"] for point in points), f"{statistics.median(again):.1f} (at most {max(again)})",
                         f"{statistics.median(after):.2f} (at most {max(after):.2f})", said])
    for fault in faults:
        if fault["fault"] == "killed":
            continue
        again = fault.get("sent_again_mib", fault.get("more_mib", ""))
        title = {"outage": f"no path for {fault.get('for_s')} s", "flipped bits": f"{fault.get('flipped')} flipped bits, TLS off: {fault.get('damaged')} blocks damaged"}
        said = f"exit {fault['exit']}: {fault['said'].removeprefix('godwit: error: ')}" if fault["exit"] else ""
        rows.append([title.get(fault["fault"], fault["fault"]), 1, int(fault["right"]), again, fault.get("on_after_s", ""), said])
    heads = ["fault", "times", "as it should be", "sent again, MiB", "going on after, s", "remark"]
    return ["## Faults, 256 MiB, 1000 Mbit/s (bits: 500), 40 ms", "", *table(heads, rows)]


def local_tables(results):
    lines = []
    if results["loopback"]:
        rows = []
        for found in results["loopback"]:
            for name, rounds in found["rounds"].items():
                wall = [one["wall_s"] for one in rounds]
                rows.append([found["medium"], name, f"{statistics.median(wall):.2f}", spread(wall, 2), f"{found['gb'] / statistics.median(wall):.2f}",
                             f"{statistics.median(one['cpu_s'] for one in rounds) / found['gb']:.2f}"])
        gb = results["loopback"][0]["gb"]
        lines += [f"## Loopback, {gb:.1f} GB in the page cache", "", *table(["medium", "tool", "s", "spread", "GB/s", "CPU s a GB"], rows)]
    for found in results["cpu"]:
        rows = [[name, f"{statistics.median(one['cpu_s'] for one in rounds) / found['gb']:.2f}", spread([one["cpu_s"] / found["gb"] for one in rounds], 2),
                 f"{statistics.median(one['wall_s'] for one in rounds) / found['gb']:.2f}"] for name, rounds in found["rounds"].items()]
        lines += [f"## CPU of both ends over loopback, {found['gb']:.1f} GB from memory to memory", "", *table(["tool", "CPU s a GB", "spread", "wall s a GB"], rows)]
    return lines


def sweep_plot(found, factor, label):
    """The cells in which only one factor is another than usual."""
    usual = [cell for cell in found if all(cell[key] == value for key, value in cells.BASE.items() if key != factor) and cell[factor] != "auto"]
    usual.sort(key=lambda cell: cell[factor])
    iperf = "iperf3" if factor == "streams" else "iperf3 x16"
    lines = {"godwit": [[cell[factor], cell["percent"]] for cell in usual], iperf: [[cell[factor], cell["iperf3_percent"]] for cell in usual]}
    called = lambda name: "GridFTP" if factor == "streams" else name
    for name in sorted({called(name) for cell in usual for name in cell["peers_percent"]}):
        points = [[cell[factor], percent] for cell in usual for peer, percent in cell["peers_percent"].items() if called(peer) == name and percent]
        lines |= {name: points} if points else {}
    lines = {name: points for name, points in lines.items() if points}
    plot = {"name": f"transfer-{factor.replace('_', '-')}", "title": f"Share of the link by {label}", "x": label, "y": "% of the payload rate", "lines": lines}
    return plot | ({"log": "x"} if factor == "streams" else {})


def remarks(results):
    for cell in results["cells"]:
        quotients = over_best_peer(cell)
        if quotients and not cells.bar_percent(cell) and statistics.median(quotients) < 1:
            yield f"behind the best peer: {cell_name(cell)}, {statistics.median(quotients):.2f} of it."
    late = [cell for cell in results["cells"] if (cell["emulator_late_us_p99"] or 0) > LATE_SHARE * cell["rtt"] / 2 * 1e3]
    for cell in late:
        yield f"the emulator was late in {cells.title_of(cell)}, by {cell['emulator_late_us_p99']} us: what was measured there may be too low."
    failed = {}
    for cell in results["cells"]:
        for name, reason in cell.get("peers_why_not", {}).items():
            failed.setdefault((name, reason.rpartition(" ")[0] if reason.startswith("over") else reason), []).append(cell)
    for (name, reason), where in failed.items():
        yield f"{name} has no figure in {len(where)} cells: {'it would have taken ' + reason + ' some seconds' if reason == 'over' else reason}."
    for name, reason in peers.NOT_RUN.items():
        yield f"{name} was not run: {reason}."


def write(options, godwit, results):
    around, promised = bench.host(godwit), list(promises(results))
    plots = (sweep_plot(results["cells"], factor, label) for factor, label in SWEEPS.items())
    drawn = [plot for plot in plots if any(len(points) > 1 for points in plot["lines"].values())]
    versions = [bench.first_line(["aria2c", "--version"], "aria2"), bench.first_line(["globus-gridftp-server", "--version"]), bench.first_line(["rclone", "--version"])]
    parts = [("fairness", fairness_table), ("files", files_table), ("sources", sources_table), ("third", third_table), ("faults", faults_table)]
    text = "\n".join([
        "# Copies over emulated long fat networks",
        "",
        f"{bench.machine(around)}. {around['versions']['godwit']}, {bench.first_line(['iperf3', '--version'])}, {', '.join(filter(None, versions))};"
        f" congestion control that users may take: {Path('/proc/sys/net/ipv4/tcp_allowed_congestion_control').read_text().strip()}.",
        "",
        "By a user without privileges, TLS, tokens and BLAKE3, set-up included, `--mode fast` and no other option; from disk to disk where nothing else is said, the medians"
        " of several copies where there is a spread. Percents are of the payload rate of TCP. The bound is what handshakes and slow start leave. Both ends and the emulator"
        " share the cores. Peers run in the same minutes as the copy, once; they neither verify nor, but for aria2, encrypt; `-`: see the remarks. `measured` is the commit"
        " that a line was measured at.",
        "",
        *[f"![{plot['title']}]({plot['name']}.svg)" for plot in drawn],
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        *[f"- {remark}" for remark in remarks(results)],
        "",
        *[line for group in cells_by_group(results["cells"]) for line in group],
        *[line for part, shown in parts if results[part] for line in shown(results[part])],
        *local_tables(results),
        "Command: `cargo xtask bench path`, as root; `--only`, `--cells` and `--minutes` do a part, and the next run goes on.",
        "",
    ])
    bench.write("transfer", options.results, text, around, promised, {**results, "plots": drawn})
    _clients.plot(_clients.python("databases"), options.results / "transfer.json")
