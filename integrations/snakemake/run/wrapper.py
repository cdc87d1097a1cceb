"""Snakemake wrapper of `godwit run`: all samples of a sheet, from FASTQ to variants, with godwit's own scheduling."""

from pathlib import Path

from snakemake.shell import shell

extra = snakemake.params.get("extra", "")
log = snakemake.log_fmt_shell(stdout=True, stderr=True)
directory = Path(snakemake.params.get("out") or snakemake.output[0])
# What a run that was stopped has done is not done again.
shell(
    "godwit run --reference {snakemake.input.reference:q} --samples {snakemake.input.samples:q} --out {directory:q}"
    " --threads {snakemake.threads} --resume {extra} {log}"
)
