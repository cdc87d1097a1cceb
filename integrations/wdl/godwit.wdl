version 1.1

# The container image must have godwit and the programs that it calls. An index is written for each task: pass `reference_index` to
# reuse files that `godwit index` wrote.

workflow godwit {
    input {
        String sample
        Array[File] reads
        File reference
        Array[File] reference_index = []
        String docker = "godwit"
    }

    call align { input: sample, reads, reference, reference_index, docker }
    call call_variants { input: sample, bam = align.bam, bam_index = align.bam_index, reference, reference_index, docker }

    output {
        File bam = align.bam
        File bam_index = align.bam_index
        File vcf = call_variants.vcf
        File vcf_index = call_variants.vcf_index
    }
}

task align {
    input {
        String sample
        # R1 and R2 of one lane, or a single file of reads without mates.
        Array[File] reads
        File reference
        Array[File] reference_index = []
        String options = ""
        String docker = "godwit"
        Int cpu = 8
        String memory = "16 GB"
    }

    command <<<
        set -euo pipefail
        # Inputs may be read-only; the index is written beside the reference.
        ln -s ~{reference} ~{sep(" ", reference_index)} .
        godwit index ~{basename(reference)}
        godwit align --reference ~{basename(reference)} --reads ~{sep(" ", reads)} --sample ~{sample} --out out --threads ~{cpu} ~{options}
    >>>

    output {
        File bam = "out/~{sample}.bam"
        File bam_index = "out/~{sample}.bam.bai"
        File duplicates = "out/~{sample}.duplicates.txt"
        File summary = "out/run.json"
    }

    runtime {
        docker: docker
        cpu: cpu
        memory: memory
    }
}

task call_variants {
    input {
        String sample
        File bam
        File bam_index
        File reference
        Array[File] reference_index = []
        String options = ""
        String docker = "godwit"
        Int cpu = 8
        String memory = "16 GB"
    }

    command <<<
        set -euo pipefail
        ln -s ~{reference} ~{sep(" ", reference_index)} ~{bam} ~{bam_index} .
        godwit call --reference ~{basename(reference)} --reads ~{basename(bam)} --out ~{sample}.vcf.gz --threads ~{cpu} ~{options}
    >>>

    output {
        File vcf = "~{sample}.vcf.gz"
        File vcf_index = "~{sample}.vcf.gz.tbi"
    }

    runtime {
        docker: docker
        cpu: cpu
        memory: memory
    }
}
