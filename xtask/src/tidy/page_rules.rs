//! Rules on the pages of the documentation: every relative link and anchor has its target, the indexes list every page,
//! no page is long, and the pages of the architecture name modules and items that exist.
//!
//! In: the Markdown files of the repository, and a test for the existence of other files. Out: one line per finding.
//! Links to other hosts are not followed.

use std::collections::{BTreeMap, BTreeSet};

use super::SourceFile;

/// The maximum length of a page, in lines: a reader finds a heading without searching.
const MAX_PAGE_LINES: usize = 250;
/// Folder with tables of measurements, one page per benchmark, which the benchmarks write. Their length is not limited.
const MEASUREMENTS: &str = "bench/results/";
/// The page that readers see first.
const START_PAGE: &str = "README.md";
/// Folder of the documentation, and its indexes. The start page links to each index, so that every page is two clicks
/// from it.
const DOCUMENTATION: &str = "docs/";
const INDEXES: [&str; 2] = ["docs/README.md", "docs/decisions/README.md"];
/// The table of contents of the book, which lists every page. It is not a page itself.
const BOOK_CONTENTS: &str = "docs/SUMMARY.md";

/// Pages that name modules and items of the crates, as in `formats::vcf::Reader`.
const ARCHITECTURE_PAGES: [&str; 2] = ["docs/architecture.md", "docs/architecture-servers.md"];
/// Keywords that precede the name of an item.
const ITEM_KEYWORDS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];

/// Returns the paths on the pages of the architecture that name no module and no item of `sources`. A path begins with a
/// crate, without `godwit-`, or with a module of any crate. An item may be in a submodule, whose parent re-exports it.
pub fn check_module_paths(pages: &[SourceFile], sources: &[SourceFile]) -> Vec<String> {
    let modules: Vec<(Vec<String>, &str)> =
        sources.iter().filter_map(|source| Some((module_path(&source.path)?, source.text.as_str()))).collect();
    let mut findings = Vec::new();
    for page in pages.iter().filter(|page| ARCHITECTURE_PAGES.contains(&page.path.as_str())) {
        for (at, line) in blank_fences(&page.text).into_iter().enumerate() {
            let unknown =
                line.split('`').skip(1).step_by(2).filter(|span| is_module_path(span) && !names_module(span, &modules));
            findings.extend(unknown.map(|span| format!("{}:{}: there is no {span}", page.path, at + 1)));
        }
    }
    findings
}

/// Returns the path of the module in a file: its crate without `godwit-`, and the names of the modules.
fn module_path(file: &str) -> Option<Vec<String>> {
    let (name, file) = file.strip_prefix("crates/")?.strip_suffix(".rs")?.split_once("/src/")?;
    let modules = file.split('/').filter(|module| !["lib", "main"].contains(module));
    let name = name.strip_prefix("godwit-").unwrap_or(name).replace('-', "_");
    Some([name].into_iter().chain(modules.map(str::to_owned)).collect())
}

/// Reports whether a code span is a path that begins with a crate or module.
fn is_module_path(span: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    span.contains("::") && span.starts_with(|c: char| c.is_ascii_lowercase()) && span.split("::").all(is_name)
}

fn names_module(span: &str, modules: &[(Vec<String>, &str)]) -> bool {
    let names: Vec<&str> = span.strip_prefix("godwit_").unwrap_or(span).split("::").collect();
    let is_crate = modules.iter().any(|(path, _)| path[0] == names[0]);
    let begins_with =
        |path: &[String], names: &[&str]| path.len() >= names.len() && path.iter().zip(names).all(|(a, b)| a == b);
    // A path without a crate may begin at any module.
    let is_below = |path: &[String], names: &[&str]| match is_crate {
        true => begins_with(path, names),
        false => (1..path.len()).any(|first| begins_with(&path[first..], names)),
    };
    if modules.iter().any(|(path, _)| is_below(path, &names)) {
        return true;
    }
    let is_type = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase());
    let module_count = names.iter().position(|name| is_type(name)).unwrap_or(names.len() - 1);
    let (parents, items) = names.split_at(module_count);
    let texts: Vec<&str> = modules.iter().filter(|(path, _)| is_below(path, parents)).map(|(_, text)| *text).collect();
    items.iter().all(|item| texts.iter().any(|text| defines(text, item)))
}

