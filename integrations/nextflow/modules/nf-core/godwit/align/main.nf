process GODWIT_ALIGN {
    tag "$meta.id"
    label 'process_high'

    conda "${moduleDir}/environment.yml"

    input:
    // R1 and R2 of each lane in sequence; single reads if meta.single_end is true.
    tuple val(meta), path(reads, stageAs: 'reads/*')
    tuple val(meta2), path(fasta), path(index)

    output:
    tuple val(meta), path("${prefix}/${prefix}.bam"), path("${prefix}/${prefix}.bam.bai"), emit: bam, optional: true
    tuple val(meta), path("${prefix}/${prefix}.cram"), path("${prefix}/${prefix}.cram.crai"), emit: cram, optional: true
    tuple val(meta), path("${prefix}/${prefix}.parquet"), emit: parquet, optional: true
    tuple val(meta), path("${prefix}/${prefix}.duplicates.txt"), emit: metrics, optional: true
    tuple val(meta), path("${prefix}/run.json"), emit: summary
    tuple val("${task.process}"), val('godwit'), eval("godwit --version | sed 's/^godwit //'"), topic: versions, emit: versions_godwit

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    def files = reads instanceof List ? reads : [reads]
    def lanes = files.collate(meta.single_end ? 1 : 2).collect { lane -> "--reads ${lane.join(' ')}" }.join(' ')
    """
    godwit align \\
        --reference ${fasta} \\
        ${lanes} \\
        --sample ${prefix} \\
        --out ${prefix} \\
        --threads ${task.cpus} \\
        ${args}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    mkdir ${prefix}
    touch ${prefix}/${prefix}.bam ${prefix}/${prefix}.bam.bai ${prefix}/${prefix}.duplicates.txt ${prefix}/run.json
    """
}
