"""Datasets with unique cells (marks), random access rules for clients, and an independent evaluation of what the rules show."""

import collections
import json
import os
import random
import re
import struct

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

CLIENTS = 10
ROWS = 80
CONTIGS = ["chr1", "chr2", "chr3"]
DATA_USES = ["GRU", "HMB", "DS"]
# The two highest bytes of all marks that are numbers; no other number has them.
NUMBER_MARK_HIGH_BYTES = 0x5A51
TEXT_MARK_PATTERN = re.compile(rb"zq[a-z0-9]{10}")
NUMBER_MARK_PATTERN = re.compile(rb"(?=(.{6}\x51\x5a))", re.DOTALL)
DIGITS_MARK_PATTERN = re.compile(rb"(?<!\d)65\d{17}(?!\d)")


def unique_text(draw):
    return "zq" + "".join(draw.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(10))


def unique_number(draw):
    return (NUMBER_MARK_HIGH_BYTES << 48) + draw.getrandbits(47) * 2 + 1


def write_datasets(root, seed):
    draw = random.Random(int(seed))
    os.makedirs(f"{root}/sub")
    for kind in ["csv", "arrow", "parquet"]:
        table = random_table(draw)
        if kind == "csv":
            write_csv(f"{root}/sub/t.csv", table)
        elif kind == "arrow":
            write_arrow(f"{root}/t.arrow", table)
        else:
            os.makedirs(f"{root}/t.parquet")
            for part in range(2):
                piece = table.slice(part * ROWS // 2, ROWS // 2)
                pyarrow.parquet.write_table(piece, f"{root}/t.parquet/{part}.parquet", row_group_size=16)
    write_bed(f"{root}/b.bed", draw)
    write_sam(f"{root}/r.sam", draw)
    write_vcf(f"{root}/v.vcf", draw)
    with open(f"{root}/c.chain", "w", encoding="utf8") as out:
        print("chain 1 chr1 200000 + 0 150000 chr9 200000 - 1000 151000 1\n150000", file=out)
    with open(f"{root}/notes.txt", "w", encoding="utf8") as out:
        out.write(unique_text(draw))


def random_table(draw):
    starts = sorted((draw.choice(CONTIGS), draw.randrange(100_000)) for _ in range(ROWS))
    return pyarrow.table(
        {
            "contig": pyarrow.array([contig for contig, _ in starts], pyarrow.string()),
            "position": pyarrow.array([start for _, start in starts], pyarrow.int64()),
            "end_position": pyarrow.array([start + draw.randrange(1, 3000) for _, start in starts], pyarrow.int64()),
            "subject": pyarrow.array([unique_text(draw) for _ in starts], pyarrow.string()),
            "note": pyarrow.array([unique_text(draw) if draw.random() < 0.9 else None for _ in starts], pyarrow.string()),
            "number": pyarrow.array([unique_number(draw) for _ in starts], pyarrow.int64()),
            "use": pyarrow.array([draw.choice(DATA_USES) for _ in starts], pyarrow.string()),
            "age": pyarrow.array([draw.randrange(100) for _ in starts], pyarrow.int64()),
        }
    )


def write_csv(path, table):
    with open(path, "w", encoding="utf8") as out:
        print(*table.column_names, sep=",", file=out)
        for row in table.to_pylist():
            print(*["" if value is None else value for value in row.values()], sep=",", file=out)


def write_arrow(path, table):
    """Writes types whose values are stored apart from their rows."""
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    columns["subject"] = columns["subject"].dictionary_encode()
    columns["note"] = columns["note"].cast(pyarrow.string_view())
    columns["tags"] = pyarrow.array([[value.as_py()[::-1].replace("qz", "")[:3]] for value in table["subject"]])
    whole = pyarrow.table(columns)
    with pyarrow.ipc.new_file(path, whole.schema) as out:
        out.write_table(whole, max_chunksize=32)


def write_bed(path, draw):
    with open(path, "w", encoding="utf8") as out:
        for _ in range(ROWS):
            start = draw.randrange(100_000)
            print(draw.choice(CONTIGS), start, start + draw.randrange(1, 3000), unique_text(draw), sep="\t", file=out)


def write_sam(path, draw):
    with open(path, "w", encoding="utf8") as out:
        print("@HD\tVN:1.6\tSO:coordinate", file=out)
        for contig in CONTIGS:
            print(f"@SQ\tSN:{contig}\tLN:200000", file=out)
        print("@RG\tID:g\tSM:first", file=out)
        print(f"@CO\t{unique_text(draw)}", file=out)
        for contig, start in sorted((draw.choice(CONTIGS), draw.randrange(100_000)) for _ in range(ROWS)):
            bases = "".join(draw.choice("ACGT") for _ in range(50))
            tags = f"RG:Z:g\tXX:Z:{unique_text(draw)}"
            print(unique_text(draw), 0, contig, start + 1, 60, "50M", "*", 0, 0, bases, "I" * 50, tags, sep="\t", file=out)


def write_vcf(path, draw):
    samples = ["first", "second", "third"]
    with open(path, "w", encoding="utf8") as out:
        print("##fileformat=VCFv4.3", file=out)
        print(f"##remark={unique_text(draw)}", file=out)
        for contig in CONTIGS:
            print(f"##contig=<ID={contig},length=200000>", file=out)
        print('##INFO=<ID=NOTE,Number=1,Type=String,Description="x">', file=out)
        print('##FORMAT=<ID=GT,Number=1,Type=String,Description="x">', file=out)
        print('##FORMAT=<ID=WORD,Number=1,Type=String,Description="x">', file=out)
        print("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples, sep="\t", file=out)
        for contig, start in sorted((draw.choice(CONTIGS), draw.randrange(100_000)) for _ in range(ROWS)):
            formats = [f"0/1:{unique_text(draw)}" for _ in samples]
            info = f"NOTE={unique_text(draw)}"
            print(contig, start + 1, unique_text(draw), "A", "C", 30, "PASS", info, "GT:WORD", *formats, sep="\t", file=out)


# Columns of each dataset that rules use: text columns, numeric columns, and samples.
DATASETS = {
    "sub/t.csv": (["subject", "note"], ["number"], []),
    "t.arrow": (["subject", "note"], ["number"], []),
    "t.parquet": (["subject", "note"], ["number"], []),
    "b.bed": (["name"], [], []),
    "r.sam": (["name", "other_tags"], [], ["first"]),
    "r.bam": (["name", "other_tags"], [], ["first"]),
    "v.vcf": (["info_NOTE", "identifiers", "format_WORD"], [], ["first", "second", "third"]),
    "v.vcf.gz": (["info_NOTE", "identifiers", "format_WORD"], [], ["first", "second", "third"]),
}


def random_rule(draw, client, dataset):
    """Returns a random rule for one client and one dataset; `None` for no rule."""
    texts, numbers, samples = DATASETS[dataset]
    rule = {"name": f"{client} {dataset}", "who": [client], "datasets": [dataset]}
    fate = draw.random()
    if fate < 0.1:
        return None
    if fate < 0.15:
        return rule | {"deny": True}
    if fate < 0.25:
        return rule
    if draw.random() < 0.5:
        rule["regions"] = [random_region(draw) for _ in range(draw.randrange(1, 4))]
    if numbers and draw.random() < 0.4:
        condition = [{"in": draw.sample(DATA_USES, 2)}, {"not_in": ["DS"]}][draw.randrange(2)]
        rule["where"] = [{"column": "use"} | condition, {"column": "age", "at_least": draw.randrange(60)}]
    if numbers and draw.random() < 0.2:
        by = draw.sample(["use", "contig", "age"], draw.randrange(1, 3))
        rule["groups"] = {"by": by, "at_least": draw.choice([2, 5, 20]), "of": "subject", "means": ["position"]}
        return rule | ({"mask": {"age": {"bin": 20}}} if "age" in by else {})
    if samples and draw.random() < 0.5:
        rule["samples"] = draw.sample(samples, draw.randrange(1, len(samples) + 1))
    mask = {}
    for column in texts:
        kinds = [None, "drop", "redact", "hash"] + ([{"keep": 3}] if column in ["subject", "note", "name"] else [])
        mask[column] = draw.choice(kinds)
    for column in numbers:
        mask[column] = draw.choice([None, "drop", "redact", "hash", {"bin": 1000}])
    mask = {column: kind for column, kind in mask.items() if kind is not None}
    if draw.random() < 0.3:
        rule["show"] = draw.sample([column for column in texts + numbers if column not in mask] or ["contig"], 1)
        rule["show"] += ["contig", "position", "end_position"] if draw.random() < 0.7 else []
    if draw.random() < 0.2 and not rule.get("show"):
        mask[draw.choice(["contig", "position"])] = draw.choice(["drop", "redact"])
    if mask:
        rule["mask"] = mask
    return rule


def random_region(draw):
    if draw.random() < 0.2:
        return draw.choice(CONTIGS + ["nowhere"])
    start = draw.randrange(1, 100_000)
    return f"{draw.choice(CONTIGS)}:{start}-{start + draw.randrange(40_000)}"


def rules_for_seed(seed):
    draw = random.Random(f"rules {seed}")
    rules = []
    for client in [f"c{number}" for number in range(CLIENTS)]:
        rules += [rule for dataset in DATASETS if (rule := random_rule(draw, client, dataset))]
    draw.shuffle(rules)
    chains = {"name": "chains", "who": ["*"], "datasets": ["c.chain"]}
    return [{"name": "all", "who": ["admin"], "datasets": ["**"]}, chains] + rules


def write_policy(root, seed):
    with open(f"{root}/key", "wb") as out:
        out.write(bytes(range(32)))
    with open(f"{root}/policy.toml", "w", encoding="utf8") as out:
        print('key = "key"', file=out)
        for rule in rules_for_seed(seed):
            print("[[rule]]", file=out)
            for name, value in rule.items():
                print(name, "=", to_toml(value), file=out)


def to_toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {to_toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(to_toml(one) for one in value) + "]"
    return json.dumps(value)


def find_marks(sent):
    """Returns the marks in some bytes."""
    found = {word.decode() for word in TEXT_MARK_PATTERN.findall(sent)}
    found |= {struct.unpack("<q", number)[0] for number in NUMBER_MARK_PATTERN.findall(sent)}
    found |= {int(number) for number in DIGITS_MARK_PATTERN.findall(sent)}
    return found


def value_marks(value):
    if isinstance(value, list):
        return set().union(*[value_marks(one) for one in value])
    if isinstance(value, (str, bytes)):
        return find_marks(value if isinstance(value, bytes) else value.encode())
    if isinstance(value, int) and value >> 48 == NUMBER_MARK_HIGH_BYTES:
        return {value}
    return set()


def overlaps(row, regions):
    start = max(row["position"], 0)
    end = max(row["end_position"] or 0, start + 1)
    for region in regions:
        contig, _, places = region.partition(":")
        first, last = places.split("-") if places else (1, 1 << 40)
        if row["contig"] == contig and start < int(last) and end > int(first) - 1:
            return True
    return False


def matches_conditions(row, conditions):
    for condition in conditions:
        value = row[condition["column"]]
        fits = value is not None
        fits = fits and ("in" not in condition or value in condition["in"])
        fits = fits and ("not_in" not in condition or value not in condition["not_in"])
        fits = fits and ("at_least" not in condition or value >= condition["at_least"])
        if not fits:
            return False
    return True


def shows_everything(rule, dataset):
    if any(field in rule for field in ["regions", "where", "show", "mask", "deny", "groups"]):
        return False
    return len(rule.get("samples", DATASETS[dataset][2])) == len(DATASETS[dataset][2])


def shows_row(rule, row):
    return ("regions" not in rule or overlaps(row, rule["regions"])) and matches_conditions(row, rule.get("where", []))


def expected_groups(rule, rows):
    """Returns the number of rows and the mean of each group that a rule shows."""
    groups = collections.defaultdict(list)
    for row in rows:
        if shows_row(rule, row):
            key = tuple(row[column] // 20 * 20 if column == "age" else row[column] for column in rule["groups"]["by"])
            groups[key].append(row)
    least = rule["groups"]["at_least"]
    large = {key: rows for key, rows in groups.items() if len({row["subject"] for row in rows}) >= least}
    return {key: (len(rows), round(sum(row["position"] for row in rows) / len(rows), 3)) for key, rows in large.items()}


def fetched_groups(rule, tables):
    """Returns the same of fetched tables; all rows of a group must be equal."""
    found = collections.defaultdict(collections.Counter)
    for row in pyarrow.concat_tables(tables).to_pylist():
        found[tuple(row[column] for column in rule["groups"]["by"])][round(row["position"], 3)] += 1
    assert all(len(means) == 1 for means in found.values()), found
    return {key: (count, mean) for key, means in found.items() for mean, count in means.items()}


def visible_marks(rule, dataset, rows):
    """Returns the marks of the cells that a rule shows unmodified."""
    samples = DATASETS[dataset][2]
    wanted = rule.get("samples", samples)
    places = [at for at, sample in enumerate(samples) if sample in wanted]
    seen = set()
    for row in rows:
        if not shows_row(rule, row):
            continue
        for column, value in row.items():
            hidden = column in rule.get("mask", {}) or ("show" in rule and column not in rule["show"])
            hidden |= "groups" in rule and column not in rule["groups"]["by"]
            if hidden:
                continue
            if column.startswith("format_") and isinstance(value, list):
                value = [value[at] for at in places]
            seen |= value_marks(value)
    return seen
