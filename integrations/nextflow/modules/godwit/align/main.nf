process GODWIT_ALIGN {
    tag "${meta.id}"
    label 'process_high'

    input:
    // Reads: R1 and R2 of each lane in sequence; single reads if meta.single_end is true.
    tuple val(meta), path(reads, stageAs: 'reads/*')
    tuple val(meta2), path(fasta), path(index)

    output:
    tuple val(meta), path("${meta.id}/${meta.id}.bam"), path("${meta.id}/${meta.id}.bam.bai"), emit: bam, optional: true
    tuple val(meta), path("${meta.id}/${meta.id}.cram"), path("${meta.id}/${meta.id}.cram.crai"), emit: cram, optional: true
    tuple val(meta), path("${meta.id}/${meta.id}.parquet"), emit: parquet, optional: true
    tuple val(meta), path("${meta.id}/${meta.id}.duplicates.txt"), emit: metrics, optional: true
    tuple val(meta), path("${meta.id}/run.json"), emit: summary
    path 'versions.yml', emit: versions

    script:
    def args = task.ext.args ?: ''
    def mates = meta.single_end ? 1 : 2
    def files = reads instanceof List ? reads : [reads]
    def lanes = files.collate(mates).collect { lane -> "--reads ${lane.join(' ')}" }.join(' ')
    """
    godwit align --reference ${fasta} ${lanes} --sample ${meta.id} --out ${meta.id} --threads ${task.cpus} ${args}

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        godwit: \$(godwit --version | sed 's/^godwit //')
    END_VERSIONS
    """
}
