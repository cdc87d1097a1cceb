//! Reads of a sheet that lie on servers: fetched when their sample is begun, removed when it is done. And what is written, stored on
//! a server when its sample is done.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_model::PloidyTable;
use serde::{Deserialize, Serialize};

use super::report::SampleOutcome;
use super::sheet::{SheetLane, SheetSample};
use super::{JobDone, WorkflowOptions, WorkflowRun};
use crate::error::PipelineError;
use crate::fingerprint::option_text;
use crate::manifest::{self, Manifest};
use crate::observer::WorkflowStep;
use crate::scratch::create_private_directory;
use crate::staging::write_whole;

/// What fetched reads are called while their sample is worked on; no sample has such a name.
const READS: &str = ".godwit-reads";
/// What says that a sample is done whose reads are here no more.
const DONE: &str = ".godwit-done.json";

/// Files of a run that others have no use for.
pub const PRIVATE: &str = ".godwit*";

/// Brings files from servers, and to them.
pub trait FetchReads: Debug + Send + Sync {
    /// Says what is wrong with an address, if anything.
    ///
    /// # Errors
    /// What is wrong, and what is right.
    fn check(&self, address: &str) -> Result<(), String>;

    /// Copies what lies at an address into a file, and goes on where an earlier try was stopped.
    ///
    /// # Errors
    /// [`PipelineError::Fetch`], [`PipelineError::Interrupted`].
    fn fetch(&self, address: &str, path: &Path, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError>;

    /// Says what is wrong with an address of a directory on a server, if anything.
    ///
    /// # Errors
    /// What is wrong, and what is right.
    fn check_store(&self, address: &str) -> Result<(), String>;

    /// Copies files and directories, but for what is [`PRIVATE`], into a directory on a server.
    ///
    /// # Errors
    /// [`PipelineError::Fetch`], [`PipelineError::Interrupted`].
    fn store(&self, paths: &[PathBuf], address: &str, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError>;
}

/// Whether reads are named by an address, not by a path.
pub(super) fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://"))
}

/// Writes the text of what decides what a sample becomes, but for its reads. A file on disk holds it: only types of the standard library
/// are formatted with `{:?}`. `reference`: the checksum of the reference.
fn deciding_text(options: &WorkflowOptions, reference: &str) -> String {
    let WorkflowOptions { block_bases, aligner, caller, caller_args, ploidy, known_sites, window_bases, .. } = options;
    let aligning = (env!("CARGO_PKG_VERSION"), reference, aligner.text(), block_bases, options.job.metrics);
    let workflow = options.workflow.fingerprint_text();
    let caller = caller.fingerprint_text();
    let ploidy = option_text(ploidy.as_ref().map(PloidyTable::fingerprint_text));
    format!("{aligning:?} ({workflow}, {caller}, {caller_args:?}, {ploidy}, {known_sites:?}, {window_bases})")
}

/// What a sample was done with.
#[derive(Serialize, Deserialize)]
struct Done {
    /// The options that decide what a sample becomes.
    options: String,
    /// Files of each lane.
    reads: Vec<Vec<PathBuf>>,
    outcome: SampleOutcome,
}

impl SheetSample {
    fn is_elsewhere(&self) -> bool {
        self.lanes.iter().flat_map(|lane| &lane.files).any(|file| is_address(file))
    }

