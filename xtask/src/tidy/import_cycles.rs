//! Rule on the modules of a crate: the imports between its top-level modules form no cycle.
//!
//! In: the sources. Out: one line per group of modules that import each other, with the shortest cycle and its places. An
//! import is a path that begins with `crate` or `super`, in a `use`, in code or in the arguments of a macro. A name that the
//! crate's root re-exports belongs to the module that it is from. Code for tests does not count: `#[cfg(test)]` items,
//! `tests.rs` and folders `tests`. It does not see methods and fields of values whose type is not named.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::SourceFile;

/// Imports that may be part of a cycle: crate, importing module, imported module. This list only becomes shorter.
const CYCLE_EXCEPTIONS: &[CycleException] = &[];

type CycleException = (&'static str, &'static str, &'static str);

/// Imports between modules: the importing and the imported module, with the place of the first such import, `file:line`.
type Imports = BTreeMap<(String, String), String>;

/// Returns the findings on all crates.
pub fn check_import_cycles(files: &[SourceFile]) -> Vec<String> {
    check_with_exceptions(files, CYCLE_EXCEPTIONS)
}

fn check_with_exceptions(files: &[SourceFile], exceptions: &[CycleException]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut needed: BTreeSet<CycleException> = BTreeSet::new();
    for (name, sources) in crates(files) {
        let imports = match read_imports(&sources) {
            Ok(imports) => imports,
            Err(finding) => {
                findings.push(finding);
                continue;
            }
        };
        let edges: Vec<(&str, &str)> = imports.keys().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        let reachable = reachable_modules(&edges);
        let excepted = exceptions.iter().filter(|(owner, from, to)| {
            *owner == name && edges.contains(&(*from, *to)) && reaches(&reachable, to, from)
        });
        needed.extend(excepted);
        let is_excepted = |(from, to): &(&str, &str)| needed.contains(&(name, *from, *to));
        let edges: Vec<(&str, &str)> = edges.into_iter().filter(|import| !is_excepted(import)).collect();
        findings.extend(check_crate(&imports, &edges));
    }
    let stale = exceptions.iter().filter(|exception| !needed.contains(*exception));
    findings.extend(stale.map(|(name, from, to)| {
        format!("{name}: the import of {to} by {from} is in no cycle; remove it from CYCLE_EXCEPTIONS")
    }));
    findings
}

/// Returns the sources of each crate by its name. The root is the first, and a module is before those in its folder.
fn crates(files: &[SourceFile]) -> BTreeMap<&str, Vec<(Vec<String>, &SourceFile)>> {
    let mut crates: BTreeMap<&str, Vec<(Vec<String>, &SourceFile)>> = BTreeMap::new();
    let is_library = |folder: &str| files.iter().any(|file| file.path == format!("{folder}/src/lib.rs"));
    for file in files {
        let Some((folder, path)) = file.path.split_once("/src/") else { continue };
        let Some(path) = path.strip_suffix(".rs") else { continue };
        let module = match path {
            "lib" => Vec::new(),
            "main" if is_library(folder) => continue,
            "main" => Vec::new(),
            _ => path.split('/').map(str::to_owned).collect(),
        };
        let name = folder.rsplit('/').next().unwrap_or(folder);
        crates.entry(name).or_default().push((module, file));
    }
    for sources in crates.values_mut() {
        sources.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    crates.retain(|_, sources| sources[0].0.is_empty());
    crates
}

/// Returns the imports between the top-level modules of a crate.
fn read_imports(sources: &[(Vec<String>, &SourceFile)]) -> Result<Imports, String> {
    let mut reader = ImportReader::default();
    for (module, file) in sources {
        let is_test = module.iter().any(|part| part == "tests")
            || (1..=module.len()).any(|depth| reader.test_modules.contains(&module[..depth]));
        if is_test {
            continue;
        }
        let tokens: TokenStream =
            file.text.parse().map_err(|error| format!("{}: cannot be read as Rust: {error}", file.path))?;
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        if module.is_empty() {
            reader.read_root(&tokens);
        }
        reader.path = &file.path;
        reader.read_module(module, &tokens);
    }
    Ok(reader.imports)
}

/// Reads the imports of the files of one crate.
#[derive(Default)]
struct ImportReader<'f> {
    /// The top-level module of each name in the root: modules themselves, and re-exported items.
    owners: BTreeMap<String, String>,
    /// Modules that are compiled for tests only.
    test_modules: BTreeSet<Vec<String>>,
    /// The file that is read.
    path: &'f str,
    imports: Imports,
}

impl ImportReader<'_> {
    /// Reads which modules the root declares, and from which of them it re-exports items.
    fn read_root(&mut self, tokens: &[TokenTree]) {
        for (at, token) in tokens.iter().enumerate() {
            if is_ident(Some(token), "mod")
                && let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
            {
                self.owners.insert(name.to_string(), name.to_string());
            }
        }
        for (at, _) in tokens.iter().enumerate().filter(|(_, token)| is_ident(Some(token), "use")) {
            let end = tokens[at..].iter().position(|token| is_punct(Some(token), ';')).unwrap_or(tokens.len() - at);
            self.read_re_exports(None, &tokens[at + 1..at + end]);
        }
    }

    /// Records the items of a tree of imports in the root. `module` is the first name of the path before it.
    fn read_re_exports(&mut self, module: Option<&str>, tree: &[TokenTree]) {
        match tree {
            [TokenTree::Ident(name), colon, _, rest @ ..] if is_punct(Some(colon), ':') => {
                let name = name.to_string();
                let is_root = module.is_none() && ["crate", "self"].contains(&name.as_str());
                let module = if is_root { None } else { Some(module.unwrap_or(&name)) };
                self.read_re_exports(module, rest);
            }
            [TokenTree::Group(group), ..] => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in tokens.split(|token| is_punct(Some(token), ',')) {
                    self.read_re_exports(module, part);
                }
            }
            [TokenTree::Ident(_), .., TokenTree::Ident(name)] | [TokenTree::Ident(name)] => {
                if let Some(module) = module.filter(|module| self.owners.contains_key(*module)) {
                    self.owners.entry(name.to_string()).or_insert(module.to_owned());
                }
            }
            _ => {}
        }
    }

    fn read_module(&mut self, module: &[String], tokens: &[TokenTree]) {
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Punct(hash) if hash.as_char() == '#' && is_test_attribute(tokens.get(at + 1)) => {
                    at = self.skip_item(module, tokens, at);
                }
                TokenTree::Ident(ident) if ident == "mod" => {
                    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                        (tokens.get(at + 1), tokens.get(at + 2))
                    {
                        self.read_module(&child(module, name), &body.stream().into_iter().collect::<Vec<_>>());
                        at += 2;
                    }
                }
                TokenTree::Ident(ident) if ident == "crate" && is_punct(tokens.get(at + 1), ':') => {
                    self.read_path(module, &[], tokens.get(at + 3..).unwrap_or(&[]));
                }
                TokenTree::Ident(ident) if ident == "super" && !(at > 0 && is_punct(tokens.get(at - 1), ':')) => {
                    self.read_path(module, module, &tokens[at..]);
                }
                TokenTree::Group(group) => {
                    self.read_module(module, &group.stream().into_iter().collect::<Vec<_>>());
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Returns the last token of the item after a `#[cfg(test)]`, and records the module if it is one in another file.
    fn skip_item(&mut self, module: &[String], tokens: &[TokenTree], attribute: usize) -> usize {
        let mut at = attribute;
        while at < tokens.len() && !is_punct(tokens.get(at), ';') && !is_block(&tokens[at]) {
            if let (true, Some(TokenTree::Ident(name))) = (is_ident(tokens.get(at), "mod"), tokens.get(at + 1)) {
                self.test_modules.insert(child(module, name));
            }
            at += 1;
        }
        at
    }

    /// Records the modules that a path refers to. `base` is the module of the path before `rest`; `module` contains the path.
    fn read_path(&mut self, module: &[String], base: &[String], rest: &[TokenTree]) {
        match rest.first() {
            Some(TokenTree::Ident(name)) if name == "super" => {
                let parent = &base[..base.len().saturating_sub(1)];
                if is_punct(rest.get(1), ':') {
                    self.read_path(module, parent, rest.get(3..).unwrap_or(&[]));
                }
            }
            Some(TokenTree::Ident(name)) if base.is_empty() => {
                let (Some(from), Some(to)) = (module.first(), self.owners.get(&name.to_string())) else { return };
                if from != to {
                    let place = format!("{}:{}", self.path, name.span().start().line);
                    self.imports.entry((from.clone(), to.clone())).or_insert(place);
                }
            }
            Some(TokenTree::Group(group)) => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in tokens.split(|token| is_punct(Some(token), ',')) {
                    self.read_path(module, base, part);
                }
            }
            _ => {}
        }
    }
}