/// Reports whether a source file defines an item of a name.
fn defines(text: &str, item: &str) -> bool {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        let mut words = line.split_whitespace();
        let mut previous = words.next().unwrap_or_default();
        words.any(|word| {
            let keyword = std::mem::replace(&mut previous, word);
            let rest = word.strip_prefix(item).filter(|_| ITEM_KEYWORDS.contains(&keyword));
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    })
}

/// Returns the findings on all pages. `exists` reports whether a path from the root is a file or directory.
pub fn check_pages(pages: &[SourceFile], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let parsed: BTreeMap<&str, Page> = pages.iter().map(|page| (page.path.as_str(), Page::parse(page))).collect();
    let mut findings = Vec::new();
    for (path, page) in &parsed {
        findings.extend(page.links.iter().filter_map(|link| check_link(path, link, &parsed, &exists)));
        if page.lines > MAX_PAGE_LINES && !path.starts_with(MEASUREMENTS) {
            findings.push(format!("{path}: {} lines, the limit is {MAX_PAGE_LINES}; split it by subject", page.lines));
        }
    }
    findings.extend(check_indexes(&parsed));
    findings
}

/// The links and anchors of a page.
struct Page {
    links: Vec<Link>,
    anchors: BTreeSet<String>,
    lines: usize,
}

/// A link to another place of the repository.
struct Link {
    line: usize,
    /// The target as written.
    target: String,
    /// Path of the target from the root; `None` if it is outside.
    path: Option<String>,
    /// The anchor, empty if the target has none.
    anchor: String,
}

impl Page {
    fn parse(page: &SourceFile) -> Self {
        let prose = blank_fences(&page.text);
        let mut links = Vec::new();
        let mut headings = BTreeMap::new();
        let mut anchors = BTreeSet::new();
        for (at, line) in prose.iter().enumerate() {
            if let Some(heading) = heading(line) {
                let slug = slug(heading);
                let repeated = headings.entry(slug.clone()).and_modify(|count| *count += 1).or_insert(0);
                anchors.insert(if *repeated == 0 { slug } else { format!("{slug}-{repeated}") });
            }
            let line = blank_code_spans(line);
            anchors.extend(attribute_values(&line, &["id=\"", "name=\""]).into_iter().map(str::to_owned));
            let targets = link_targets(&line).into_iter().filter(|target| is_relative(target));
            links.extend(targets.map(|target| Link::new(&page.path, at + 1, target)));
        }
        Self { links, anchors, lines: page.text.lines().count() }
    }
}

impl Link {
    fn new(page: &str, line: usize, target: &str) -> Self {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { Some(page.to_owned()) } else { resolve(page, file) };
        Self { line, target: target.to_owned(), path, anchor: anchor.to_owned() }
    }
}

fn check_link(page: &str, link: &Link, pages: &BTreeMap<&str, Page>, exists: &impl Fn(&str) -> bool) -> Option<String> {
    let place = format!("{page}:{}: link to {}", link.line, link.target);
    let Some(path) = &link.path else { return Some(format!("{place}: outside of the repository")) };
    let Some(target) = pages.get(path.as_str()) else {
        return (!exists(path)).then(|| format!("{place}: there is no such file"));
    };
    let is_there = link.anchor.is_empty() || target.anchors.contains(&link.anchor);
    (!is_there).then(|| format!("{place}: {path} has no such heading"))
}