    fn reads(&self) -> Vec<Vec<PathBuf>> {
        self.lanes.iter().map(|lane| lane.files.clone()).collect()
    }
}

/// Refuses addresses that nobody can fetch from.
pub(super) fn check_addresses(options: &WorkflowOptions, samples: &[SheetSample]) -> Result<(), PipelineError> {
    if let Some(address) = &options.store {
        let checked = match &options.fetch {
            Some(store) => store.check_store(address),
            None => Err("nothing is stored from here".to_owned()),
        };
        checked.map_err(|problem| PipelineError::Options { problem: format!("--store {address}: {problem}") })?;
    }
    for sample in samples {
        for file in sample.reads().iter().flatten().filter(|file| is_address(file)) {
            let address = file.to_string_lossy();
            let checked = match &options.fetch {
                Some(fetch) => fetch.check(&address),
                None => Err("reads are not fetched here; copy them first".to_owned()),
            };
            checked.map_err(|problem| PipelineError::Sheet {
                path: options.sheet.clone(),
                place: format!("sample {}", sample.name),
                problem,
            })?;
        }
    }
    Ok(())
}

impl WorkflowRun<'_> {
    /// Does all steps of a sample, after fetching what of its reads lies elsewhere, and stores it where that is wanted. What was fetched
    /// is removed when the sample is done; where it fails, a later try goes on with it.
    pub(super) fn sample_fetched(
        &self,
        sample: &SheetSample,
        outcome: &mut SampleOutcome,
    ) -> Result<(), PipelineError> {
        if !sample.is_elsewhere() {
            self.sample(sample, &mut outcome.steps)?;
            return self.store_sample(sample, outcome);
        }
        if let Some(done) = self.done_before(sample) {
            outcome.steps = done.outcome.steps;
            outcome.steps.iter_mut().for_each(|step| step.done_before = true);
            return self.store_sample(sample, outcome);
        }
        let directory = self.reads_directory(sample);
        let here = self.fetch(sample, &directory, outcome)?;
        self.sample(&here, &mut outcome.steps)?;
        std::fs::remove_dir_all(&directory).map_err(PipelineError::file("remove", &directory))?;
        self.store_sample(sample, outcome)?;
        let done = Done { options: self.deciding_options(), reads: sample.reads(), outcome: outcome.clone() };
        let path = self.directory(sample).join(DONE);
        let written =
            serde_json::to_vec(&done).map_err(std::io::Error::other).and_then(|text| write_whole(&path, &text));
        written.map_err(PipelineError::file("write", &path))
    }

    /// Copies what there is of a sample to where it is to be stored; what lies there already is not sent again.
    fn store_sample(&self, sample: &SheetSample, outcome: &mut SampleOutcome) -> Result<(), PipelineError> {
        let (Some(address), Some(store)) = (&self.options.store, &self.options.fetch) else { return Ok(()) };
        let directory = self.directory(sample);
        let files: Vec<PathBuf> = std::fs::read_dir(&directory)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(PipelineError::file("list", &directory))?;
        outcome.steps.retain(|step| step.step != WorkflowStep::Store);
        self.step(&sample.name, WorkflowStep::Store, &directory.join("none"), &mut outcome.steps, || {
            store.store(std::slice::from_ref(&directory), address, self.cancelled)?;
            Ok(JobDone { records: 0, already_complete: false, files })
        })
    }

    /// Copies what there is of all samples together.
    pub(super) fn store_cohort(&self) -> Result<(), PipelineError> {
        let (Some(address), Some(store)) = (&self.options.store, &self.options.fetch) else { return Ok(()) };
        let out = &self.options.out;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(out).map_err(PipelineError::file("list", out))? {
            let path = entry.map_err(PipelineError::file("list", out))?.path();
            let is_private = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if path.is_file() && !is_private {
                files.push(path);
            }
        }
        files.sort();
        store.store(&files, address, self.cancelled)
    }

    /// What an earlier start did of a sample with the same options, if it is all there.
    fn done_before(&self, sample: &SheetSample) -> Option<Done> {
        let directory = self.directory(sample);
        let done: Done = serde_json::from_slice(&std::fs::read(directory.join(DONE)).ok()?).ok()?;
        let manifest = Manifest::read(&directory.join(format!("{}{}", sample.name, manifest::SUFFIX))).ok()??;
        let is_same = done.options == self.deciding_options() && done.reads == sample.reads();
        (self.options.resume && is_same && manifest.is_complete(&directory)).then_some(done)
    }

    /// What decides what a sample becomes, but for its reads.
    fn deciding_options(&self) -> String {
        deciding_text(self.options, &self.scanned.checksum)
    }