fn child(module: &[String], name: &proc_macro2::Ident) -> Vec<String> {
    module.iter().cloned().chain([name.to_string()]).collect()
}

fn is_ident(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == name)
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Reports whether a token is the part `[cfg(test)]` or `[cfg(all(test, ..))]` of an attribute.
fn is_test_attribute(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Returns a finding for each group of modules that import each other. `edges`: the imports that are checked.
fn check_crate(imports: &Imports, edges: &[(&str, &str)]) -> Vec<String> {
    let reachable = reachable_modules(edges);
    let mut findings = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (module, others) in &reachable {
        if !others.contains(module) || seen.contains(module) {
            continue;
        }
        let group: Vec<&str> = others.iter().copied().filter(|other| reaches(&reachable, other, module)).collect();
        seen.extend(&group);
        let cycle = shortest_cycle(edges, module);
        let place = |step: &[&str]| imports[&(step[0].to_owned(), step[1].to_owned())].as_str();
        let steps: Vec<String> =
            cycle.windows(2).map(|step| format!("{} imports {} at {}", step[0], step[1], place(step))).collect();
        findings.push(format!(
            "{}: the modules {} import each other: {}; move what both need to a module of its own",
            place(&cycle),
            group.join(", "),
            steps.join(", ")
        ));
    }
    findings
}

/// Returns the modules that each module reaches by one import or more.
fn reachable_modules<'m>(edges: &[(&'m str, &'m str)]) -> BTreeMap<&'m str, BTreeSet<&'m str>> {
    let mut direct: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in edges {
        direct.entry(from).or_default().insert(to);
    }
    let reachable = |module: &'m str| {
        let mut found = BTreeSet::new();
        let mut next = vec![module];
        while let Some(module) = next.pop() {
            next.extend(direct.get(module).into_iter().flatten().filter(|to| found.insert(**to)));
        }
        (module, found)
    };
    direct.keys().map(|module| reachable(module)).collect()
}

