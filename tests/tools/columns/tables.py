"""Writes tables with every type of CSV and Arrow IPC by pyarrow and polars, and prints their rows.

Arguments: a directory, `make` or `rows`, and for `rows` the name of a file in it. `make` writes the files; `rows` prints the rows of a file,
read by pyarrow, or CSV by polars, as a JSON object per line.
"""

import datetime
import json
import pathlib
import random
import sys

import polars
import pyarrow
import pyarrow.feather
import pyarrow.ipc

ROWS = 5000


def table():
    chance = random.Random(7)

    def some(value):
        return None if chance.random() < 0.1 else value

    texts = ["chr1", "chr2", "é", "", "a,b", 'quote"d', "x" * 100]
    columns = {
        "row": pyarrow.array(range(ROWS), pyarrow.int64()),
        "small": pyarrow.array([some(chance.randrange(-128, 128)) for _ in range(ROWS)], pyarrow.int8()),
        "wide": pyarrow.array([some(chance.randrange(2**63)) for _ in range(ROWS)], pyarrow.uint64()),
        "share": pyarrow.array([some(chance.randrange(1000) / 8) for _ in range(ROWS)], pyarrow.float64()),
        "truth": pyarrow.array([some(chance.random() < 0.5) for _ in range(ROWS)], pyarrow.bool_()),
        "text": pyarrow.array([some(chance.choice(texts)) for _ in range(ROWS)], pyarrow.string()),
        "long_text": pyarrow.array([some(chance.choice(texts)) for _ in range(ROWS)], pyarrow.large_string()),
        "word": pyarrow.array([some(chance.choice(texts)) for _ in range(ROWS)]).dictionary_encode(),
        "list": pyarrow.array([some([some(chance.randrange(9)) for _ in range(chance.randrange(4))]) for _ in range(ROWS)]),
        "day": pyarrow.array([some(datetime.date(2024, 1, 1) + datetime.timedelta(chance.randrange(900))) for _ in range(ROWS)]),
        "pair": pyarrow.array([some({"a": chance.randrange(5), "b": some(chance.choice(texts))}) for _ in range(ROWS)]),
    }
    return pyarrow.table(columns)


def make(directory):
    whole = table()
    for name, options in [
        ("plain.arrow", pyarrow.ipc.IpcWriteOptions()),
        ("zstd.arrow", pyarrow.ipc.IpcWriteOptions(compression="zstd")),
    ]:
        with pyarrow.ipc.new_file(str(directory / name), whole.schema, options=options) as writer:
            writer.write_table(whole, max_chunksize=700)
    with pyarrow.ipc.new_stream(str(directory / "stream.arrows"), whole.schema) as writer:
        writer.write_table(whole, max_chunksize=999)
    pyarrow.feather.write_feather(whole, str(directory / "lz4.feather"), compression="lz4")
    flat = polars.from_arrow(whole.select(["row", "small", "share", "truth", "text", "day"]))
    # CSV does not distinguish an empty string from null.
    flat = flat.with_columns(polars.when(polars.col("text") == "").then(None).otherwise(polars.col("text")).alias("text"))
    flat.write_csv(directory / "flat.csv")
    flat.write_csv(directory / "flat.tsv", separator="\t")


def rows(directory, name):
    path = directory / name
    if path.suffix in (".csv", ".tsv"):
        separator = "," if path.suffix == ".csv" else "\t"
        found = polars.read_csv(path, separator=separator).to_dicts()
    else:
        opener = pyarrow.ipc.open_stream if path.suffix == ".arrows" else pyarrow.ipc.open_file
        with pyarrow.OSFile(str(path)) as file:
            found = opener(file).read_all().to_pylist()
    for row in found:
        print(json.dumps(row, default=str))


if __name__ == "__main__":
    globals()[sys.argv[2]](pathlib.Path(sys.argv[1]), *sys.argv[3:])
