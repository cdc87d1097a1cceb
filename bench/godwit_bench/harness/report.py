"""Results of a benchmark: targets, tables, the description of the host, and the files in `bench/results`."""

import argparse
import datetime
import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from godwit_bench.harness.command_line import command_line
from godwit_bench.harness.programs import first_output_line
from godwit_bench.harness.repository import ROOT
from godwit_bench.harness.result_types import Result, Rounds


def target(what: str, values: Iterable[float], at_most: float | None = None, at_least: float | None = None, unit: str = "") -> Result:
    """Returns a target of godwit: its description, the value of every round, and the bound for their median."""
    kept_values = list(values)
    median_value = statistics.median(kept_values)
    if at_least is not None:
        asked, kept = f"at least {at_least:g}", median_value >= at_least
    elif at_most is not None:
        asked, kept = f"at most {at_most:g}", median_value <= at_most
    else:
        raise ValueError(f"the target {what} has no bound")
    return {"what": what, "asked": asked, "unit": unit, "values": kept_values, "median": median_value, "kept": kept}


def ratios(rounds: list[Result], others: list[Result], field: str) -> list[float]:
    """Returns the ratio of each round. Both values of a round were measured under the same load."""
    return [one[field] / max(other[field], 1e-9) for one, other in zip(rounds, others, strict=False)]


def median_ratio(rounds: list[Result], others: list[Result], field: str) -> float:
    """Returns the median of the ratios."""
    return statistics.median(ratios(rounds, others, field))


def format_target(promised: Result) -> str:
    """Formats a target as a line of a report."""
    unit = f" {promised['unit']}" if promised["unit"] else ""
    values = promised["values"]
    spread_words = f"{min(values):.3g} - {max(values):.3g} in {len(values)} rounds; " if len(values) > 1 else ""
    outcome = "met" if promised["kept"] else "MISSED"
    return f"{promised['what']}: {promised['median']:.3g}{unit} ({spread_words}target: {promised['asked']}): {outcome}."


def median_field(rounds: list[Result], field: str) -> float:
    return float(statistics.median(result[field] for result in rounds))


def format_range(rounds: list[Result], field: str) -> str:
    values = [result[field] for result in rounds]
    return f"{min(values):.2f} - {max(values):.2f}"


def plain_table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Returns the lines of a Markdown table and an empty line."""
    return ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def markdown_table(measured: Rounds, base: str) -> str:
    """Returns a Markdown table; ratios are to the tool named `base`."""
    lines = [
        f"| tool | rounds | CPU s, median | spread | x {base} | wall s, median | spread | x {base} | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rounds in measured.items():
        cpu, wall = median_field(rounds, "cpu_s"), median_field(rounds, "wall_s")
        cpu_ratio = cpu / max(median_field(measured[base], "cpu_s"), 1e-9)
        wall_ratio = wall / max(median_field(measured[base], "wall_s"), 1e-9)
        peak = max(result["peak_bytes"] for result in rounds) / 2**20
        lines.append(
            f"| {name} | {len(rounds)} | {cpu:.2f} | {format_range(rounds, 'cpu_s')} | {cpu_ratio:.2f}"
            f" | {wall:.2f} | {format_range(rounds, 'wall_s')} | {wall_ratio:.2f} | {peak:.0f} |"
        )
    return "\n".join(lines)


def host_description(godwit: Path | str) -> Result:
    """Describes the host, the date and the version of godwit, which every result has to state."""
    processor = first_output_line(["grep", "-m1", "model name", "/proc/cpuinfo"]).partition(":")[2].strip()
    memory_kib = int(first_output_line(["grep", "MemTotal", "/proc/meminfo"]).split()[1])
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": first_output_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        "processor": processor or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
        "load_at_end": os.getloadavg()[0],
        "versions": {"godwit": first_output_line([str(godwit), "--version"])},
    }


def measurement_context(options: argparse.Namespace, godwit: Path) -> Result:
    """Extends the description of the host by the test data and the versions of the competitors."""
    around = host_description(godwit)
    # On stderr it prints the program that it selects for the processor.
    bwa_mem2 = first_output_line(["sh", "-c", "bwa-mem2 version 2>/dev/null"])
    peers = {
        "bwa": first_output_line(["bwa"], "Version"),
        "bwa-mem2": bwa_mem2 and f"bwa-mem2 {bwa_mem2}",
        "samtools": first_output_line(["samtools", "--version"]),
        "samblaster": first_output_line(["samblaster", "--version"]),
        "java": first_output_line(["java", "-version"]),
    }
    return around | {
        "pairs": options.pairs,
        "reference": options.reference.name if options.reference else f"simulated, {getattr(options, 'genome', 10)} Mb",
        "seed": options.seed,
        "threads": options.threads,
        "versions": around["versions"] | peers,
    }


def join_script_lines(script: str) -> str:
    """Joins the lines of a script to one command line."""
    commands = "; ".join(" ".join(line.split()) for line in script.strip().splitlines())
    return commands.replace("|; ", "| ")


def format_host(around: Result) -> str:
    """Formats the description of the host as one sentence."""
    return (
        f"{around['processor']}, {around['cores']} cores, {around['memory_gib']} GiB, Linux {around['kernel']}, load {around['load_at_end']:.1f};"
        f" {around['date']}, commit {around['commit']}"
    )


def write_comparison(
    name: str,
    title: str,
    options: argparse.Namespace,
    godwit: Path,
    scripts: dict[str, str],
    measured: Rounds,
    base: str,
    promises: Sequence[Result],
    remarks: Sequence[str],
) -> None:
    """Prints the result of the competitors and writes it as Markdown and JSON."""
    around = measurement_context(options, godwit)
    versions = ", ".join(version for version in around["versions"].values() if version)
    text = "\n".join(
        [
            f"# {title}",
            "",
            f"{around['pairs']:,} pairs, reference {around['reference']}, {around['threads']} threads; {format_host(around)}. {versions}.",
            "",
            markdown_table(measured, base),
            "",
            *[f"- {format_target(promised)}" for promised in promises],
            *[f"- {remark}" for remark in remarks],
            "",
            "Commands:",
            "",
            *[f"- {tool}: `{join_script_lines(script)}`" for tool, script in scripts.items()],
            "",
        ]
    )
    places = {options.cache.resolve(): "CACHE", godwit: "godwit", Path.home(): "~"}
    if options.reference:
        places[options.reference.resolve()] = options.reference.name
    for path, shown in places.items():
        text = text.replace(str(path), shown)
    write_result(name, options.results, text, around, promises, {"remarks": remarks, "rounds": measured})


def write_result(name: str, results: Path, text: str, around: Result, promises: Sequence[Result], more: Result) -> None:
    """Writes the result of a benchmark as Markdown and JSON, and prints the Markdown."""
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.md").write_text(text)
    details = {"circumstances": around, "command": command_line(), "promises": promises, **more}
    (results / f"{name}.json").write_text(json.dumps(details, indent=2) + "\n")
    print(text)
