//! Remote files of a workflow. The reads of a sample are downloaded before its first step and removed after its last
//! step. Then the outputs of the sample are uploaded.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_files::write_atomically;
use godwit_model::PloidyTable;
use godwit_pipeline::PipelineError;
use godwit_pipeline::fingerprint::option_text;
use godwit_pipeline::manifest::{Manifest, manifests_in, range_checksum};
use godwit_pipeline::observer::WorkflowStep;
use godwit_pipeline::scratch::{create_private_directory, output_id};
use serde::{Deserialize, Serialize};

use super::report::{SampleOutcome, remove_if_exists};
use super::sample_sheet::{SheetLane, SheetSample};
use super::{StepSummary, WorkflowJob, WorkflowOptions};

/// Prefix of the name of a directory with downloaded reads. No sample can have such a name.
const READS_DIRECTORY_PREFIX: &str = ".godwit-reads";
/// File that marks a finished sample whose downloaded reads are removed.
const DONE_FILE: &str = ".godwit-done.json";

/// Pattern for the names of private files of godwit, which are not uploaded.
pub const PRIVATE_FILE_PATTERN: &str = ".godwit*";

/// A client that downloads files from servers and uploads files to servers.
pub trait RemoteFiles: Debug + Send + Sync {
    /// Checks the address of a file with reads.
    ///
    /// # Errors
    /// The problem of the address and the correct form.
    fn check_source(&self, address: &str) -> Result<(), String>;