    fn reads_directory(&self, sample: &SheetSample) -> PathBuf {
        let base = self.options.job.temp.clone().unwrap_or_else(|| self.directory(sample));
        base.join(format!("{READS}-{}", sample.name))
    }

    /// The sample with reads that are all here.
    fn fetch(
        &self,
        sample: &SheetSample,
        directory: &Path,
        outcome: &mut SampleOutcome,
    ) -> Result<SheetSample, PipelineError> {
        create_private_directory(directory).map_err(PipelineError::file("create", directory))?;
        let mut here = SheetSample { lanes: Vec::new(), ..sample.clone() };
        let mut wanted = Vec::new();
        for (number, lane) in sample.lanes.iter().enumerate() {
            let files = lane.files.iter().enumerate().map(|(mate, file)| {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let place = directory.join(format!("lane{}-{}-{name}", number + 1, mate + 1));
                match is_address(file) {
                    true => {
                        wanted.push((file.to_string_lossy().into_owned(), place.clone()));
                        place
                    }
                    false => file.clone(),
                }
            });
            let files = files.collect();
            here.lanes.push(SheetLane { files, read_group: lane.read_group.clone() });
        }
        let report = directory.join("none");
        self.step(&sample.name, WorkflowStep::Fetch, &report, &mut outcome.steps, || {
            for (address, place) in &wanted {
                let Some(fetch) = &self.options.fetch else { continue };
                fetch.fetch(address, place, self.cancelled)?;
            }
            let files = wanted.iter().map(|(_, place)| place.clone()).collect();
            Ok(JobDone { records: 0, already_complete: false, files })
        })?;
        Ok(here)
    }
}

#[cfg(test)]
mod tests {
    use godwit_engines::aligner::AlignerChoice;
    use godwit_engines::caller::CallerChoice;

    use super::*;
    use crate::job::JobOptions;
    use crate::marking::MarkingOptions;
    use crate::reduce::DuplicatePolicy;
    use crate::workflow::Workflow;

    fn options() -> WorkflowOptions {
        let job = JobOptions {
            threads: 1,
            memory_bytes: None,
            temp: None,
            partitions: 1,
            duplicates: DuplicatePolicy::Mark,
            optical_distance: 100,
            marking: MarkingOptions::default(),
            step: None,
            recipients: Vec::new(),
            metrics: true,
            command: Vec::new(),
            program: PathBuf::new(),
        };
        WorkflowOptions {
            reference: PathBuf::new(),
            sheet: PathBuf::new(),
            out: PathBuf::new(),
            workflow: Workflow::Default,
            job,
            block_bases: 10_000_000,
            aligner: AlignerChoice::Bwa,
            caller: CallerChoice::Bcftools,
            caller_args: "-a \"x\"".to_owned(),
            ploidy: None,
            ploidy_name: None,
            known_sites: Vec::new(),
            snp_resources: Vec::new(),
            indel_resources: Vec::new(),
            window_bases: 5_000_000,
            caller_memory_bytes: None,
            resume: false,
            fetch: None,
            store: None,
            storage: None,
        }
    }

    #[test]
    fn what_decides_a_sample_has_the_bytes_of_earlier_versions() {
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            r#"("{version}", "abc", "bwa", 10000000, true) (Default, Bcftools, "-a \"x\"", None, [], 5000000)"#
        );
        assert_eq!(deciding_text(&options(), "abc"), expected);
        let other = WorkflowOptions {
            workflow: Workflow::Gatk,
            caller: CallerChoice::Gatk,
            ploidy: PloidyTable::parse("* * * M 1\n").ok(),
            known_sites: vec![PathBuf::from("/a b.vcf.gz")],
            ..options()
        };
        let table = r#"Some(PloidyTable { rules: [Rule { place: None, sex: Some("M"), ploidy: 1 }] })"#;
        let expected = format!(
            r#"("{version}", "abc", "bwa", 10000000, true) (Gatk, Gatk, "-a \"x\"", {table}, ["/a b.vcf.gz"], 5000000)"#
        );
        assert_eq!(deciding_text(&other, "abc"), expected);
    }
}
