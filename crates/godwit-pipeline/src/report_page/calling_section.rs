//! What calling did, as a section of the page about the alignment that it began with.

use serde_json::Value;

use super::html::{escaped, grouped};
use super::section;
use super::tables::{Row, figure, table};

/// What comes behind all sections of a page.
const END: &str = "</main>\n";
/// A comment in pages that have this section.
const MARKER: &str = "<!-- godwit:calling -->\n";
/// A heading in pages of earlier versions that have it; they have no marker.
const EARLIER_HEADING: &str = "<h2>Variants</h2>";
/// The heading.
const TITLE: &str = "Variants";

/// A page with a section on calling, made of the report of calling; `None` where it has one, or is no such page.
pub(crate) fn with_calling(page: &str, called: &Value) -> Option<String> {
    let (before, behind) = page.rsplit_once(END)?;
    let is_there = before.contains(MARKER) || before.contains(EARLIER_HEADING);
    (!is_there).then(|| format!("{before}{MARKER}{}{END}{behind}", section(TITLE, &[facts(called), stages(called)])))
}

fn facts(called: &Value) -> String {
    let text = |name: &str| escaped(called[name].as_str().unwrap_or_default());
    let number = |name: &str| grouped(called[name].as_u64().unwrap_or_default());
    let regions = called["regions"].as_array().map_or(0, Vec::len) as u64;
    let rows = [
        ("Caller", format!("{} {}", text("caller"), text("caller_version"))),
        ("Records", number("records")),
        ("Regions", grouped(regions)),
        ("Called while the BAM was written", number("regions_while_writing")),
    ];
    let rows: String = rows.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n")).collect();
    figure("Calling", "What was called, by what.", &format!("<dl class=\"facts\">\n{rows}</dl>\n"))
}

fn stages(called: &Value) -> String {
    let stages: &[Value] = called["stages"].as_array().map_or(&[], Vec::as_slice);
    let seconds = |stage: &Value| stage["seconds"].as_f64().unwrap_or_default();
    let longest = stages.iter().map(seconds).fold(1e-9, f64::max);
    let row = |stage: &Value| Row {
        cells: vec![escaped(stage["name"].as_str().unwrap_or_default()), format!("{:.1}", seconds(stage))],
        bar: seconds(stage) / longest,
    };
    let rows: Vec<Row> = stages.iter().map(row).collect();
    figure("Time behind the BAM", "What was not hidden by writing it.", &table(&["Stage", "Seconds"], &rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_gets_the_section_once() {
        let called = json!({"caller": "<b>", "records": 1200, "regions": [1, 2], "regions_while_writing": 1,
            "stages": [{"name": "call", "seconds": 2.0}]});
        let page = with_calling("<main>\n</main>\n<footer></footer>", &called).unwrap();
        assert!(
            page.starts_with("<main>\n<!-- godwit:calling -->\n<section>\n<h2>Variants</h2>")
                && page.ends_with("</main>\n<footer></footer>")
        );
        assert!(page.contains("&lt;b&gt;") && page.contains("<dd>1,200</dd>"), "{page}");
        assert_eq!(with_calling(&page, &called), None);
        assert_eq!(with_calling("no page", &called), None);
    }
}
