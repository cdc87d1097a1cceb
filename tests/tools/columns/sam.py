"""Prints the records of a dataset in godwit's columns as SAM. This reader follows docs/formats/alignments.md only."""

import struct
import sys
from pathlib import Path

import pyarrow.ipc
import pyarrow.parquet

COLUMNS_OF_TAGS = {"NM": "cCsSiI", "AS": "cCsSiI", "XS": "cCsSiI", "MQ": "cCsSiI", "MD": "Z", "MC": "Z", "SA": "Z", "XA": "Z"}
NUMBERS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "f": "f"}


def read_tables(directory):
    for path in sorted(Path(directory).iterdir()):
        if path.suffix == ".parquet":
            yield pyarrow.parquet.read_table(path)
        else:
            with pyarrow.memory_map(str(path)) as source:
                yield pyarrow.ipc.open_file(source).read_all()


def parse_number(kind, value):
    return "%g" % value if kind == "f" else str(value)


def parse_tag(data):
    """Returns the first of BAM's tags as SAM text, and the remaining bytes."""
    name, kind = data[:2].decode(), chr(data[2])
    if kind in "ZH":
        end = data.index(0, 3)
        return f"{name}:{kind}:{data[3:end].decode()}", data[end + 1 :]
    if kind == "A":
        return f"{name}:A:{chr(data[3])}", data[4:]
    if kind == "B":
        of, count = chr(data[3]), struct.unpack_from("<I", data, 4)[0]
        values = struct.unpack_from(f"<{count}{NUMBERS[of]}", data, 8)
        text = "".join("," + parse_number(of, value) for value in values)
        return f"{name}:B:{of}{text}", data[8 + struct.calcsize(f"<{count}{NUMBERS[of]}") :]
    value = struct.unpack_from("<" + NUMBERS[kind], data, 3)[0]
    text = f"{name}:f:{parse_number(kind, value)}" if kind == "f" else f"{name}:i:{value}"
    return text, data[3 + struct.calcsize("<" + NUMBERS[kind]) :]


def format_tags(row):
    layout, others, seen, result = row["tag_layout"], row["other_tags"] or b"", set(), []
    for at in range(0, len(layout), 3):
        name, kind = layout[at : at + 2], layout[at + 2]
        column = "read_group" if name == "RG" and kind == "Z" else None
        if kind in COLUMNS_OF_TAGS.get(name, ""):
            column = f"tag_{name}"
        value = row[column] if column and column not in seen else None
        seen.add(column)
        if value is None:
            text, others = parse_tag(others)
        else:
            text = f"{name}:{'Z' if kind == 'Z' else 'i'}:{value}"
        result.append(text)
    assert not others, "tags are left over"
    return result


def format_line(row):
    contig, mate = row["contig"] or "*", row["mate_contig"] or "*"
    if mate != "*" and mate == contig:
        mate = "="
    qualities = row["qualities"]
    fields = [
        row["name"], row["flags"], contig, row["position"] + 1, row["mapping_quality"], row["cigar"] or "*", mate,
        row["mate_position"] + 1, row["template_length"], row["bases"] or "*",
        "*" if qualities is None else bytes(quality + 33 for quality in qualities).decode(),
    ]
    return "\t".join([str(field) for field in fields] + format_tags(row))


def main():
    for index, table in enumerate(read_tables(sys.argv[1])):
        if index == 0:
            assert table.schema.metadata[b"godwit.alignments"] == b"1"
            sys.stdout.write(table.schema.metadata[b"sam.header"].decode())
        for row in table.to_pylist():
            print(format_line(row))


main()
