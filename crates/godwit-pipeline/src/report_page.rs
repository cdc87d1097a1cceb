//! `report.html`: one page about a run, with plots, that needs nothing but itself.
//!
//! In: the report of the run and the metrics it came with. Out: HTML with inline CSS and SVG; no script, no request to
//! anywhere, which the page's own content security policy enforces. Everything that came from input is escaped. Only
//! times and paths differ between runs with equal results.

mod calling_section;
mod figures;
mod html;
mod plot;
mod tables;
mod workflow_page;

use godwit_kernels::markdup::Metrics;

use crate::key_numbers::KeyNumbers;
use crate::reduce::Qc;
use crate::run_report::RunReport;
pub(crate) use calling_section::with_calling;
use html::{escaped, grouped};
pub(crate) use workflow_page::WorkflowPage;

const STYLE: &str = include_str!("report_page/style.css");

/// What the page is about.
pub(crate) struct ReportPage<'p> {
    /// The name of the sample, or of the file.
    pub(crate) sample: &'p str,
    /// The reference, where one was given.
    pub(crate) reference: Option<&'p str>,
    /// The run.
    pub(crate) run: &'p RunReport,
    /// Its numbers.
    pub(crate) numbers: &'p KeyNumbers,
    /// Its metrics.
    pub(crate) qc: &'p Qc,
    /// What marking found.
    pub(crate) duplication: Option<&'p Metrics>,
}

impl ReportPage<'_> {
    /// The page.
    pub(crate) fn to_html(&self) -> String {
        let mut page = String::new();
        page += &self.key_numbers();
        page += &section("Reads", &[self.qualities(), self.gc_by_cycle(), self.gc_content(), self.mapping_qualities()]);
        page += &section("Library", &[self.insert_sizes(), self.duplicate_sets(), self.libraries()]);
        page += &section("Coverage", &[self.coverage(), self.contigs()]);
        page += &section("Run", &[self.stages(), self.facts()]);
        document(self.sample, "Sequencing report", &self.lead(), &page, &self.run.godwit)
    }

    fn lead(&self) -> String {
        let numbers = self.numbers;
        let against = self.reference.map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            format!(" against <b>{}</b>", escaped(name))
        });
        let coverage = numbers.mean_coverage.map(|mean| format!(", {mean:.1}× mean coverage"));
        format!(
            "{} reads, {} bases{}{}.",
            grouped(numbers.reads),
            grouped(numbers.bases),
            against.unwrap_or_default(),
            coverage.unwrap_or_default()
        )
    }

    fn key_numbers(&self) -> String {
        let numbers = self.numbers;
        let share = |value: f64| format!("{value:.2}<small> %</small>");
        let mut cells = vec![
            ("Reads", Some(grouped(numbers.reads))),
            ("Mapped", Some(share(numbers.mapped_percent))),
            ("Properly paired", numbers.properly_paired_percent.map(share)),
            ("Duplicates", numbers.duplicate_percent.map(share)),
            ("Optical duplicate pairs", numbers.optical_duplicate_pairs.map(grouped)),
            ("Estimated library size", numbers.estimated_library_size.map(grouped)),
            ("Median insert size", numbers.median_insert.map(|size| format!("{size}<small> bp</small>"))),
            ("Mismatches", numbers.mismatch_percent.map(|value| format!("{value:.3}<small> %</small>"))),
            ("Mean coverage", numbers.mean_coverage.map(|mean| format!("{mean:.2}<small> ×</small>"))),
        ];
        let [ten, twenty, thirty] = match numbers.covered_percent {
            Some(shares) => shares.map(|value| Some(share(value))),
            None => [None, None, None],
        };
        cells.extend([
            ("Genome at 10× or more", ten),
            ("Genome at 20× or more", twenty),
            ("Genome at 30× or more", thirty),
        ]);
        let cells = cells.into_iter().map(|(label, value)| {
            let value = value.unwrap_or_else(|| "<span class=\"none\">not available</span>".into());
            format!("<div><dt>{label}</dt><dd>{value}</dd></div>\n")
        });
        format!("<dl class=\"numbers\" aria-label=\"Key numbers\">\n{}</dl>\n", cells.collect::<String>())
    }
}

fn section(title: &str, figures: &[String]) -> String {
    let content = figures.concat();
    if content.is_empty() {
        return content;
    }
    format!("<section>\n<h2>{title}</h2>\n<div class=\"figures\">\n{content}</div>\n</section>\n")
}

/// A whole page. `lead` and `content` are HTML, the others text.
fn document(name: &str, kicker: &str, lead: &str, content: &str, version: &str) -> String {
    let [name, kicker, version] = [name, kicker, version].map(escaped);
    let (title, mut page) = (kicker.to_lowercase(), String::new());
    page += &format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{name}: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<p class=\"kicker\">{kicker}</p>\n\
         <h1>{name}</h1>\n<p class=\"lead\">{lead}</p>\n</header>\n<main>\n"
    );
    page += content;
    page += &format!("</main>\n<footer><p>Made by godwit {version}.</p></footer>\n</body>\n</html>\n");
    page
}
