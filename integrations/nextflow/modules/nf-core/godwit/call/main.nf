process GODWIT_CALL {
    tag "$meta.id"
    label 'process_high'

    conda "${moduleDir}/environment.yml"

    input:
    // BAM or CRAM, and its index.
    tuple val(meta), path(reads), path(reads_index)
    tuple val(meta2), path(fasta), path(index)

    output:
    tuple val(meta), path("*.vcf.gz"), path("*.vcf.gz.tbi"), emit: vcf
    tuple val(meta), path("*.run.json"), emit: summary
    tuple val("${task.process}"), val('godwit'), eval("godwit --version | sed 's/^godwit //'"), topic: versions, emit: versions_godwit

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    godwit call \\
        --reference ${fasta} \\
        --reads ${reads} \\
        --out ${prefix}.vcf.gz \\
        --threads ${task.cpus} \\
        ${args}
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    echo "" | gzip > ${prefix}.vcf.gz
    touch ${prefix}.vcf.gz.tbi ${prefix}.vcf.gz.run.json
    """
}