/// Finds pages of the documentation that no index lists, and indexes that the start page does not link to.
fn check_indexes(pages: &BTreeMap<&str, Page>) -> Vec<String> {
    let targets = |page: &str| -> BTreeSet<&str> {
        pages.get(page).into_iter().flat_map(|page| &page.links).filter_map(|link| link.path.as_deref()).collect()
    };
    let start = targets(START_PAGE);
    let indexed: BTreeSet<&str> = INDEXES.iter().flat_map(|index| targets(index)).collect();
    let contents = targets(BOOK_CONTENTS);
    let mut findings = Vec::new();
    for index in INDEXES.iter().filter(|index| !start.contains(*index)) {
        findings.push(format!("{START_PAGE}: no link to the index {index}; add it"));
    }
    let documentation = pages.keys().filter(|path| path.starts_with(DOCUMENTATION) && **path != BOOK_CONTENTS);
    for page in documentation {
        if !INDEXES.contains(page) && !indexed.contains(page) {
            findings.push(format!("{page}: no index lists this page; add it to {}", INDEXES[0]));
        }
        if !contents.contains(page) {
            findings.push(format!("{page}: the book does not list this page; add it to {BOOK_CONTENTS}"));
        }
    }
    findings
}

/// Returns the lines of a page; those of fenced blocks are empty.
fn blank_fences(text: &str) -> Vec<&str> {
    let mut fence: Option<&str> = None;
    let blank = |line| {
        let start: &str = str::trim_start(line);
        let marks = start.len() - start.trim_start_matches('`').len();
        match fence {
            Some(open) if marks >= open.len() => fence = None,
            None if marks >= 3 => fence = Some(&start[..marks]),
            None => return line,
            Some(_) => {}
        }
        ""
    };
    text.lines().map(blank).collect()
}

/// Returns the line without the content of its code spans.
fn blank_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// Returns the text of a heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    text.strip_prefix(' ').filter(|_| (1..=6).contains(&level)).map(str::trim)
}

/// Returns the anchor of a heading by GitHub's rule: lower case, punctuation left out, blanks as hyphens. mdBook's rule
/// gives the same for the headings of this repository.
fn slug(heading: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
    let text: String = link_texts(heading).chars().filter(is_kept).collect();
    text.to_lowercase().replace(' ', "-")
}

/// Returns a line with each inline link replaced by its text.
fn link_texts(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text + rest
}

/// Returns the targets of the links in a line: inline links and images, definitions, and attributes of HTML.
fn link_targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .and_then(|(_, rest)| rest.split_whitespace().next());
    let attributes = attribute_values(line, &["href=\"", "src=\"", "srcset=\""]);
    inline.chain(definition).chain(attributes).collect()
}

fn attribute_values<'l>(line: &'l str, names: &[&str]) -> Vec<&'l str> {
    let values = names.iter().flat_map(|name| line.split(name).skip(1).filter_map(|rest| rest.split('"').next()));
    values.collect()
}

/// Reports whether a target is a place of the repository, not an address such as `https:`.
fn is_relative(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    !scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)))
}

