"""Prints the variants of a Parquet or Arrow file like `bcftools query`, read by the rules of docs/formats/variants.md.

Arguments: the file, then names of columns after the fixed ones, `info_X` or `format_X`. Prints a line for each record: contig, 0-based
position, last base (1-based), identifiers, alleles, quality, filters, then those of INFO, then those of each sample.
"""

import sys

import duckdb
import polars
import pyarrow
import pyarrow.ipc
import pyarrow.parquet


def shown(value):
    """Formats a value like bcftools."""
    if value is None or value is False:
        return "."
    if value is True:
        return "1"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ",".join(shown(element) for element in value)
    return str(value)


def read(path):
    if path.endswith(".parquet"):
        return pyarrow.parquet.read_table(path)
    with pyarrow.memory_map(path) as source:
        return pyarrow.ipc.open_file(source).read_all()


def main(path, *names):
    table = read(path)
    metadata = table.schema.metadata
    assert metadata[b"godwit.variants"] == b"1", metadata
    samples = metadata[b"vcf.header"].decode().splitlines()[-1].split("\t")[9:]
    frame = polars.from_arrow(table)
    assert frame.height == table.num_rows and frame.filter(polars.col("position") >= polars.col("end_position")).is_empty()
    if path.endswith(".parquet"):
        assert polars.read_parquet(path).equals(frame)
        assert duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE position < end_position").fetchall() == [(frame.height,)]
    for row in table.to_pylist():
        fields = [
            row["contig"],
            shown(row["position"]),
            shown(row["end_position"]),
            ";".join(row["identifiers"] or ["."]),
            row["reference"],
            ",".join(row["alternates"] or ["."]),
            shown(row["quality"]),
            ";".join(row["filters"] or ["."]),
        ]
        fields += [shown(row[name]) for name in names if name.startswith("info_")]
        for index in range(len(samples)):
            of_sample = [row[name] and row[name][index] for name in names if name.startswith("format_")]
            fields += [shown(value) for value in of_sample]
            alleles, phased = row["genotype_alleles"], row["genotype_phased"]
            if alleles and alleles[index] is not None:
                text = ("|" if phased[index] else "/").join(shown(allele) for allele in alleles[index])
                assert text == row["format_GT"][index], (text, row)
        print("\t".join(fields))


main(*sys.argv[1:])
