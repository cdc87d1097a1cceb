"""Effect of `--memory`: marking duplicates of an input twenty times as large, and the resulting bytes.

In: one aligned file repeated through a pipe, each time with other read names. The peak is that of all processes of the run, including the
writer of the pipe; the bytes are compared with those of a run with 8 GiB.
"""

import math
import shlex
import shutil

from godwit_bench import harness

MIB = 1 << 20


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--memory-mib", type=int, default=512, help="godwit's --memory in MiB (default: 512)")
    parser.add_argument("--times", type=float, default=20, help="size of the input as a multiple of --memory (default: 20)")
    options = parser.parse_args()
    harness.require_tools("bwa", "samtools")
    godwit = harness.godwit_binary(options)
    sam = harness.aligned_sam(options, godwit)
    scratch = harness.scratch_directory(options, "memory")
    copies = math.ceil(options.times * options.memory_mib * MIB / sam.stat().st_size)
    source, out, program = (shlex.quote(str(path)) for path in (sam, scratch, godwit))
    pipe = f"(samtools view -H {source}; for copy in $(seq {copies}); do sed -e '/^@/d' -e \"s/^/$copy./\" {source}; done)"

    def mark(name: str, memory: str) -> str:
        args = f"--memory {memory} --threads {options.threads} --temp {out} --quiet"
        return f"{pipe} | {program} markdup /dev/stdin --out {out}/{name}.bam {args}"

    small, large = f"--memory {options.memory_mib}M", "--memory 8G"
    scripts = {small: mark("small", f"{options.memory_mib}M"), large: mark("large", "8G")}
    measured = harness.measure_competitors(scripts, dict.fromkeys(scripts, 1), scratch)
    peak = measured[small][0]["peak_bytes"] / (options.memory_mib * MIB)
    different = float(harness.file_digest(scratch / "small.bam") != harness.file_digest(scratch / "large.bam"))
    promises = [
        harness.target(f"peak over --memory {options.memory_mib}M, input {options.times:g} times as large", [peak], at_most=1.1),
        harness.target("files that differ from the one written with 8 GiB", [different], at_most=0),
    ]
    remarks = [f"in: {copies} x {sam.stat().st_size / 1e9:.2f} GB of SAM; out: {(scratch / 'small.bam').stat().st_size / 1e9:.2f} GB of BAM."]
    harness.write_comparison("memory", "Marking within a memory limit", options, godwit, scripts, measured, large, promises, remarks)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