    /// Downloads a file from an address to `path`. Resumes an earlier, incomplete download.
    ///
    /// # Errors
    /// [`PipelineError::Transfer`] if the download fails; [`PipelineError::Interrupted`] if the job is cancelled.
    fn fetch_file(&self, address: &str, path: &Path, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError>;

    /// Checks the address of a directory on a server, to which outputs will be uploaded.
    ///
    /// # Errors
    /// The problem of the address and the correct form.
    fn check_store(&self, address: &str) -> Result<(), String>;

    /// Uploads files and directories to a directory on a server. Files whose names match [`PRIVATE_FILE_PATTERN`] are
    /// skipped.
    ///
    /// # Errors
    /// [`PipelineError::Transfer`] if the upload fails; [`PipelineError::Interrupted`] if the job is cancelled.
    fn store_files(&self, paths: &[PathBuf], address: &str, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError>;
}

/// Reports whether a path is the address of a file on a server.
pub(super) fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://"))
}

/// Returns a text of all values on which the outputs of a sample depend, except its reads. The text is stored on disk,
/// so `{:?}` is used only for types of the standard library, whose format is stable. `reference`: the checksum of the
/// reference.
fn deciding_text(options: &WorkflowOptions, reference: &str) -> String {
    let WorkflowOptions { block_bases, aligner, caller_args, ploidy, max_region_bases, .. } = options;
    let known_sites: Vec<&Path> = options.known_sites.iter().map(|path| options.input_name(path)).collect();
    let aligning = (env!("CARGO_PKG_VERSION"), reference, aligner.option_value(), block_bases, options.job.metrics);
    let workflow = options.workflow.fingerprint_text();
    // The workflow gatk does not use the caller, but earlier versions wrote its default into the fingerprint.
    let caller = options.default_workflow_caller().fingerprint_text();
    let ploidy = option_text(ploidy.as_ref().map(PloidyTable::fingerprint_text));
    let picard = options.job.picard_metrics.as_ref().map_or(String::new(), |request| {
        // A list that cannot be read fails the alignment, with a better message.
        format!(" ({})", request.fingerprint_text().unwrap_or_else(|error| error.to_string()))
    });
    format!(
        "{aligning:?}{picard} ({workflow}, {caller}, {caller_args:?}, {ploidy}, {known_sites:?}, {max_region_bases})"
    )
}

/// The checkpoint of a finished sample with remote reads.
#[derive(Serialize, Deserialize)]
struct SampleCheckpoint {
    /// Text of the values on which the outputs of all samples depend.
    options: String,
    sex: Option<String>,
    lanes: Vec<SheetLane>,
    /// BLAKE3 checksum, hexadecimal, of each manifest of the outputs, by name.
    manifests: BTreeMap<PathBuf, String>,
    outcome: SampleOutcome,
}

impl SheetSample {
    fn has_remote_reads(&self) -> bool {
        self.lanes.iter().flat_map(|lane| &lane.files).any(|file| is_address(file))
    }
}

/// Returns the BLAKE3 checksum, hexadecimal, of each manifest in a directory, by name.
fn manifest_checksums(directory: &Path) -> io::Result<BTreeMap<PathBuf, String>> {
    let checksum = |path: PathBuf| {
        let file = std::fs::File::open(&path)?;
        let checksum = range_checksum(&file, 0, file.metadata()?.len())?;
        Ok((PathBuf::from(path.file_name().unwrap_or_default()), checksum))
    };
    manifests_in(directory)?.into_iter().map(checksum).collect()
}

/// Rejects addresses in the options and in the sheet that are invalid or not supported.
pub(super) fn check_addresses(options: &WorkflowOptions, samples: &[SheetSample]) -> Result<(), PipelineError> {
    if let Some(address) = &options.store_address {
        let checked = match &options.remote_files {
            Some(store) => store.check_store(address),
            None => Err("this program does not support uploads".to_owned()),
        };
        checked.map_err(|problem| PipelineError::Options { problem: format!("--store {address}: {problem}") })?;
    }
    for sample in samples {
        for file in sample.lanes.iter().flat_map(|lane| &lane.files).filter(|file| is_address(file)) {
            let address = file.to_string_lossy();
            let checked = match &options.remote_files {
                Some(fetch) => fetch.check_source(&address),
                None => Err("this program does not support downloads; copy the reads to this host first".to_owned()),
            };
            checked.map_err(|problem| PipelineError::Sheet {
                path: options.sample_sheet.clone(),
                position: format!("sample {}", sample.name),
                problem,
            })?;
        }
    }
    Ok(())
}

impl WorkflowJob<'_> {
    /// Runs all steps of a sample. Before them, downloads the remote reads; after them, uploads the outputs if
    /// requested. The downloaded reads are removed when the sample is called. If a step before that fails, they are kept
    /// for a later attempt.
    pub(super) fn run_sample(&self, sample: &SheetSample, outcome: &mut SampleOutcome) -> Result<(), PipelineError> {
        let path = self.sample_directory(sample).join(DONE_FILE);
        if !sample.has_remote_reads() {
            remove_if_exists(&path)?;
            self.run_sample_steps(sample, &mut outcome.steps)?;
            return self.store_sample(sample, outcome);
        }
        let directory = self.reads_directory(sample);
        match self.load_sample_checkpoint(sample) {
            Some(done) => {
                outcome.steps = done.outcome.steps;
                outcome.steps.iter_mut().for_each(|step| step.is_resumed = true);
            }
            None => {
                // An earlier checkpoint does not describe the outputs of this run.
                remove_if_exists(&path)?;
                let here = self.fetch_reads(sample, &directory, outcome)?;
                self.run_sample_steps(&here, &mut outcome.steps)?;
                self.write_sample_checkpoint(sample, outcome, &path)?;
            }
        }
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(PipelineError::file("remove", &directory))?;
        }
        self.store_sample(sample, outcome)
    }

    /// Writes the checkpoint of a sample whose outputs are complete.
    fn write_sample_checkpoint(
        &self,
        sample: &SheetSample,
        outcome: &SampleOutcome,
        path: &Path,
    ) -> Result<(), PipelineError> {
        let directory = self.sample_directory(sample);
        let done = SampleCheckpoint {
            options: self.options_fingerprint(),
            sex: sample.sex.clone(),
            lanes: sample.lanes.clone(),
            manifests: manifest_checksums(&directory).map_err(PipelineError::file("read", &directory))?,
            outcome: outcome.clone(),
        };
        let written =
            serde_json::to_vec(&done).map_err(std::io::Error::other).and_then(|text| write_atomically(path, &text));
        written.map_err(PipelineError::file("write", path))
    }

    /// Uploads the files of a sample. Files that the server already has are not sent again.
    fn store_sample(&self, sample: &SheetSample, outcome: &mut SampleOutcome) -> Result<(), PipelineError> {
        let (Some(address), Some(store)) = (&self.options.store_address, &self.options.remote_files) else {
            return Ok(());
        };
        let directory = self.sample_directory(sample);
        let files: Vec<PathBuf> = std::fs::read_dir(&directory)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(PipelineError::file("list", &directory))?;
        outcome.steps.retain(|step| step.step != WorkflowStep::Store);
        self.run_step(&sample.name, WorkflowStep::Store, &directory.join("none"), &mut outcome.steps, || {
            store.store_files(std::slice::from_ref(&directory), address, self.cancelled)?;
            Ok(StepSummary { records: 0, already_complete: false, files })
        })
    }

    /// Uploads the files that belong to the whole cohort, such as the joint VCF and the report.
    pub(super) fn store_cohort(&self) -> Result<(), PipelineError> {
        let (Some(address), Some(store)) = (&self.options.store_address, &self.options.remote_files) else {
            return Ok(());
        };
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
        store.store_files(&files, address, self.cancelled)
    }

    /// Returns the checkpoint of a finished sample, if its options, its lines of the sheet and its manifests are the same
    /// and all files of the manifests exist.
    fn load_sample_checkpoint(&self, sample: &SheetSample) -> Option<SampleCheckpoint> {
        let directory = self.sample_directory(sample);
        let done: SampleCheckpoint = serde_json::from_slice(&std::fs::read(directory.join(DONE_FILE)).ok()?).ok()?;
        let is_same =
            done.options == self.options_fingerprint() && done.sex == sample.sex && done.lanes == sample.lanes;
        let is_complete = |name: &PathBuf| {
            let manifest = Manifest::read(&directory.join(name));
            manifest.is_ok_and(|manifest| manifest.is_some_and(|manifest| manifest.is_complete(&directory)))
        };
        let are_complete = || {
            let is_unchanged = manifest_checksums(&directory).is_ok_and(|found| found == done.manifests);
            is_unchanged && !done.manifests.is_empty() && done.manifests.keys().all(is_complete)
        };
        (self.options.resume && is_same && are_complete()).then_some(done)
    }

    /// Returns a text of all values on which the outputs of a sample depend, except its reads.
    fn options_fingerprint(&self) -> String {
        deciding_text(self.options, &self.scanned_reference.checksum)
    }

    fn reads_directory(&self, sample: &SheetSample) -> PathBuf {
        match &self.options.job.temp {
            Some(temp) => {
                let run = output_id(&self.options.out);
                temp.join(format!("{READS_DIRECTORY_PREFIX}-{run}-{}", sample.name))
            }
            None => self.sample_directory(sample).join(format!("{READS_DIRECTORY_PREFIX}-{}", sample.name)),
        }
    }

    /// Downloads the remote reads of a sample to `directory`. Returns the sample with the paths of the downloaded
    /// files.
    fn fetch_reads(
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
        self.run_step(&sample.name, WorkflowStep::Fetch, &report, &mut outcome.steps, || {
            for (address, place) in &wanted {
                let Some(fetch) = &self.options.remote_files else { continue };
                fetch.fetch_file(address, place, self.cancelled)?;
            }
            let files = wanted.iter().map(|(_, place)| place.clone()).collect();
            Ok(StepSummary { records: 0, already_complete: false, files })
        })?;
        Ok(here)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use godwit_engines::aligner::AlignerChoice;
    use godwit_engines::caller::CallerChoice;

    use super::*;
    use crate::workflow::Workflow;
    use godwit_pipeline::JobOptions;
    use godwit_pipeline::{DuplicatePolicy, MarkingOptions};

    pub(in crate::workflow) fn options() -> WorkflowOptions {
        let job = JobOptions {
            threads: 1,
            memory_bytes: None,
            temp: None,
            partitions: 1,
            duplicates: DuplicatePolicy::Mark,
            optical_distance: 100,
            marking: MarkingOptions::default(),
            python_step: None,
            recalibration: None,
            recipients: Vec::new(),
            metrics: true,
            picard_metrics: None,
            command: Vec::new(),
            godwit_program: PathBuf::new(),
        };
        WorkflowOptions {
            reference: PathBuf::new(),
            sample_sheet: PathBuf::new(),
            out: PathBuf::new(),
            workflow: Workflow::Default,
            job,
            block_bases: 10_000_000,
            aligner: AlignerChoice::Bwa,
            caller: None,
            caller_args: "-a \"x\"".to_owned(),
            ploidy: None,
            ploidy_name: None,
            known_sites: Vec::new(),
            snp_resources: Vec::new(),
            indel_resources: Vec::new(),
            max_region_bases: 5_000_000,
            caller_memory_bytes: None,
            resume: false,
            remote_files: None,
            store_address: None,
            input_addresses: BTreeMap::new(),
            storage_monitor: None,
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
            caller: Some(CallerChoice::Gatk),
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

    #[test]
    fn mounted_known_sites_are_identified_by_their_address() {
        let mounted_at = |path: &str| {
            let input_addresses = BTreeMap::from([(PathBuf::from(path), "godwit+pool://s/a.vcf.gz".to_owned())]);
            WorkflowOptions { known_sites: vec![PathBuf::from(path)], input_addresses, ..options() }
        };
        let text = deciding_text(&mounted_at("/tmp/1/a.vcf.gz"), "abc");
        assert!(text.contains(r#"["godwit+pool://s/a.vcf.gz"]"#), "{text}");
        assert_eq!(text, deciding_text(&mounted_at("/scratch/2/a.vcf.gz"), "abc"));
    }
}
