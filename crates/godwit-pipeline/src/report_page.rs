//! The report page `report.html` of a job: a self-contained HTML page with plots.
//!
//! Input: the report and the metrics of a job. Output: HTML with inline CSS and SVG. The page contains no scripts and
//! makes no network requests; its content security policy enforces this. All values from inputs are escaped. If two
//! jobs have equal results, their pages differ only in times and paths.

mod calling_section;
mod figures;
pub mod html;
mod picard_section;
pub mod plot;
pub mod report_tables;

use godwit_kernels::markdup::DuplicationMetrics;

use crate::job_report::JobReport;
use crate::key_numbers::KeyNumbers;
use crate::reduce::Qc;
pub use calling_section::add_calling_section;
use html::{escape_html, format_thousands};
pub use picard_section::MetricsTable;

const STYLE: &str = include_str!("report_page/style.css");

/// The data of a report page.
pub struct ReportPage<'p> {
    /// Name of the sample; if it is unknown, the name of the file.
    pub sample: &'p str,
    /// Path of the reference; `None` if no reference is given.
    pub reference: Option<&'p str>,
    /// The report of the job.
    pub report: &'p JobReport,
    /// The most requested metrics of the job.
    pub key_numbers: &'p KeyNumbers,
    /// The quality metrics of the output.
    pub qc: &'p Qc,
    /// The metrics of duplicate marking; `None` if duplicates were not marked.
    pub duplicate_metrics: Option<&'p DuplicationMetrics>,
}

impl ReportPage<'_> {
    /// Returns the report page as HTML.
    pub fn to_html(&self) -> String {
        let mut page = String::new();
        page += &self.key_numbers();
        page += &section_html(
            "Reads",
            &[self.qualities(), self.gc_by_cycle(), self.gc_content(), self.mapping_qualities()],
        );
        page += &section_html("Library", &[self.insert_sizes(), self.duplicate_sets(), self.libraries()]);
        page += &section_html("Coverage", &[self.coverage(), self.contigs()]);
        page += &section_html("Picard metrics", &self.picard_figures());
        page += &section_html("Run", &[self.stages(), self.origin_table()]);
        document_html(self.sample, "Sequencing report", &self.lead_paragraph(), &page, &self.report.godwit)
    }

    fn lead_paragraph(&self) -> String {
        let numbers = self.key_numbers;
        let against = self.reference.map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            format!(" against <b>{}</b>", escape_html(name))
        });
        let coverage = numbers.mean_coverage.map(|mean| format!(", {mean:.1}× mean coverage"));
        format!(
            "{} reads, {} bases{}{}.",
            format_thousands(numbers.reads),
            format_thousands(numbers.bases),
            against.unwrap_or_default(),
            coverage.unwrap_or_default()
        )
    }

    fn key_numbers(&self) -> String {
        let numbers = self.key_numbers;
        let share = |value: f64| format!("{value:.2}<small> %</small>");
        let mut cells = vec![
            ("Reads", Some(format_thousands(numbers.reads))),
            ("Mapped", Some(share(numbers.mapped_percent))),
            ("Properly paired", numbers.properly_paired_percent.map(share)),
            ("Duplicates", numbers.duplicate_percent.map(share)),
            ("Optical duplicate pairs", numbers.optical_duplicate_pairs.map(format_thousands)),
            ("Estimated library size", numbers.estimated_library_size.map(format_thousands)),
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

/// Returns a section with a heading and its figures as HTML; empty if all figures are. `title` is HTML too.
pub fn section_html(title: &str, figures: &[String]) -> String {
    let content = figures.concat();
    if content.is_empty() {
        return content;
    }
    format!("<section>\n<h2>{title}</h2>\n<div class=\"figures\">\n{content}</div>\n</section>\n")
}

/// A script at the end of a page. Browsers run it only if its checksum is right.
#[derive(Clone, Copy)]
pub struct PageScript {
    /// The script.
    pub text: &'static str,
    /// SHA-256 of the script, base64.
    pub sha256: &'static str,
}

/// Returns a complete HTML page without scripts. `lead` and `content` are HTML; all other arguments are plain text.
pub fn document_html(name: &str, kicker: &str, lead: &str, content: &str, version: &str) -> String {
    scripted_document_html(name, kicker, lead, content, version, None)
}

/// As [`document_html`], with a script.
pub fn scripted_document_html(
    name: &str,
    kicker: &str,
    lead: &str,
    content: &str,
    version: &str,
    script: Option<PageScript>,
) -> String {
    let allowed = script.map_or(String::new(), |script| format!("; script-src 'sha256-{}'", script.sha256));
    let script = script.map_or(String::new(), |script| format!("<script>{}</script>\n", script.text));
    let [name, kicker, version] = [name, kicker, version].map(escape_html);
    let (title, mut page) = (kicker.to_lowercase(), String::new());
    page += &format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'{allowed}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{name}: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<p class=\"kicker\">{kicker}</p>\n\
         <h1>{name}</h1>\n<p class=\"lead\">{lead}</p>\n</header>\n<main>\n"
    );
    page += content;
    page += &format!("</main>\n<footer><p>Made by godwit {version}.</p></footer>\n{script}</body>\n</html>\n");
    page
}
