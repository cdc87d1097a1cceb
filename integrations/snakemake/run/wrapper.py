"""Snakemake wrapper of `godwit run`: all samples of a sheet, from FASTQ to variants, scheduled by godwit."""

from pathlib import Path

from snakemake.shell import shell

extra = snakemake.params.get("extra", "")
log = snakemake.log_fmt_shell(stdout=True, stderr=True)
directory = Path(snakemake.params.get("out") or snakemake.output[0])
# A stopped run is resumed.
shell(
    "godwit run --reference {snakemake.input.reference:q} --samples {snakemake.input.samples:q} --out {directory:q}"
    " --threads {snakemake.threads} --resume {extra} {log}"
)
