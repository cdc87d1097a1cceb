"""Snakemake wrapper of `godwit align`: the names of the outputs select the formats."""

from pathlib import Path

from snakemake.shell import shell

FORMATS = ("bam", "cram", "parquet", "arrow")

files = snakemake.input.reads
files = [files] if isinstance(files, str) else list(files)
mates = 1 if snakemake.params.get("single_end") else 2
if len(files) % mates:
    raise ValueError(f"{len(files)} files of reads are not pairs; list R1 and R2 of each lane, or set single_end=True")
lanes = " ".join("--reads " + " ".join(f"'{file}'" for file in files[at : at + mates]) for at in range(0, len(files), mates))

outputs = {name: Path(snakemake.output[name]) for name in FORMATS if name in snakemake.output.keys()}
if not outputs:
    raise ValueError(f"name an output: {', '.join(FORMATS)}")
places = {(path.parent, path.stem) for path in outputs.values()}
if len(places) > 1:
    raise ValueError(f"outputs of a sample must be in one directory and have its name: {sorted(map(str, outputs.values()))}")
[(directory, stem)] = places
sample = snakemake.params.get("sample", stem)
if sample != stem:
    raise ValueError(f"the outputs of sample {sample} must be named {sample}.{next(iter(outputs))}")

formats = ",".join(outputs)
extra = snakemake.params.get("extra", "")
log = snakemake.log_fmt_shell(stdout=True, stderr=True)
# A stopped run is resumed.
shell(
    "godwit align --reference {snakemake.input.reference:q} {lanes} --sample {sample:q} --out {directory:q}"
    " --format {formats} --threads {snakemake.threads} --resume {extra} {log}"
)
