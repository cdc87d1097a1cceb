//! `--dry-run`: what a run would need, as a table or as JSON.

use godwit_pipeline::{DiskNeed, RunPlan, show_bytes};

use crate::failure::{Exit, Failure, print};

/// Prints a plan on stdout; fails as the run would where something is short.
pub fn tell(plan: &RunPlan, json: bool) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string_pretty(plan).map_err(|error| Failure::new(Exit::Bug, error.to_string()))? + "\n"
    } else {
        table(plan)
    };
    print(&text)?;
    match plan.problems.first() {
        None => Ok(()),
        Some(problem) => Err(Failure::new(Exit::Machine, problem.clone())),
    }
}

fn table(plan: &RunPlan) -> String {
    let sure = |factor: f64| if factor <= 1.0 { "counted".to_owned() } else { format!("within a factor of {factor}") };
    let number = |number: Option<u64>| number.map_or("unknown: an input is a pipe".into(), |number| number.to_string());
    let mut rows: Vec<(String, String, String)> = Vec::new();
    for (index, lane) in plan.lanes.iter().enumerate() {
        let files: Vec<String> = lane.files.iter().map(|file| file.display().to_string()).collect();
        rows.push((format!("lane {}, {}", index + 1, lane.read_group), files.join(" "), String::new()));
        let how = match lane.sampled {
            share if share >= 1.0 => "counted".to_owned(),
            share if share > 0.0 => format!("from the first {:.2} % of the files", share * 100.0),
            _ => String::new(),
        };
        rows.push(("  reads".into(), number(lane.reads), how));
    }
    rows.push((
        if plan.verb == "align" { "reads" } else { "records" }.into(),
        number(plan.reads),
        sure(plan.within.reads),
    ));
    rows.push(("blocks".into(), number(plan.blocks), String::new()));
    rows.push(("threads".into(), plan.threads.to_string(), String::new()));
    let memory = &plan.memory;
    rows.push(("memory of godwit".into(), show_bytes(memory.godwit_bytes), "its limit".into()));
    if memory.aligner_bytes > 0 {
        rows.push(("memory of the aligner".into(), show_bytes(memory.aligner_bytes), sure(plan.within.memory)));
    }
    rows.push(("memory free now".into(), memory.free_bytes.map_or("unknown".into(), show_bytes), String::new()));
    let disk = |need: &DiskNeed| {
        let free = need.free_bytes.map(|bytes| format!(", {} free", show_bytes(bytes))).unwrap_or_default();
        format!("{} in {}{free}", need.bytes.map_or("unknown".into(), show_bytes), need.directory.display())
    };
    rows.push(("output".into(), disk(&plan.output), sure(plan.within.disk)));
    rows.push(("scratch".into(), disk(&plan.scratch), sure(plan.within.disk)));
    rows.push(("time".into(), plan.seconds.map_or("unknown".into(), duration), sure(plan.within.time)));
    let width = rows.iter().map(|(label, ..)| label.len()).max().unwrap_or(0);
    let mut text: String = rows
        .iter()
        .map(|(label, value, how)| match how.is_empty() {
            true => format!("{label:width$}  {value}\n"),
            false => format!("{label:width$}  {value}  ({how})\n"),
        })
        .collect();
    for problem in &plan.problems {
        text += &format!("would fail: {problem}\n");
    }
    text
}

fn duration(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}