fn reaches(reachable: &BTreeMap<&str, BTreeSet<&str>>, from: &str, to: &str) -> bool {
    reachable.get(from).is_some_and(|modules| modules.contains(to))
}

/// Returns a shortest cycle through the module, which is the first and the last of it.
fn shortest_cycle<'m>(edges: &[(&'m str, &'m str)], module: &'m str) -> Vec<&'m str> {
    let mut paths = VecDeque::from([vec![module]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        for (_, to) in edges.iter().filter(|(from, _)| Some(from) == path.last()) {
            let path: Vec<&str> = path.iter().copied().chain([*to]).collect();
            if *to == module {
                return path;
            }
            if seen.insert(*to) {
                paths.push_back(path);
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<SourceFile> {
        let source =
            |(path, text): &(&str, &str)| SourceFile { path: format!("crates/c/src/{path}"), text: (*text).to_owned() };
        files.iter().map(source).collect()
    }

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        check_import_cycles(&sources(files))
    }

    const ROOT: (&str, &str) = ("lib.rs", "pub mod a;\nmod b;\nmod c;\npub use b::{B, deep::Deep as D};\n");

    #[test]
    fn a_cycle_is_reported_with_its_places() {
        let files = [ROOT, ("a.rs", "\nuse crate::b::X;\n"), ("b.rs", "use crate::{a::Y, c};"), ("c.rs", "")];
        let found = findings(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/c/src/a.rs:2: the modules a, b import each other:"), "{found:?}");
        assert!(
            found[0].contains("a imports b at crates/c/src/a.rs:2, b imports a at crates/c/src/b.rs:1"),
            "{found:?}"
        );
        let one_way = [ROOT, ("a.rs", "use crate::{b::X, c};"), ("b.rs", "use crate::c;"), ("c.rs", "")];
        assert_eq!(findings(&one_way), [""; 0]);
    }

    #[test]
    fn modules_of_several_cycles_are_one_group() {
        let files = [ROOT, ("a.rs", "use crate::b;"), ("b.rs", "use crate::{a, c};"), ("c.rs", "use crate::b;")];
        let found = findings(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("the modules a, b, c import each other"), "{found:?}");
    }

    #[test]
    fn imports_are_found_in_use_in_code_in_macros_and_in_inner_modules() {
        for import in [
            "use crate::b;",
            "use super::b;",
            "use super::{c, b::X};",
            "pub(crate) use crate::{c, b};",
            "use crate::B;",
            "use crate::D;",
            "fn f() -> crate::b::X { todo() }",
            "fn f() { let x = vec![format!(\"{}\", crate::b::x())]; }",
            "mod inner { use super::super::b; }",
            "mod inner { use crate::b; }",
        ] {
            assert_eq!(
                findings(&[ROOT, ("a.rs", import), ("b.rs", "use crate::a;"), ("c.rs", "")]).len(),
                1,
                "{import}"
            );
        }
        let inner = [ROOT, ("a.rs", "mod x;"), ("a/x.rs", "use super::super::b;"), ("b.rs", "use crate::a;")];
        assert_eq!(findings(&inner).len(), 1);
    }

    #[test]
    fn comments_literals_visibilities_and_own_parts_are_no_imports() {
        for text in [
            "// use crate::b;",
            "/// [`crate::b`]\nstruct A;",
            "const A: &str = \"crate::b\";",
            "pub(crate) fn b() {}",
            "use self::b::X;\nmod b {}",
            "mod inner { use super::b; }",
            "use other::b;",
        ] {
            let found = findings(&[ROOT, ("a.rs", text), ("b.rs", "use crate::a;"), ("c.rs", "")]);
            assert_eq!(found, [""; 0], "{text}");
        }
    }

    #[test]
    fn code_for_tests_does_not_count() {
        for text in [
            "#[cfg(test)]\nuse crate::b;",
            "#[cfg(test)]\nmod tests { use crate::b; }",
            "#[cfg(all(test, unix))]\n#[allow(unused)]\nfn f() { crate::b::x(); }",
        ] {
            let found = findings(&[ROOT, ("a.rs", text), ("b.rs", "use crate::a;"), ("c.rs", "")]);
            assert_eq!(found, [""; 0], "{text}");
        }
        let after = "#[cfg(test)]\nmod tests { use crate::c; }\nuse crate::b;";
        assert_eq!(findings(&[ROOT, ("a.rs", after), ("b.rs", "use crate::a;"), ("c.rs", "")]).len(), 1);
        for path in ["a/tests.rs", "a/tests/more.rs", "a/samples.rs", "a/samples/more.rs"] {
            let own = ("a.rs", "#[cfg(test)]\nmod samples;");
            let found = findings(&[ROOT, own, (path, "use crate::b;"), ("b.rs", "use crate::a;"), ("c.rs", "")]);
            assert_eq!(found, [""; 0], "{path}");
        }
    }

    #[test]
    fn an_exception_permits_its_import_until_it_is_not_needed() {
        let cyclic = [ROOT, ("a.rs", "use crate::b;"), ("b.rs", "use crate::a;"), ("c.rs", "")];
        assert_eq!(check_with_exceptions(&sources(&cyclic), &[("c", "b", "a")]), [""; 0]);
        let other = check_with_exceptions(&sources(&cyclic), &[("c", "b", "c")]);
        assert_eq!(other.len(), 2, "{other:?}");
        let one_way = [ROOT, ("a.rs", ""), ("b.rs", "use crate::a;"), ("c.rs", "")];
        let stale = check_with_exceptions(&sources(&one_way), &[("c", "b", "a")]);
        assert_eq!(stale, ["c: the import of a by b is in no cycle; remove it from CYCLE_EXCEPTIONS"]);
    }

    #[test]
    fn crates_are_checked_apart_and_a_file_that_is_not_rust_is_reported() {
        let mut files = sources(&[ROOT, ("a.rs", "use crate::b;"), ("b.rs", ""), ("c.rs", "")]);
        let other = |path: &str, text: &str| SourceFile { path: format!("sim/src/{path}"), text: text.to_owned() };
        files.extend([other("main.rs", "mod a;\nmod b;\n"), other("a.rs", ""), other("b.rs", "use crate::a;")]);
        assert_eq!(check_import_cycles(&files), [""; 0]);
        files.push(other("c.rs", "fn f( {"));
        assert_eq!(check_import_cycles(&files).len(), 1);
    }
}