/// Returns the path from the root that a path in a page means; `None` if it is outside.
fn resolve(page: &str, target: &str) -> Option<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    /// Returns the findings on a page of a folder that no index has to list.
    fn link_findings(text: &str) -> Vec<String> {
        let other = page("tests/b.md", "# B\n\n## How it works, in `code`\n## Twice\n## Twice\n<a id=\"mark\"></a>\n");
        let pages = [page("README.md", INDEX_LINKS), page("tests/a.md", text), other];
        check_pages(&pages, |path| ["tests", "tests/data.txt", INDEXES[0], INDEXES[1]].contains(&path))
    }

    const INDEX_LINKS: &str = "[documentation](docs/README.md) [decisions](docs/decisions/README.md)\n";

    #[test]
    fn links_to_files_and_headings_pass() {
        let text = "# A\n[b](b.md) [c](./b.md#how-it-works-in-code) [d](../tests/b.md#twice-1)\n\
                    [e](#a) [f](data.txt) [g](https://example.org/x.md) ![h](.)\n[i]: b.md#mark\n\
                    <img src=\"data.txt\"> <source srcset=\"data.txt\"> [j](mailto:a@example.org)\n";
        assert_eq!(link_findings(text), [""; 0]);
    }

    #[test]
    fn missing_files_and_headings_are_found_with_their_line() {
        let text = "# A\n[b](c.md)\n[c](b.md#none) [d](#none)\n<img src=\"none.svg\">\n[e](../../x.md)\n";
        let expected = [
            "tests/a.md:2: link to c.md: there is no such file",
            "tests/a.md:3: link to b.md#none: tests/b.md has no such heading",
            "tests/a.md:3: link to #none: tests/a.md has no such heading",
            "tests/a.md:4: link to none.svg: there is no such file",
            "tests/a.md:5: link to ../../x.md: outside of the repository",
        ];
        assert_eq!(link_findings(text), expected);
    }

    #[test]
    fn paths_on_the_pages_of_the_architecture_name_modules_and_items() {
        let source = |path: &str, text: &str| page(path, text);
        let sources = [
            source("crates/godwit-formats/src/lib.rs", "mod vcf;\npub use vcf::Reader;\n"),
            source(
                "crates/godwit-formats/src/vcf/reader.rs",
                "/// A type Comment.\npub(crate) struct Reader<R> {}\nfn open() {}\n",
            ),
            source("crates/godwit-transfer-session/src/lib.rs", "pub const fn reduce() {}\n"),
        ];
        let known = "`formats::vcf` `formats::Reader` `godwit_formats::vcf::Reader::open` `vcf::reader` `vcf::Reader`\n\
            `transfer_session::reduce` `std` `Reader::x` `a::b()`\n";
        let unknown = "`formats::bam` `formats::Comment` `formats::Read`\n```\n`formats::bam`\n```\n`vcf::header` `formats::reader`\n";
        let name = ARCHITECTURE_PAGES[0];
        assert_eq!(check_module_paths(&[page(name, known), page("README.md", unknown)], &sources), [""; 0]);
        let expected = [
            "1: there is no formats::bam",
            "1: there is no formats::Comment",
            "1: there is no formats::Read",
            "5: there is no vcf::header",
            "5: there is no formats::reader",
        ];
        assert_eq!(check_module_paths(&[page(name, unknown)], &sources), expected.map(|text| format!("{name}:{text}")));
    }

    #[test]
    fn code_has_neither_links_nor_headings() {
        let text = "`[b](c.md)`\n```sh\n# none\n[b](c.md)\n```\n````md\n```\n[b](c.md)\n````\n[c](#none)\n";
        assert_eq!(link_findings(text), ["tests/a.md:10: link to #none: tests/a.md has no such heading"]);
    }

    #[test]
    fn a_page_has_at_most_250_lines_unless_a_benchmark_wrote_it() {
        let long = "line\n".repeat(MAX_PAGE_LINES + 1);
        assert_eq!(link_findings(&long), ["tests/a.md: 251 lines, the limit is 250; split it by subject"]);
        assert_eq!(link_findings(&long[5..]), [""; 0]);
        let pages = [page("README.md", INDEX_LINKS), page("bench/results/a.md", &long)];
        assert_eq!(check_pages(&pages, |_| true), [""; 0]);
    }

    #[test]
    fn every_page_of_the_documentation_is_in_an_index_and_in_the_book() {
        let start = page("README.md", "[documentation](docs/README.md)\n");
        let index = page(INDEXES[0], "[a](guide/a.md) [decisions](decisions/README.md)\n");
        let decisions = page(INDEXES[1], "[1](0001-x.md)\n");
        let contents =
            page(BOOK_CONTENTS, "[i](README.md) [a](guide/a.md) [d](decisions/README.md) [1](decisions/0001-x.md)\n");
        let listed = ["docs/guide/a.md", "docs/decisions/0001-x.md"].map(|path| page(path, ""));
        let [a, one] = listed;
        let pages = [start, index, decisions, contents, a, one, page("docs/guide/b.md", "")];
        let expected = [
            "README.md: no link to the index docs/decisions/README.md; add it",
            "docs/guide/b.md: no index lists this page; add it to docs/README.md",
            "docs/guide/b.md: the book does not list this page; add it to docs/SUMMARY.md",
        ];
        assert_eq!(check_pages(&pages, |_| true), expected);
    }
}
