//! `godwit doctor`: what is wrong on this machine and how to mend it.

use std::path::Path;

use serde_json::json;

use crate::cli::DoctorArgs;
use crate::doctor::{self, Finding, State};
use crate::failure::{Exit, Failure, print};

/// Looks at everything and tells; fails when something essential is missing.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let mut findings = doctor::engines();
    findings.extend(args.reference.as_deref().map(doctor::index));
    let out = args.out.as_deref().unwrap_or(Path::new("."));
    let directories = [("output", Some(out)), ("scratch", args.temp.as_deref())];
    let given: Vec<(&str, &Path)> = directories.into_iter().filter_map(|(what, path)| Some((what, path?))).collect();
    findings.extend(doctor::machine(&given));
    let path = args.bandwidth.zip(args.rtt).map(|(bandwidth, rtt_ms)| doctor::Path { bandwidth, rtt_ms });
    findings.extend(doctor::network(path));
    let missing: Vec<&Finding> = findings.iter().filter(|finding| finding.state == State::Missing).collect();
    print(&if args.json {
        format!("{:#}\n", json!({"healthy": missing.is_empty(), "findings": findings}))
    } else {
        table(&findings)
    })?;
    match missing.first() {
        None => Ok(()),
        Some(first) => {
            let remedy = first.remedy.as_deref().unwrap_or("see above");
            let message = format!("{} essential: {}: {}; {remedy}", missing.len(), first.what, first.found);
            Err(Failure::new(Exit::Machine, message))
        }
    }
}

fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.state {
            State::Fine => "ok",
            State::Note => "--",
            State::Warning => "!!",
            State::Missing => "XX",
        };
        text += &format!("{mark}  {:8} {:width$}  {}\n", finding.area, finding.what, finding.found);
        if let Some(remedy) = &finding.remedy {
            text += &format!("             {:width$}  -> {remedy}\n", "");
        }
    }
    text
}
