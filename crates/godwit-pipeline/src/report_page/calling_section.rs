//! The section on variant calling, which is added to the report page of the alignment when the calling is finished.

use serde_json::Value;

use super::html::{escape_html, format_thousands};
use super::report_tables::{Row, figure, table};
use super::section_html;

/// The HTML tag that ends all sections of a page. The new section is inserted before it.
const MAIN_END_TAG: &str = "</main>\n";
/// HTML comment by which a page with this section is recognised.
const MARKER: &str = "<!-- godwit:calling -->\n";
/// Heading of this section in pages of earlier versions of godwit, which lack the comment.
const EARLIER_HEADING: &str = "<h2>Variants</h2>";
/// Heading of the section.
const SECTION_TITLE: &str = "Variants";

/// Adds a section about variant calling to a report page. Returns `None` if the page already has this section, or is
/// not a report page of godwit. `called`: the report of the calling.
pub fn add_calling_section(page: &str, called: &Value) -> Option<String> {
    let (before, behind) = page.rsplit_once(MAIN_END_TAG)?;
    let is_there = before.contains(MARKER) || before.contains(EARLIER_HEADING);
    (!is_there).then(|| {
        format!(
            "{before}{MARKER}{}{MAIN_END_TAG}{behind}",
            section_html(SECTION_TITLE, &[summary_figure(called), stages_figure(called)])
        )
    })
}

fn summary_figure(called: &Value) -> String {
    let text = |name: &str| escape_html(called[name].as_str().unwrap_or_default());
    let number = |name: &str| format_thousands(called[name].as_u64().unwrap_or_default());
    let regions = called["regions"].as_array().map_or(0, Vec::len) as u64;
    let rows = [
        ("Caller", format!("{} {}", text("caller"), text("caller_version"))),
        ("Records", number("records")),
        ("Regions", format_thousands(regions)),
        ("Called while the BAM was written", number("regions_while_writing")),
    ];
    let rows: String = rows.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n")).collect();
    figure("Calling", "Caller and results.", &format!("<dl class=\"facts\">\n{rows}</dl>\n"))
}

fn stages_figure(called: &Value) -> String {
    let stages: &[Value] = called["stages"].as_array().map_or(&[], Vec::as_slice);
    let seconds = |stage: &Value| stage["seconds"].as_f64().unwrap_or_default();
    let longest = stages.iter().map(seconds).fold(1e-9, f64::max);
    let row = |stage: &Value| Row {
        cells: vec![escape_html(stage["name"].as_str().unwrap_or_default()), format!("{:.1}", seconds(stage))],
        bar: seconds(stage) / longest,
    };
    let rows: Vec<Row> = stages.iter().map(row).collect();
    figure(
        "Calling time after the BAM",
        "Time of calling after the BAM was written.",
        &table(&["Stage", "Seconds"], &rows),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_gets_the_section_once() {
        let called = json!({"caller": "<b>", "records": 1200, "regions": [1, 2], "regions_while_writing": 1,
            "stages": [{"name": "call", "seconds": 2.0}]});
        let page = add_calling_section("<main>\n</main>\n<footer></footer>", &called).unwrap();
        assert!(
            page.starts_with("<main>\n<!-- godwit:calling -->\n<section>\n<h2>Variants</h2>")
                && page.ends_with("</main>\n<footer></footer>")
        );
        assert!(page.contains("&lt;b&gt;") && page.contains("<dd>1,200</dd>"), "{page}");
        assert_eq!(add_calling_section(&page, &called), None);
        assert_eq!(add_calling_section("no page", &called), None);
    }
}
