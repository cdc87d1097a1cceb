"""Snakemake wrapper of `godwit search`: a command of BLAST+ in parallel parts, with identical output."""

from snakemake.shell import shell

program = snakemake.params.get("program", "blastp")
options = snakemake.params.get("options", "")
extra = snakemake.params.get("extra", "")
log = snakemake.log_fmt_shell(stdout=True, stderr=True)
shell(
    "godwit search --workers {snakemake.threads} {extra} -- {program} -db {snakemake.params.db:q}"
    " -query {snakemake.input.query:q} -out {snakemake.output[0]:q} {options} {log}"
)
