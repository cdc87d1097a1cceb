process GODWIT_SEARCH {
    tag "$meta.id"
    label 'process_high'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(query)
    // The files of a database, and its name, the value of -db.
    tuple val(meta2), path(database), val(name)
    // blastp, blastn, blastx, tblastn or tblastx
    val program

    output:
    tuple val(meta), path("*.hits"), emit: hits
    tuple val("${task.process}"), val('godwit'), eval("godwit --version | sed 's/^godwit //'"), topic: versions, emit: versions_godwit

    when:
    task.ext.when == null || task.ext.when

    script:
    // Options of the program, and options of godwit.
    def args = task.ext.args ?: '-outfmt 6'
    def args2 = task.ext.args2 ?: ''
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    godwit search \\
        --workers ${task.cpus} \\
        ${args2} \\
        -- \\
        ${program} \\
        -db ${name} \\
        -query ${query} \\
        -out ${prefix}.hits \\
        ${args}
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.hits
    """
}
