"""The cost of access rules: CPU seconds of a server for all reads of a BAM file, masked, beside the same server without rules.

Two warm servers of one directory, with the file in memory; pyarrow fetches over Flight. One server has no rules. The other has a rule
for each user: full access, pseudonyms instead of names, no names, rows by a condition, rows by regions that
contain them all. CPU seconds are the server's: the client does the same work in all cases.
"""

import functools
from collections.abc import Callable
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

WITHOUT_POLICY = "without rules"
# The maximum cost of a masked scan as a multiple of a scan without rules.
MAX_CPU_RATIO = 1.1
REGION_RULE = "rows by regions that hold all that are mapped"
# The access of each user as TOML, and its name.
RULES = {
    "everything, by a rule": "",
    "names as pseudonyms": 'mask = { name = "hash" }',
    "names redacted": 'mask = { name = "redact" }',
    "names cut to three letters": "mask = { name = { keep = 3 } }",
    "positions in steps of 1000": "mask = { position = { bin = 1000 } }",
    "rows by a condition that all meet": 'where = [{ column = "mapping_quality", at_least = 0 }]',
    REGION_RULE: 'regions = ["chr1", "chr2", "chr3"]',
}


def write_policy(folder: Path, godwit: Path) -> list[str]:
    """Writes a rule and a token for each user; returns the tokens in the order of the rules."""
    (folder / "key").write_bytes(bytes(range(32)))
    text, tokens = 'key = "key"\n', []
    for number, rule in enumerate(RULES.values()):
        text += f"[[rule]]\nname = 'r{number}'\nwho = ['c{number}']\ndatasets = ['**']\n{rule}\n"
        tokens.append(harness.create_token(godwit, f"c{number}", folder / "tokens"))
    (folder / "policy.toml").write_text(text)
    return tokens


def client_jobs(
    clients: dict[str, client_processes.Client], dataset: str, columns: list[str] | None, times: int
) -> dict[str, Callable[[], harness.Result]]:
    """Returns a job for each user: as many scans as a clock with ticks of 10 ms needs for a stable result."""

    def ask(client: client_processes.Client) -> harness.Result:
        answers = [client.run_job("flight", dataset=dataset, **({"columns": columns} if columns else {})) for _ in range(times)]
        sums = {field: sum(answer[field] for answer in answers) for field in ("wall_s", "cpu_s", "server_cpu_s", "rows")}
        # The compared field, as `markdown_table` and `ratios` name it.
        return sums | {"cpu_s": sums["server_cpu_s"]}

    return {name: functools.partial(ask, client) for name, client in clients.items()}


def result_rows(measured: harness.Rounds) -> dict[str, set[int]]:
    return {name: {answer["rows"] for answer in answers} for name, answers in measured.items()}


def check_row_counts(measured: harness.Rounds) -> None:
    """Fails unless every user received every read; reads without a position are in no region."""
    rows = result_rows(measured)
    all_rows = max(rows[WITHOUT_POLICY])
    if any(given != rows[WITHOUT_POLICY] and (name != REGION_RULE or min(given) < 0.99 * all_rows) for name, given in rows.items()):
        harness.exit_with_error(f"the users received different rows: {rows}")


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--times", type=int, default=3, help="scans in a round (default: 3)")
    options = parser.parse_args()
    harness.require_tools("samtools")
    godwit = harness.godwit_binary(options)
    _, bam = harness.simulated_bam(options, godwit)
    interpreter = client_processes.client_python("databases")
    folder = harness.scratch_directory(options, "rules")
    tokens = write_policy(folder, godwit)
    ruled = ["--tokens", folder / "tokens", "--policy", folder / "policy.toml"]
    sections, raw, promised = [], {}, []
    with client_processes.DataServer(godwit, bam.parent) as plain, client_processes.DataServer(godwit, bam.parent, *ruled) as served:
        clients = {WITHOUT_POLICY: client_processes.Client(interpreter, "flight_clients", plain.address, server=plain.pid)}
        for name, token in zip(RULES, tokens, strict=False):
            clients[name] = client_processes.Client(interpreter, "flight_clients", served.address, token, server=served.pid)
        for title, columns in {"All columns": None, "Twelve columns": harness.READ_COLUMNS, "Names and positions": ["name", "position"]}.items():
            asked = client_jobs(clients, bam.name, columns, options.times)
            for ask in asked.values():
                ask()
            measured = client_processes.run_interleaved(options.rounds, asked, title)
            check_row_counts(measured)
            sections += [f"## {title}", "", *client_processes.markdown_table(measured, WITHOUT_POLICY, 1, "s"), ""]
            raw[title] = measured
            for name in RULES:
                quotients = harness.ratios(measured[name], measured[WITHOUT_POLICY], "cpu_s")
                promised.append(harness.target(f"{title}, {name}, CPU of the server over that {WITHOUT_POLICY}", quotients, at_most=MAX_CPU_RATIO))
        for client in clients.values():
            client.close()
    around = harness.measurement_context(options, godwit)
    around["versions"] |= client_processes.package_versions(interpreter, "pyarrow")
    text = "\n".join(
        [
            "# Cost of access rules",
            "",
            f"{2 * options.pairs:,} reads, {bam.stat().st_size / 1e6:.0f} MB of BAM, {options.rounds} interleaved rounds of {options.times} "
            f"scans over Flight; {harness.format_host(around)}. {client_processes.format_versions(around)}.",
            "",
            "CPU seconds are the server's. Both servers return the same rows, except that a rule by regions omits reads without a position.",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            *sections,
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("rules", options.results, text, around, promised, {"measured": raw, "rules": RULES})


if __name__ == "__main__":
    main()
