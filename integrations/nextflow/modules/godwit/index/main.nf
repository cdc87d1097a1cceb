process GODWIT_INDEX {
    tag "${fasta}"
    label 'process_medium'

    input:
    tuple val(meta), path(fasta)

    output:
    tuple val(meta), path(fasta), path("${fasta}.*"), emit: reference
    path 'versions.yml', emit: versions

    script:
    def args = task.ext.args ?: ''
    """
    godwit index ${fasta} ${args}

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        godwit: \$(godwit --version | sed 's/^godwit //')
    END_VERSIONS
    """
}
