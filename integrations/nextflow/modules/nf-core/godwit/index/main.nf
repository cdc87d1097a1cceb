process GODWIT_INDEX {
    tag "$fasta"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(fasta)

    output:
    tuple val(meta), path(fasta), path("${fasta}.*"), emit: reference
    tuple val("${task.process}"), val('godwit'), eval("godwit --version | sed 's/^godwit //'"), topic: versions, emit: versions_godwit

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    """
    godwit index \\
        ${args} \\
        ${fasta}
    """

    stub:
    """
    touch ${fasta}.fai ${fasta}.amb ${fasta}.ann ${fasta}.bwt ${fasta}.pac ${fasta}.sa ${fasta}.bwt.2bit.64
    """
}
