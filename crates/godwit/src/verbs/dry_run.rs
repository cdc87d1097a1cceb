//! Output of `--dry-run`: the resources that a run would need, as a table or as JSON.

use godwit_align::{DiskNeed, IndexNeed, JobPlan, LanePlan, format_bytes};
use godwit_cli::failure::{Failure, print, print_json};
use godwit_model::ErrorKind;

use crate::text_wrap::wrap_text;

/// Width in characters of the column of labels; a longer label shifts only the other columns of its own line.
const LABEL_WIDTH: usize = 28;

/// Prints a plan on stdout. If a resource is insufficient, fails with the same error as the run would.
pub fn print_plan(plan: &JobPlan, json: bool) -> Result<(), Failure> {
    if json {
        print_json(plan)?;
    } else {
        print(&plan_table(plan))?;
    }
    match plan.problems.first() {
        None => Ok(()),
        Some(problem) => Err(Failure::new(ErrorKind::Machine, problem.clone())),
    }
}

/// A row of the table: label, value, and source of the value.
type PlanRow = (String, String, String);

fn plan_table(plan: &JobPlan) -> String {
    let mut rows: Vec<PlanRow> = plan.lanes.iter().enumerate().flat_map(lane_rows).collect();
    let row = |label: &str, value: String| (label.to_owned(), value, String::new());
    let about = |label: &str, value: Option<String>, factor: f64| match value {
        Some(value) if factor <= 1.0 => (label.to_owned(), value, "counted".to_owned()),
        Some(value) => (label.to_owned(), value, format!("within a factor of {factor}")),
        None => (label.to_owned(), "unknown".to_owned(), "an input is a pipe".to_owned()),
    };
    let reads = if plan.verb == "align" { "reads" } else { "records" };
    rows.push(about(reads, plan.reads.map(group_digits), plan.uncertainty.reads));
    rows.push(row("blocks", plan.blocks.map_or("unknown".into(), group_digits)));
    if let Some(aligner) = &plan.aligner {
        rows.push(("aligner".to_owned(), aligner.clone(), plan.aligner_reason.clone().unwrap_or_default()));
    }
    rows.extend(plan.workers.map(|nodes| row("nodes", nodes.to_string())));
    rows.push(row("threads", plan.threads.to_string()));
    let memory = &plan.memory;
    rows.push(("memory of godwit".into(), format_bytes(memory.godwit_bytes), "its limit".into()));
    if memory.aligner_bytes > 0 {
        rows.push(about("memory of the aligner", Some(format_bytes(memory.aligner_bytes)), plan.uncertainty.memory));
    }
    rows.extend(plan.index.map(|index| row("  of it the index", index_row(&index))));
    rows.push(row("free memory now", memory.free_bytes.map_or("unknown".into(), format_bytes)));
    for (label, need) in [("output", &plan.output), ("scratch", &plan.scratch)] {
        rows.push(about(label, need.bytes.map(format_bytes), plan.uncertainty.disk));
        rows.push(row(&format!("  in {}", need.directory.display()), free_space(need)));
    }
    rows.push(about("time", plan.seconds.map(format_duration), plan.uncertainty.time));
    let width = rows.iter().map(|(label, ..)| label.chars().count().min(LABEL_WIDTH)).max().unwrap_or(0);
    let mut text = String::new();
    for (label, value, how) in rows {
        let how = if how.is_empty() { how } else { format!("  ({how})") };
        text += &format!("{label:width$}  {value}{how}\n");
    }
    plan.notes.iter().for_each(|note| text += &wrap_text(note, "note: ", 0));
    plan.problems.iter().for_each(|problem| text += &wrap_text(problem, "would fail: ", 0));
    if plan.problems.is_empty() {
        text += "no file was written; all checks passed\n";
    }
    text
}

fn index_row(index: &IndexNeed) -> String {
    let loaded =
        index.load_seconds.map_or(String::new(), |seconds| format!(", loaded in {}", format_duration(seconds)));
    format!("{}{loaded}", format_bytes(index.resident_bytes))
}

fn lane_rows((index, lane): (usize, &LanePlan)) -> Vec<PlanRow> {
    let mut labels = [format!("lane {}", index + 1), format!("  {}", lane.read_group)].into_iter();
    let mut next = |value| (labels.next().unwrap_or_default(), value, String::new());
    let mut rows: Vec<PlanRow> = lane.files.iter().map(|file| next(file.display().to_string())).collect();
    let how = match lane.inspected_fraction {
        share if share >= 1.0 => "counted".to_owned(),
        share => format!("from the first {:.2} % of the files", share * 100.0),
    };
    let (reads, how) = match lane.reads {
        Some(reads) => (format!("{} reads", group_digits(reads)), how),
        None => ("a pipe, so its reads are unknown".to_owned(), String::new()),
    };
    let (label, ..) = next(String::new());
    rows.push((label, reads, how));
    rows
}

fn free_space(need: &DiskNeed) -> String {
    need.free_bytes.map_or("free space unknown".into(), |bytes| format!("{} free", format_bytes(bytes)))
}

/// Formats `1234567` as `1,234,567`.
fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

fn format_duration(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}
