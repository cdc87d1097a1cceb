process GODWIT_RUN {
    tag "$samples"
    label 'process_high'

    conda "${moduleDir}/environment.yml"

    input:
    // The paths in the sheet must be valid on the host that runs this process.
    tuple val(meta), path(samples)
    tuple val(meta2), path(fasta), path(index)

    output:
    tuple val(meta), path("${prefix}"), emit: out
    tuple val("${task.process}"), val('godwit'), eval("godwit --version | sed 's/^godwit //'"), topic: versions, emit: versions_godwit

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    godwit run \\
        --reference ${fasta} \\
        --samples ${samples} \\
        --out ${prefix} \\
        --threads ${task.cpus} \\
        ${args}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    mkdir ${prefix}
    touch ${prefix}/run.json
    """
}
