//! Attempt numbers, one for each start of a job, and the exit marks of attempts.
//!
//! A process claims a number by creating a directory. Only one process can create it, also on NFS, so two independent
//! starts never have the same number. The SLURM batch script does the same in shell (`launcher/slurm/batch_script.rs`).

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::FleetError;

/// The last stage that an attempt of the SLURM batch script reached. The script writes these names into its exit mark
/// (`launcher/slurm/batch_script.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptStage {
    /// The attempt ended before the workers were started.
    Setup,
    /// The workers were started.
    Work,
    /// The attempt was stopped, normally before the time limit, and SLURM rejected the request to requeue the job.
    Limit,
}

impl AttemptStage {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "setup" => Some(Self::Setup),
            "work" => Some(Self::Work),
            "limit" => Some(Self::Limit),
            _ => None,
        }
    }
}

/// The exit mark of an attempt, which the SLURM batch script writes at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttemptExit {
    /// The last stage that the attempt reached.
    pub(crate) stage: AttemptStage,
    /// Exit status of the batch script.
    pub(crate) status: i32,
}

/// Claims the next free attempt number of a job.
pub(crate) fn claim_attempt(job_directory: &Path) -> Result<u64, FleetError> {
    let mut number = next_attempt(job_directory)?;
    loop {
        let path = attempts_directory(job_directory).join(number.to_string());
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(number),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(source) => return Err(FleetError::File { action: "make", path, source }),
        }
    }
}

/// Returns the attempt number of the next claim, unless another process claims a number first.
pub(crate) fn next_attempt(job_directory: &Path) -> Result<u64, FleetError> {
    Ok(attempt_numbers(job_directory)?.into_iter().max().map_or(0, |last| last + 1))
}

/// Returns the smallest number that no attempt has claimed, and so a lower bound of all later claims.
pub(crate) fn smallest_free_attempt(job_directory: &Path) -> Result<u64, FleetError> {
    let claimed = attempt_numbers(job_directory)?;
    let mut number = 0;
    while claimed.contains(&number) {
        number += 1;
    }
    Ok(number)
}

/// Returns the numbers of all attempts of the SLURM job `id` from number `first` on. Attempts of other SLURM jobs in
/// the same directory are ignored.
pub(crate) fn attempts_of_job(job_directory: &Path, id: &str, first: u64) -> Result<Vec<u64>, FleetError> {
    let mut numbers = attempt_numbers(job_directory)?;
    numbers.retain(|number| *number >= first && job_of_attempt(job_directory, *number).is_some_and(|job| job == id));
    Ok(numbers)
}

/// Returns the number of the SLURM job to which an attempt belongs; `None` if its script has not written it yet.
pub(crate) fn job_of_attempt(job_directory: &Path, attempt: u64) -> Option<String> {
    let text = fs::read_to_string(attempts_directory(job_directory).join(attempt.to_string()).join("job")).ok()?;
    Some(text.trim().to_owned())
}

/// Returns the path of the file with which the head marks the job as finished.
pub(crate) fn finished_marker_path(job_directory: &Path, attempt: u64) -> PathBuf {
    attempts_directory(job_directory).join(attempt.to_string()).join("finished")
}

/// Returns the number of the last attempt of the SLURM job `id` from number `first` on, and its exit mark if it wrote
/// one.
pub(crate) fn last_attempt(
    job_directory: &Path,
    id: &str,
    first: u64,
) -> Result<Option<(u64, Option<AttemptExit>)>, FleetError> {
    let Some(last) = attempts_of_job(job_directory, id, first)?.into_iter().max() else { return Ok(None) };
    let mark = fs::read_to_string(attempts_directory(job_directory).join(last.to_string()).join("end")).ok();
    Ok(Some((last, mark.and_then(|text| parse_attempt_exit(&text)))))
}

fn parse_attempt_exit(text: &str) -> Option<AttemptExit> {
    let (stage, status) = text.trim_end().split_once(' ')?;
    Some(AttemptExit { stage: AttemptStage::parse(stage)?, status: status.parse().ok()? })
}

/// Returns all claimed numbers. Lists the directory instead of testing names, because on NFS this makes the files of
/// other hosts visible.
fn attempt_numbers(job_directory: &Path) -> Result<Vec<u64>, FleetError> {
    let path = attempts_directory(job_directory);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(FleetError::File { action: "list", path, source }),
    };
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn attempts_directory(job_directory: &Path) -> PathBuf {
    job_directory.join("attempts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_the_same_time_get_numbers_of_their_own() {
        let scratch = tempfile::tempdir().unwrap();
        crate::private_files::create_private_directory(&attempts_directory(scratch.path())).unwrap();
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..8).map(|_| claim_attempt(scratch.path()).unwrap()).collect::<Vec<_>>()))
                .collect();
            claims.into_iter().flat_map(|claims| claims.join().unwrap()).collect()
        });
        taken.sort();
        assert_eq!(taken, (0..64).collect::<Vec<_>>());
        assert_eq!(next_attempt(scratch.path()).unwrap(), 64);
    }

    #[test]
    fn only_marks_of_the_jobs_last_attempt_count() {
        let scratch = tempfile::tempdir().unwrap();
        let mark = |number: u64, job: &str, end: Option<&str>| {
            let path = attempts_directory(scratch.path()).join(number.to_string());
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("job"), format!("{job}\n")).unwrap();
            end.inspect(|end| fs::write(path.join("end"), end).unwrap());
        };
        let last = |job: &str| last_attempt(scratch.path(), job, 0).unwrap();
        assert_eq!(last("7"), None);
        mark(0, "7", Some("work 0\n"));
        let done = AttemptExit { stage: AttemptStage::Work, status: 0 };
        assert_eq!(last("7"), Some((0, Some(done))));
        assert_eq!(last_attempt(scratch.path(), "7", 1).unwrap(), None, "an earlier job with the same number");
        mark(2, "7", None);
        mark(3, "8", Some("work 0\n"));
        assert_eq!(last("7"), Some((2, None)), "its second start left none");
        // The batch script claims free numbers between others.
        assert_eq!(smallest_free_attempt(scratch.path()).unwrap(), 1);
        mark(2, "7", Some("wor"));
        assert_eq!(last("7"), Some((2, None)), "half a mark is none");
        for (text, stage) in
            [("setup 1\n", AttemptStage::Setup), ("work 1\n", AttemptStage::Work), ("limit 1\n", AttemptStage::Limit)]
        {
            mark(2, "7", Some(text));
            assert_eq!(last("7"), Some((2, Some(AttemptExit { stage, status: 1 }))));
        }
        mark(2, "7", Some("done 0\n"));
        assert_eq!(last("7"), Some((2, None)), "a stage that no script writes");
    }
}
