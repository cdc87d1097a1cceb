//! The list of verbs in `godwit --help` and in the reference, grouped by topic. clap can only group options, so this module writes the list
//! into the help template.

use clap::{Command, Subcommand as _};

use super::Verb;

/// Headings of the groups, each with its verbs, in the order of the help.
pub(crate) const VERB_GROUPS: [(&str, &[&str]); 7] = [
    ("Reads", &["align", "index", "markdup", "run"]),
    ("Quality", &["metrics", "recalibrate", "verify"]),
    ("Variants", &["call", "filter", "compare", "variants"]),
    ("Data", &["query", "score", "serve", "token", "policy", "audit"]),
    ("Search", &["search"]),
    ("Transfer", &["copy", "mount", "pack", "unpack", "collection"]),
    ("Operations", &["doctor", "plan", "bench", "config", "demo", "completions", "man", "help"]),
];
/// The text that `godwit` prints without arguments.
pub(crate) const SHORT_HELP: &str = "\
godwit aligns reads, calls variants, and queries, serves and copies the results.

Examples:
  godwit demo
      make a small genome and its reads, align, call, and compare with the truth
  godwit index ref.fa
  godwit align --reference ref.fa --reads R1.fq.gz R2.fq.gz --sample S --out out --call
      FASTQ to sorted, marked BAM, VCF, metrics and a report
  godwit query \"SELECT contig, count(*) FROM reads('S.bam') GROUP BY contig\" --data out
  godwit serve --root out
      the same tables for Python, R and a browser
  godwit doctor
      the programs and limits of this host, with advice

`godwit --help` lists all verbs, `godwit VERB --help` the options of a verb.";

/// Width in characters of the column of verb names, which follows two spaces of indentation.
const NAME_WIDTH: usize = 12;

/// Returns the clap template of `godwit --help`, which contains the list of verbs.
pub(super) fn help_template() -> String {
    let verbs = Verb::augment_subcommands(Command::new("godwit"));
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in VERB_GROUPS {
        text += &format!("\n{heading}:\n");
        for name in names {
            // Omit verbs whose Cargo feature is disabled; clap does not know them.
            let about = match *name {
                "help" => Some("Print this message or the help of a verb".to_owned()),
                name => verbs.find_subcommand(name).and_then(|verb| verb.get_about()).map(ToString::to_string),
            };
            text += &about.map(|about| format!("  {name:<NAME_WIDTH$} {about}\n")).unwrap_or_default();
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_examples_of_the_short_help_are_valid() {
        let examples: Vec<&str> = SHORT_HELP.lines().filter(|line| line.starts_with("  godwit ")).collect();
        assert_eq!(examples.len(), 6);
        for example in examples {
            // After splitting the text at quotes, every second piece is a quoted text.
            let words = example.trim().split('"').enumerate().flat_map(|(at, piece)| match at % 2 {
                0 => piece.split_whitespace().collect(),
                _ => vec![piece],
            });
            assert!(crate::cli::Cli::command().try_get_matches_from(words).is_ok(), "{example}");
        }
    }

    #[test]
    fn every_visible_verb_is_in_one_group() {
        let verbs = Verb::augment_subcommands(Command::new("godwit"));
        let mut visible: Vec<&str> =
            verbs.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        visible.push("help");
        let mut grouped: Vec<&str> = VERB_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
        assert!(grouped.iter().all(|name| name.len() < NAME_WIDTH), "descriptions begin in one column");
    }
}
