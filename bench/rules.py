#!/usr/bin/env python3
"""What rules cost: CPU seconds of a server for all reads of a BAM file, masked, beside the same server without rules.

Two servers of one directory, which are warm, the file in memory; pyarrow fetches over Flight. One server has no rules. The other has a rule
for each caller: who sees everything, who sees pseudonyms in place of names, no names, rows by a condition, rows by regions that
hold them all. CPU seconds are the server's: the client's are the same work in all of them.
"""

import subprocess

import _clients
import _measure as bench
from query import COLUMNS

WITHOUT = "without rules"
# What a masked scan may cost, times one without rules.
ALLOWED = 1.1
BY_REGIONS = "rows by regions that hold all that are mapped"
# What each caller sees, as TOML, and what that is called.
RULES = {
    "everything, by a rule": "",
    "names as pseudonyms": 'mask = { name = "hash" }',
    "names redacted": 'mask = { name = "redact" }',
    "names cut to three letters": "mask = { name = { keep = 3 } }",
    "positions in steps of 1000": "mask = { position = { bin = 1000 } }",
    "rows by a condition that all meet": 'where = [{ column = "mapping_quality", at_least = 0 }]',
    BY_REGIONS: 'regions = ["chr1", "chr2", "chr3"]',
}


def write_policy(folder, godwit):
    """A rule and a token for each caller; the tokens in the order of the rules."""
    (folder / "key").write_bytes(bytes(range(32)))
    text, tokens = 'key = "key"\n', []
    for number, rule in enumerate(RULES.values()):
        text += f"[[rule]]\nname = 'r{number}'\nwho = ['c{number}']\ndatasets = ['**']\n{rule}\n"
        made = [godwit, "token", f"c{number}", "--tokens", folder / "tokens"]
        tokens.append(subprocess.run(made, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    (folder / "policy.toml").write_text(text)
    return tokens


def asks(clients, dataset, columns, times):
    """For each caller, a scan as often as it takes for a clock with ticks of 10 ms to tell it."""
    def ask(client):
        answers = [client.ask("flight", dataset=dataset, **({"columns": columns} if columns else {})) for _ in range(times)]
        told = {field: sum(answer[field] for answer in answers) for field in ("wall_s", "cpu_s", "server_cpu_s", "rows")}
        # What is held against one another, as `table` and `quotients` name it.
        return told | {"cpu_s": told["server_cpu_s"]}

    return {name: lambda client=client: ask(client) for name, client in clients.items()}


def rows_of(measured):
    return {name: {answer["rows"] for answer in answers} for name, answers in measured.items()}


def check(measured):
    """Every caller has to have been given every read; those without a place are in no region."""
    rows = rows_of(measured)
    all_rows = max(rows[WITHOUT])
    if any(given != rows[WITHOUT] and (name != BY_REGIONS or min(given) < 0.99 * all_rows) for name, given in rows.items()):
        bench.fail(f"not everybody was given the same rows: {rows}")


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--times", type=int, default=3, help="scans in a round (default: 3)")
    options = parser.parse_args()
    bench.need("samtools")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference(options, godwit)
    bam = bench.aligned(options, godwit, fasta, bench.reads(options, godwit, fasta, gzip=True)).resolve()
    bench.into_page_cache(bam)
    interpreter = _clients.python("databases")
    folder = bench.scratch_directory(options, "rules")
    tokens = write_policy(folder, godwit)
    ruled = ["--tokens", folder / "tokens", "--policy", folder / "policy.toml"]
    sections, raw, promised = [], {}, []
    with _clients.Served(godwit, bam.parent) as plain, _clients.Served(godwit, bam.parent, *ruled) as served:
        clients = {WITHOUT: _clients.Client(interpreter, "node.py", plain.address, server=plain.pid)}
        for name, token in zip(RULES, tokens):
            clients[name] = _clients.Client(interpreter, "node.py", served.address, token, server=served.pid)
        for title, columns in {"All columns": None, "Twelve columns": COLUMNS, "Names and positions": ["name", "position"]}.items():
            asked = asks(clients, bam.name, columns, options.times)
            for ask in asked.values():
                ask()
            measured = _clients.interleaved(options.rounds, asked, title)
            check(measured)
            sections += [f"## {title}", "", *_clients.table(measured, WITHOUT, 1, "s"), ""]
            raw[title] = measured
            for name in RULES:
                quotients = bench.quotients(measured[name], measured[WITHOUT], "cpu_s")
                promised.append(bench.promise(f"{title}, {name}, CPU of the server over that {WITHOUT}", quotients, at_most=ALLOWED))
        for client in clients.values():
            client.close()
    around = bench.circumstances(options, godwit)
    around["versions"] |= _clients.versions(interpreter, "pyarrow")
    text = "\n".join([
        "# What rules cost",
        "",
        f"{2 * options.pairs:,} reads, {bam.stat().st_size / 1e6:.0f} MB of BAM, {options.rounds} interleaved rounds of {options.times} scans over Flight;"
        f" {bench.machine(around)}. {_clients.version_words(around)}.",
        "",
        "CPU seconds are the server's. Both servers give the same rows, but for those without a place where rows go by regions.",
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("rules", options.results, text, around, promised, {"measured": raw, "rules": RULES})


if __name__ == "__main__":
    main()
