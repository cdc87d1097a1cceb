//! Processes of a run that the test did not start itself.

use std::fs;
use std::time::{Duration, Instant};

/// Process numbers of the children of `parent` whose command line has `word` as one of its words, in ascending order.
pub fn children(parent: u32, word: &str) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").expect("/proc is there").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut found: Vec<u32> = numbers.filter(|number| is_child(*number, parent, word)).collect();
    found.sort_unstable();
    found
}

fn is_child(number: u32, parent: u32, word: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{number}/stat")) else { return false };
    // The name before it is in parentheses and may hold anything (proc_pid_stat(5)).
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_ascii_whitespace();
    let (state, found) = (fields.next(), fields.next().and_then(|text| text.parse::<u32>().ok()));
    let Ok(words) = fs::read(format!("/proc/{number}/cmdline")) else { return false };
    found == Some(parent) && state != Some("Z") && words.split(|byte| *byte == 0).any(|found| found == word.as_bytes())
}

/// Process numbers of those that have all these words on their command line and all these settings (`NAME=value`) in their
/// environment.
pub fn with_words(words: &[&str], settings: &[&str]) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").expect("/proc is there").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has = |number: u32, file: &str, wanted: &[&str]| {
        let found = fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
        wanted.iter().all(|word| found.split(|byte| *byte == 0).any(|found| found == word.as_bytes()))
    };
    numbers.filter(|number| has(*number, "cmdline", words) && has(*number, "environ", settings)).collect()
}

/// Waits until `parent` has `count` such children.
///
/// # Panics
/// When that takes too long.
pub fn wait_for_children(parent: u32, word: &str, count: usize) -> Vec<u32> {
    let started = Instant::now();
    loop {
        let found = children(parent, word);
        if found.len() >= count {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{count} processes of {word} did not come up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal.
pub fn signal(process: u32, signal: i32) {
    // SAFETY: kill takes numbers only. One that has ended is not there to be signalled, which is no failure here.
    unsafe { libc::kill(process as libc::pid_t, signal) };
}
