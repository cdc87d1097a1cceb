"""Builds the documentation as a book in HTML with mdBook, and checks every link and anchor of the result.

    build_book.py DIRECTORY [--rustdoc DIRECTORY]

The book has the pages of docs/SUMMARY.md, and after them every other page of the repository that a page links to. Chapters keep the
paths of their files, so that relative links work in the book as they do in the repository. With --rustdoc, the book contains these pages of
`cargo doc` and a chapter that links to them. Exits with 1 if a link has no target.
"""

import argparse
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTENTS = ROOT / "docs/SUMMARY.md"
START_PAGE = ROOT / "README.md"
# Its table of crates has a row for each, with its purpose.
ARCHITECTURE = ROOT / "docs/architecture.md"
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)|^\[[^\]]+\]: (\S+)|(?:src|srcset|href)=\"([^\"]+)\"", re.MULTILINE)
SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:")


def linked_files(page):
    """Returns the files of the repository that a page links to, in the order of the page."""
    prose = CODE_SPAN.sub("", FENCE.sub("", page.read_text()))
    targets = ["".join(match) for match in LINK.findall(prose)]
    paths = [target.split("#")[0] for target in targets if not SCHEME.match(target)]
    return [(page.parent / path).resolve() for path in paths if path]


def reachable_files():
    """Returns every file that a reader reaches by links from the start page or from the contents, pages and others."""
    found, waiting = [], [START_PAGE, CONTENTS]
    while waiting:
        file = waiting.pop(0)
        if file in found or not file.is_file():
            continue
        found.append(file)
        if file.suffix == ".md":
            waiting += linked_files(file)
    found.remove(CONTENTS)
    return found


def title(page):
    """Returns the first heading of a page without its markup."""
    heading = next(line for line in page.read_text().splitlines() if line.startswith("# "))
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.removeprefix("# "))


def contents_text(pages, rustdoc):
    """Returns the contents of the book: those of the documentation, then the other pages."""
    text = re.sub(r"\]\(([^)]+)\)", lambda link: f"]({os.path.normpath('docs/' + link[1])})", CONTENTS.read_text())
    listed = {START_PAGE, *linked_files(CONTENTS)}
    others = [page for page in pages if page.suffix == ".md" and page not in listed]
    titles = [title(page) for page in others]
    names = {page: name if titles.count(name) == 1 else f"{name} ({page.stem})" for page, name in zip(others, titles, strict=True)}
    lines = [f"- [{names[page]}]({page.relative_to(ROOT)})" for page in sorted(others)]
    crates = ["- [Library crates](crates.md)"] if rustdoc else []
    text = text.replace("# Summary\n", f"# Summary\n\n[{title(START_PAGE)}](README.md)\n", 1)
    return "\n".join([text, "# Project and measurements", "", *crates, *lines, ""])


def write_source(source, rustdoc):
    """Writes the source of the book: its configuration, its contents and its files."""
    shutil.rmtree(source, ignore_errors=True)
    files = reachable_files()
    for file in files:
        copy = source / "src" / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    shutil.copyfile(ROOT / "docs/book.toml", source / "book.toml")
    (source / "src/SUMMARY.md").write_text(contents_text(files, rustdoc))
    if rustdoc:
        crates = re.findall(r"^\| `(godwit[a-z0-9-]*)` \| ([^|]+) \|", ARCHITECTURE.read_text(), re.MULTILINE)
        pages = {crate: rustdoc / crate.replace("-", "_") / "index.html" for crate, _ in crates}
        lines = [f"- [{crate}](rustdoc/{pages[crate].relative_to(rustdoc)}): {purpose}" for crate, purpose in crates if pages[crate].exists()]
        (source / "src/crates.md").write_text("\n".join(["# Library crates", "", *lines, ""]))


class Page(html.parser.HTMLParser):
    """The anchors and the links of a page in HTML."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = {""}, []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value is not None and not SCHEME.match(value):
                self.links.append(value)


def dead_links(book):
    """Returns one line for each link of a page of the book without a file or an anchor."""
    # 404.html has links from the root of a server. The pages of rustdoc are checked by rustdoc.
    paths = [path for path in sorted(book.rglob("*.html")) if path.name != "404.html" and "rustdoc" not in path.parts]
    pages = {path: Page(path) for path in paths}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            file, _, anchor = link.partition("#")
            target = (path.parent / urllib.parse.unquote(file)).resolve() if file else path
            if not target.is_file() or (target in pages and urllib.parse.unquote(anchor) not in pages[target].anchors):
                dead.append(f"{path.relative_to(book)}: {link}")
    return len(pages), sum(len(page.links) for page in pages.values()), dead


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--rustdoc", type=pathlib.Path)
    arguments = parser.parse_args()
    book = arguments.directory.resolve()
    source = book.with_name(book.name + "-source")
    write_source(source, arguments.rustdoc)
    shutil.rmtree(book, ignore_errors=True)
    mdbook = pathlib.Path(sys.executable).with_name("mdbook")
    subprocess.run([mdbook, "build", source, "--dest-dir", book], check=True, env={**os.environ, "MDBOOK_LOG": "warn"})
    if arguments.rustdoc:
        shutil.copytree(arguments.rustdoc, book / "rustdoc")
    pages, links, dead = dead_links(book)
    for link in dead:
        print(f"dead link in the book: {link}", file=sys.stderr)
    print(f"book: {pages} pages, {links} links, {len(dead)} of them dead; open {book}/index.html")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
