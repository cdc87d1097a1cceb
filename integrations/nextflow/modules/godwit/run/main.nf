process GODWIT_RUN {
    tag "${samples}"
    label 'process_high'

    input:
    // The paths in the sheet must be valid on the host that runs this process.
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
