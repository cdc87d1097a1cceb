process GODWIT_RUN {
    tag "${samples}"
    label 'process_high'

    input:
    // The sheet names files by paths that are good on the node that runs this.
    tuple val(meta), path(samples)
    tuple val(meta2), path(fasta), path(index)

    output:
    tuple val(meta), path('out'), emit: out
    path 'versions.yml', emit: versions

    script:
    def args = task.ext.args ?: ''
    """
    godwit run --reference ${fasta} --samples ${samples} --out out --threads ${task.cpus} ${args}

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        godwit: \$(godwit --version | sed 's/^godwit //')
    END_VERSIONS
    """
}
