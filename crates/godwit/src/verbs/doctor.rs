//! `godwit doctor`: checks this host and reports problems with remedies.

use std::path::Path;

use godwit_cli::cli::DoctorArgs;
use godwit_cli::failure::{Failure, print};
use godwit_model::ErrorKind;
use serde_json::json;

use crate::doctor::{self, Area, Finding, FindingState};
use crate::text_wrap::wrap_text;

/// Runs all checks and prints the findings; fails if something essential is missing.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let mut findings = doctor::engines();
    findings.extend(args.reference.as_deref().map(doctor::indexes).unwrap_or_default());
    let out = args.out.as_deref().unwrap_or(Path::new("."));
    let directories = [("output", Some(out)), ("scratch", args.temp.as_deref())];
    let given: Vec<(&str, &Path)> = directories.into_iter().filter_map(|(what, path)| Some((what, path?))).collect();
    findings.extend(doctor::machine(&given));
    findings.push(doctor::input_rate());
    let mut rtt = args.rtt;
    if let Some(url) = &args.at {
        let (found, measured) = doctor::server(url, &args.access)?;
        findings.extend(found);
        rtt = rtt.or(measured);
    }
    let path = args
        .bandwidth
        .zip(rtt)
        .map(|(bandwidth_bit_per_s, rtt_ms)| doctor::NetworkPath { bandwidth_bit_per_s, rtt_ms });
    findings.extend(doctor::network(path));
    let missing: Vec<&Finding> = findings.iter().filter(|finding| finding.state == FindingState::Missing).collect();
    print(&if args.json {
        format!("{:#}\n", json!({"healthy": missing.is_empty(), "findings": findings}))
    } else {
        findings_table(&findings)
    })?;
    let Some(first) = missing.first() else { return Ok(()) };
    let others = match missing.len() - 1 {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    let remedy = first.remedy.as_deref().unwrap_or("see above");
    let kind = if first.area == Area::Server { ErrorKind::Remote } else { ErrorKind::Machine };
    Err(Failure::new(kind, format!("{}: {}; {remedy}{others}", first.subject, first.details)))
}

/// Formats findings as a table, grouped by area; long details are wrapped into several lines.
fn findings_table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut area = None;
    for finding in findings {
        if area != Some(finding.area) {
            area = Some(finding.area);
            text += &format!("{}\n", finding.area.name());
        }
        let mark = match finding.state {
            FindingState::Fine => "ok",
            FindingState::Note => "--",
            FindingState::Warning => "!!",
            FindingState::Missing => "XX",
        };
        let start = format!("  {mark}  {:width$}  ", finding.subject);
        let remedy = finding.remedy.as_deref().map(|remedy| wrap_text(remedy, "-> ", start.len()));
        text += &format!("{start}{}", wrap_text(&finding.details, "", start.len()).trim_start());
        text += &remedy.unwrap_or_default();
    }
    text
}
