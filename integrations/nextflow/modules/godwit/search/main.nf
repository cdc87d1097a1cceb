process GODWIT_SEARCH {
    tag "${meta.id}"
    label 'process_high'

    input:
    tuple val(meta), path(query)
    // The files of a database, and its name, the value of -db.
    tuple val(meta2), path(database), val(name)

    output:
    tuple val(meta), path("${meta.id}.hits"), emit: hits
    path 'versions.yml', emit: versions

    script:
    def program = task.ext.program ?: 'blastp'
    def options = task.ext.options ?: '-outfmt 6'
    def args = task.ext.args ?: ''
    """
    godwit search --workers ${task.cpus} ${args} -- ${program} -db ${name} -query ${query} -out ${meta.id}.hits ${options}

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        godwit: \$(godwit --version | sed 's/^godwit //')
    END_VERSIONS
    """
}
