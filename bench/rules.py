#!/usr/bin/env python3
"""The cost of access rules: CPU seconds of a server for all reads of a BAM file, masked, beside the same server without rules.

Two warm servers of one directory, with the file in memory; pyarrow fetches over Flight. One server has no rules. The other has a rule
for each user: full access, pseudonyms instead of names, no names, rows by a condition, rows by regions that
contain them all. CPU seconds are the server's: the client does the same work in all cases.
"""

import subprocess

import _client_processes
import _measure as bench
from query import COLUMNS

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


def write_policy(folder, godwit):
    """Writes a rule and a token for each user; returns the tokens in the order of the rules."""
    (folder / "key").write_bytes(bytes(range(32)))
    text, tokens = 'key = "key"\n', []
    for number, rule in enumerate(RULES.values()):
        text += f"[[rule]]\nname = 'r{number}'\nwho = ['c{number}']\ndatasets = ['**']\n{rule}\n"
        made = [godwit, "token", f"c{number}", "--tokens", folder / "tokens"]
        tokens.append(subprocess.run(made, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    (folder / "policy.toml").write_text(text)
    return tokens


def client_jobs(clients, dataset, columns, times):
    """Returns a job for each user: as many scans as a clock with ticks of 10 ms needs for a stable result."""
    def ask(client):
        answers = [client.run_job("flight", dataset=dataset, **({"columns": columns} if columns else {})) for _ in range(times)]
        told = {field: sum(answer[field] for answer in answers) for field in ("wall_s", "cpu_s", "server_cpu_s", "rows")}
        # The compared field, as `markdown_table` and `ratios` name it.
        return told | {"cpu_s": told["server_cpu_s"]}

    return {name: lambda client=client: ask(client) for name, client in clients.items()}


def result_rows(measured):
    return {name: {answer["rows"] for answer in answers} for name, answers in measured.items()}


def check_row_counts(measured):
    """Fails unless every user received every read; reads without a position are in no region."""
    rows = result_rows(measured)
    all_rows = max(rows[WITHOUT_POLICY])
    if any(given != rows[WITHOUT_POLICY] and (name != REGION_RULE or min(given) < 0.99 * all_rows) for name, given in rows.items()):
        bench.exit_with_error(f"the users received different rows: {rows}")


def main():
    parser = bench.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--times", type=int, default=3, help="scans in a round (default: 3)")
    options = parser.parse_args()
    bench.require_tools("samtools")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference_fasta(options, godwit)
    bam = bench.aligned_bam(options, godwit, fasta, bench.simulated_reads(options, godwit, fasta, gzip=True)).resolve()
    bench.load_into_page_cache(bam)
    interpreter = _client_processes.client_python("databases")
    folder = bench.scratch_directory(options, "rules")
    tokens = write_policy(folder, godwit)
    ruled = ["--tokens", folder / "tokens", "--policy", folder / "policy.toml"]
    sections, raw, promised = [], {}, []
    with _client_processes.DataServer(godwit, bam.parent) as plain, _client_processes.DataServer(godwit, bam.parent, *ruled) as served:
        clients = {WITHOUT_POLICY: _client_processes.Client(interpreter, "flight_clients.py", plain.address, server=plain.pid)}
        for name, token in zip(RULES, tokens):
            clients[name] = _client_processes.Client(interpreter, "flight_clients.py", served.address, token, server=served.pid)
        for title, columns in {"All columns": None, "Twelve columns": COLUMNS, "Names and positions": ["name", "position"]}.items():
            asked = client_jobs(clients, bam.name, columns, options.times)
            for ask in asked.values():
                ask()
            measured = _client_processes.run_interleaved(options.rounds, asked, title)
            check_row_counts(measured)
            sections += [f"## {title}", "", *_client_processes.markdown_table(measured, WITHOUT_POLICY, 1, "s"), ""]
            raw[title] = measured
            for name in RULES:
                quotients = bench.ratios(measured[name], measured[WITHOUT_POLICY], "cpu_s")
                promised.append(bench.target(f"{title}, {name}, CPU of the server over that {WITHOUT_POLICY}", quotients, at_most=MAX_CPU_RATIO))
        for client in clients.values():
            client.close()
    around = bench.measurement_context(options, godwit)
    around["versions"] |= _client_processes.package_versions(interpreter, "pyarrow")
    text = "\n".join([
        "# Cost of access rules",
        "",
        f"{2 * options.pairs:,} reads, {bam.stat().st_size / 1e6:.0f} MB of BAM, {options.rounds} interleaved rounds of {options.times} scans over Flight;"
        f" {bench.format_host(around)}. {_client_processes.format_versions(around)}.",
        "",
        "CPU seconds are the server's. Both servers return the same rows, except that a rule by regions omits reads without a position.",
        "",
        *[f"- {bench.format_target(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.command_line()}`",
        "",
    ])
    bench.write_result("rules", options.results, text, around, promised, {"measured": raw, "rules": RULES})


if __name__ == "__main__":
    main()
