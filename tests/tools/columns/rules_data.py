"""Datasets whose cells can be told from one another, random rules about who sees which of them, and what the rules show, by an account of
their own."""

import collections
import json
import os
import random
import re
import struct

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

CALLERS = 10
ROWS = 80
CONTIGS = ["chr1", "chr2", "chr3"]
USES = ["GRU", "HMB", "DS"]
# No other number looks like these: their two highest bytes.
HIGH = 0x5A51
TEXT = re.compile(rb"zq[a-z0-9]{10}")
NUMBER = re.compile(rb"(?=(.{6}\x51\x5a))", re.DOTALL)
DIGITS = re.compile(rb"(?<!\d)65\d{17}(?!\d)")


def unique_text(draw):
    return "zq" + "".join(draw.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(10))


def unique_number(draw):
    return (HIGH << 48) + draw.getrandbits(47) * 2 + 1


def make(root, seed):
    draw = random.Random(int(seed))
    os.makedirs(f"{root}/sub")
    for kind in ["csv", "arrow", "parquet"]:
        table = a_table(draw)
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
    with open(f"{root}/notes.txt", "w", encoding="utf8") as out:
        out.write(unique_text(draw))


def a_table(draw):
    starts = sorted((draw.choice(CONTIGS), draw.randrange(100_000)) for _ in range(ROWS))
    return pyarrow.table(
        {
            "contig": pyarrow.array([contig for contig, _ in starts], pyarrow.string()),
            "position": pyarrow.array([start for _, start in starts], pyarrow.int64()),
            "end_position": pyarrow.array([start + draw.randrange(1, 3000) for _, start in starts], pyarrow.int64()),
            "subject": pyarrow.array([unique_text(draw) for _ in starts], pyarrow.string()),
            "note": pyarrow.array([unique_text(draw) if draw.random() < 0.9 else None for _ in starts], pyarrow.string()),
            "number": pyarrow.array([unique_number(draw) for _ in starts], pyarrow.int64()),
            "use": pyarrow.array([draw.choice(USES) for _ in starts], pyarrow.string()),
            "age": pyarrow.array([draw.randrange(100) for _ in starts], pyarrow.int64()),
        }
    )


def write_csv(path, table):
    with open(path, "w", encoding="utf8") as out:
        print(*table.column_names, sep=",", file=out)
        for row in table.to_pylist():
            print(*["" if value is None else value for value in row.values()], sep=",", file=out)


def write_arrow(path, table):
    """With types whose values lie apart from their rows."""
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
            words = [f"0/1:{unique_text(draw)}" for _ in samples]
            info = f"NOTE={unique_text(draw)}"
            print(contig, start + 1, unique_text(draw), "A", "C", 30, "PASS", info, "GT:WORD", *words, sep="\t", file=out)


# What each dataset has that rules are made of: columns of texts, of numbers, and whether it has samples.
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


def a_rule(draw, caller, dataset):
    """A rule about one caller and one dataset; `None` where there is to be none."""
    texts, numbers, samples = DATASETS[dataset]
    rule = {"name": f"{caller} {dataset}", "who": [caller], "datasets": [dataset]}
    fate = draw.random()
    if fate < 0.1:
        return None
    if fate < 0.15:
        return rule | {"deny": True}
    if fate < 0.25:
        return rule
    if draw.random() < 0.5:
        rule["regions"] = [a_region(draw) for _ in range(draw.randrange(1, 4))]
    if numbers and draw.random() < 0.4:
        condition = [{"in": draw.sample(USES, 2)}, {"not_in": ["DS"]}][draw.randrange(2)]
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


def a_region(draw):
    if draw.random() < 0.2:
        return draw.choice(CONTIGS + ["nowhere"])
    start = draw.randrange(1, 100_000)
    return f"{draw.choice(CONTIGS)}:{start}-{start + draw.randrange(40_000)}"


def rules_of(seed):
    draw = random.Random(f"rules {seed}")
    rules = []
    for caller in [f"c{number}" for number in range(CALLERS)]:
        rules += [rule for dataset in DATASETS if (rule := a_rule(draw, caller, dataset))]
    draw.shuffle(rules)
    return [{"name": "all", "who": ["admin"], "datasets": ["**"]}] + rules


def policy(root, seed):
    with open(f"{root}/key", "wb") as out:
        out.write(bytes(range(32)))
    with open(f"{root}/policy.toml", "w", encoding="utf8") as out:
        print('key = "key"', file=out)
        for rule in rules_of(seed):
            print("[[rule]]", file=out)
            for name, value in rule.items():
                print(name, "=", toml(value), file=out)


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    return json.dumps(value)


def marks_in(sent):
    """What can be told from anything else, of some bytes."""
    found = {word.decode() for word in TEXT.findall(sent)}
    found |= {struct.unpack("<q", number)[0] for number in NUMBER.findall(sent)}
    found |= {int(number) for number in DIGITS.findall(sent)}
    return found


def marks_of(value):
    if isinstance(value, list):
        return set().union(*[marks_of(one) for one in value])
    if isinstance(value, (str, bytes)):
        return marks_in(value if isinstance(value, bytes) else value.encode())
    if isinstance(value, int) and value >> 48 == HIGH:
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


def meets(row, conditions):
    for condition in conditions:
        value = row[condition["column"]]
        fits = value is not None
        fits = fits and ("in" not in condition or value in condition["in"])
        fits = fits and ("not_in" not in condition or value not in condition["not_in"])
        fits = fits and ("at_least" not in condition or value >= condition["at_least"])
        if not fits:
            return False
    return True


def is_whole(rule, dataset):
    if any(field in rule for field in ["regions", "where", "show", "mask", "deny", "groups"]):
        return False
    return len(rule.get("samples", DATASETS[dataset][2])) == len(DATASETS[dataset][2])


def is_seen(rule, row):
    return ("regions" not in rule or overlaps(row, rule["regions"])) and meets(row, rule.get("where", []))


def groups_of(rule, rows):
    """How many rows each group has that a rule shows, and their mean."""
    groups = collections.defaultdict(list)
    for row in rows:
        if is_seen(rule, row):
            key = tuple(row[column] // 20 * 20 if column == "age" else row[column] for column in rule["groups"]["by"])
            groups[key].append(row)
    least = rule["groups"]["at_least"]
    large = {key: rows for key, rows in groups.items() if len({row["subject"] for row in rows}) >= least}
    return {key: (len(rows), round(sum(row["position"] for row in rows) / len(rows), 3)) for key, rows in large.items()}


def groups_in(rule, tables):
    """The same of tables that were fetched; in a group all rows are alike."""
    found = collections.defaultdict(collections.Counter)
    for row in pyarrow.concat_tables(tables).to_pylist():
        found[tuple(row[column] for column in rule["groups"]["by"])][round(row["position"], 3)] += 1
    assert all(len(means) == 1 for means in found.values()), found
    return {key: (count, mean) for key, means in found.items() for mean, count in means.items()}


def seen_of(rule, dataset, rows):
    """Marks of the cells that a rule shows as they are."""
    samples = DATASETS[dataset][2]
    wanted = rule.get("samples", samples)
    places = [at for at, sample in enumerate(samples) if sample in wanted]
    seen = set()
    for row in rows:
        if not is_seen(rule, row):
            continue
        for column, value in row.items():
            hidden = column in rule.get("mask", {}) or ("show" in rule and column not in rule["show"])
            hidden |= "groups" in rule and column not in rule["groups"]["by"]
            if hidden:
                continue
            if column.startswith("format_") and isinstance(value, list):
                value = [value[at] for at in places]
            seen |= marks_of(value)
    return seen
