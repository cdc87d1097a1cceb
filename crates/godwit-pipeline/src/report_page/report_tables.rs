//! The tables of the report page. Some have a bar in each row.

use super::ReportPage;
use super::html::{escape_html, format_si, format_thousands};

/// Maximum number of contigs that are shown initially. The user can unfold the other contigs.
const MAX_SHOWN_CONTIGS: usize = 25;

/// A row of a table: its cells as HTML, and the relative length of its bar, 0 to 1.
pub struct Row {
    /// Cells of the row as HTML; the first is its heading.
    pub cells: Vec<String>,
    /// Length of the bar, 0 to 1.
    pub bar: f64,
}

impl ReportPage<'_> {
    pub(super) fn contigs(&self) -> String {
        let Some(mosdepth) = &self.qc.coverage.mosdepth else { return String::new() };
        let covered: Vec<_> = mosdepth.contigs.iter().filter(|contig| contig.positions_by_depth.is_some()).collect();
        let deepest = covered.iter().map(|contig| contig.mean()).fold(1e-9, f64::max);
        let rows: Vec<Row> = covered
            .iter()
            .map(|contig| {
                let mean = contig.mean();
                Row {
                    cells: vec![escape_html(&contig.name), format_thousands(contig.length), format!("{mean:.2}")],
                    bar: mean / deepest,
                }
            })
            .collect();
        let headings = ["Contig", "Length, bp", "Mean, ×"];
        let (shown, folded) = rows.split_at(rows.len().min(MAX_SHOWN_CONTIGS));
        let mut content = table(&headings, shown);
        if !folded.is_empty() {
            let rest = table(&headings, folded);
            content += &format!("<details><summary>{} more contigs</summary>\n{rest}</details>\n", folded.len());
        }
        let bare = mosdepth.contigs.len() - covered.len();
        let note = match bare {
            0 => String::new(),
            1 => " One contig has no reads.".into(),
            bare => format!(" {} contigs have no reads.", format_thousands(bare as u64)),
        };
        figure("Coverage by contig", &format!("Mean depth over the whole contig.{note}"), &content)
    }

    pub(super) fn libraries(&self) -> String {
        let Some(found) = self.duplicate_metrics else { return String::new() };
        let rows: Vec<Row> = found
            .libraries
            .iter()
            .map(|library| Row {
                cells: vec![
                    escape_html(&library.library),
                    format_thousands(library.pairs()),
                    format!("{:.2}", library.fraction_duplicate() * 100.0),
                    format_thousands(library.optical_pairs),
                    library.estimated_library_size().map_or_else(|| "–".into(), |size| format_si(size as f64)),
                ],
                bar: library.fraction_duplicate(),
            })
            .collect();
        let headings = ["Library", "Pairs", "Duplicates, %", "Optical pairs", "Library size"];
        figure("Duplicates by library", "Counted like Picard MarkDuplicates.", &table(&headings, &rows))
    }

    pub(super) fn stages(&self) -> String {
        let longest = self.report.stages.iter().map(|stage| stage.seconds).fold(1e-9, f64::max);
        let rows: Vec<Row> = self
            .report
            .stages
            .iter()
            .map(|stage| Row {
                cells: vec![
                    escape_html(stage.name),
                    format!("{:.1}", stage.seconds),
                    format_thousands(stage.rows),
                    format_si(stage.bytes as f64),
                ],
                bar: stage.seconds / longest,
            })
            .collect();
        let note = format!("{:.1} s in all; stages overlap.", self.report.seconds);
        figure("Time", &note, &table(&["Stage", "Seconds", "Records", "Bytes"], &rows))
    }

    pub(super) fn origin_table(&self) -> String {
        let run = self.report;
        let mut entries = vec![("Sample", escape_html(self.sample))];
        if let Some(reference) = self.reference {
            entries.push(("Reference", format!("<code>{}</code>", escape_html(reference))));
        }
        let inputs =
            run.inputs.iter().map(|input| format!("<code>{}</code>", escape_html(&input.path.to_string_lossy())));
        entries.push(("Inputs", inputs.collect::<Vec<_>>().join("<br>")));
        let mut versions = vec![format!("godwit {}", escape_html(&run.godwit))];
        versions.extend(
            run.engines.iter().map(|(name, version)| format!("{} {}", escape_html(name), escape_html(version))),
        );
        entries.push(("Versions", versions.join("<br>")));
        entries.push(("Command", format!("<code>{}</code>", escape_html(&run.command.join(" ")))));
        let rows = entries.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n"));
        figure(
            "Origin",
            "Inputs, programs and command.",
            &format!("<dl class=\"facts\">\n{}</dl>\n", rows.collect::<String>()),
        )
    }
}

/// Returns a figure with its title and note as HTML. All arguments are HTML.
pub fn figure(title: &str, note: &str, content: &str) -> String {
    format!("<figure>\n<figcaption><h3>{title}</h3><p>{note}</p></figcaption>\n{content}</figure>\n")
}

/// Returns a table as HTML. The first column contains text, the other columns contain numbers.
pub fn table(headings: &[&str], rows: &[Row]) -> String {
    let head: String = headings.iter().map(|heading| format!("<th scope=\"col\">{heading}</th>")).collect();
    let row = |row: &Row| {
        let (name, numbers) = row.cells.split_first()?;
        let numbers: String = numbers.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let percent = (row.bar * 100.0).clamp(0.0, 100.0);
        Some(format!("<tr style=\"--bar:{percent:.1}%\"><th scope=\"row\">{name}</th>{numbers}</tr>\n"))
    };
    let body: String = rows.iter().filter_map(row).collect();
    format!("<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n")
}
