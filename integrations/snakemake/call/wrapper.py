"""Snakemake wrapper of `godwit call`: the variants of a sample, or of several."""

from snakemake.shell import shell

extra = snakemake.params.get("extra", "")
log = snakemake.log_fmt_shell(stdout=True, stderr=True)
# A stopped run is resumed.
shell(
    "godwit call --reference {snakemake.input.reference:q} --reads {snakemake.input.reads:q} --out {snakemake.output.vcf:q}"
    " --threads {snakemake.threads} --resume {extra} {log}"
)
