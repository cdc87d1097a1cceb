//! The aligner of a job, and its processes: one for all lanes, or one for each lane.

use std::path::{Path, PathBuf};

use godwit_engines::aligner::bwa::{self, BwaOptions};
use godwit_engines::aligner::minimap2::Minimap2;
use godwit_engines::aligner::sam_program::{self, AlignerInvocation, SamSession};
use godwit_engines::aligner::template::{AlignerTemplate, LaneValues};
use godwit_engines::aligner::{
    Aligner, AlignerChoice, AlignerInfo, BlockDependence, BlockReader, BlockWriter, PipeSession,
};
use godwit_engines::{ChildHandle, EngineError};
use godwit_pipeline::PipelineError;
use godwit_pipeline::job_report::{AlignerReport, ExchangeReport};

use super::AlignOptions;
use super::header::LaneReadGroups;
use super::lanes::Lane;
use crate::aligner_selection::{AlignerLocation, AlignerSelection, SelectedAligner};
use crate::job_plan::IndexNeed;

/// An installed aligner whose index is checked; no process is started yet.
pub(super) struct InstalledAligner {
    version: String,
    program: InstalledProgram,
}

enum InstalledProgram {
    /// An aligner that is part of godwit: bwa, or bwa-mem3 with the records of bwa.
    Bundled(SelectedAligner),
    Minimap2(Minimap2),
    Template {
        template: AlignerTemplate,
        program: PathBuf,
    },
}

/// A started aligner that has reported the contigs of its reference.
pub(super) struct RunningAligner {
    hello: AlignerInfo,
    program: RunningProgram,
}

enum RunningProgram {
    /// An aligner that is part of godwit: bwa, or bwa-mem3 with the records of bwa.
    Bundled {
        selected: SelectedAligner,
        /// The aligner process, until `start_lane_process` returns it; always `None` if workers run the aligner.
        session: Option<PipeSession>,
    },
    Minimap2(Minimap2),
    Template {
        template: AlignerTemplate,
        program: PathBuf,
    },
}

/// Standard input, standard output and handle of an aligner process.
pub(super) type AlignerPipes = (BlockWriter, BlockReader, ChildHandle);

impl InstalledAligner {
    /// Finds the installed aligner. Before any file is written, rejects a missing index and an index of another
    /// reference.
    ///
    /// # Errors
    /// [`PipelineError`] as in [`AlignerSelection::select`]; [`PipelineError::Options`] for `--aligner-args` together
    /// with a command template.
    pub(super) fn find_installed(options: &AlignOptions, location: AlignerLocation) -> Result<Self, PipelineError> {
        let choice = &options.aligner;
        match choice {
            AlignerChoice::Auto | AlignerChoice::Bwa | AlignerChoice::BwaMem3 | AlignerChoice::BwaMem2 => {
                let (reference, arguments) = (&options.reference, &options.aligner_args);
                let (threads, block_bases) = (options.job.threads, options.block_bases);
                let selection = AlignerSelection {
                    choice,
                    reference,
                    arguments,
                    location,
                    threads,
                    block_bases,
                    compares_reference: true,
                };
                let selected = selection.select()?;
                Ok(Self {
                    version: bwa::library_version(selected.kind).to_owned(),
                    program: InstalledProgram::Bundled(selected),
                })
            }
            AlignerChoice::Minimap2 => {
                let minimap2 = Minimap2::find_installed(&options.aligner_args)?;
                minimap2.check_index(&options.reference)?;
                Ok(Self { version: minimap2.version().to_owned(), program: InstalledProgram::Minimap2(minimap2) })
            }
            AlignerChoice::Template(template) if options.aligner_args.is_empty() => {
                let (program, version) = template.find_program()?;
                let program = InstalledProgram::Template { template: template.clone(), program };
                Ok(Self { version: version.unwrap_or_default(), program })
            }
            AlignerChoice::Template(_) => {
                let problem =
                    "--aligner-args requires --aligner with a name such as bwa; add the options to the command line \
                     of --aligner"
                        .into();
                Err(PipelineError::Options { problem })
            }
        }
    }

    /// Rejects an aligner that does not support the options or the lanes. Starts no process.
    ///
    /// # Errors
    /// [`PipelineError::Engine`] for options that the aligner does not support; [`PipelineError::Options`] for lanes of
    /// SAM or BAM that the aligner does not read.
    pub(super) fn check_options(
        &self,
        options: &AlignOptions,
        groups: &LaneReadGroups,
        lanes: &[Lane],
    ) -> Result<(), PipelineError> {
        let each = |invocation: &dyn Fn(&LaneValues) -> Result<AlignerInvocation, EngineError>| {
            for (number, lane) in lanes.iter().enumerate() {
                invocation(&lane_values(options, groups, number, lane)?)?;
            }
            Ok(())
        };
        match &self.program {
            InstalledProgram::Bundled(selected) => Ok(bwa::check_arguments(selected.kind, &options.aligner_args)?),
            InstalledProgram::Minimap2(minimap2) => each(&|lane| minimap2.invocation(lane)),
            InstalledProgram::Template { template, program } => each(&|lane| template.invocation(program, lane)),
        }
    }

    /// Estimates from the index files how much memory and time loading the index takes.
    pub(super) fn estimate_index(&self, options: &AlignOptions) -> IndexNeed {
        let files = match &self.program {
            InstalledProgram::Bundled(selected) => bwa::loaded_files(&options.reference, selected.kind),
            InstalledProgram::Minimap2(_) | InstalledProgram::Template { .. } => {
                self.index_files(options).into_iter().map(|(file, _)| file).collect()
            }
        };
        IndexNeed::measure(&files)
    }

    /// Returns the bundled program that was selected to produce bwa's records; `None` for minimap2 and command
    /// templates.
    pub(super) fn selected(&self) -> Option<&SelectedAligner> {
        if let InstalledProgram::Bundled(selected) = &self.program { Some(selected) } else { None }
    }

    /// Returns name and version of the program that aligns; only the name if the program does not report a version.
    pub(super) fn label(&self, options: &AlignOptions) -> String {
        let other = || format!("{} {}", options.aligner.name(), self.version).trim_end().to_owned();
        self.selected().map_or_else(other, SelectedAligner::label)
    }

    /// Returns name and version of the program whose records the aligner produces: bwa for both bundled programs,
    /// otherwise the aligner itself.
    pub(super) fn emulated_program<'e>(&'e self, options: &'e AlignOptions) -> (&'e str, &'e str) {
        self.selected().map_or((options.aligner.name(), self.version.as_str()), |_| bwa::BWA_NAME_AND_VERSION)
    }

    /// Returns the files that identify the index. The flag of a file is true if its size identifies it, and false if
    /// its content does. The indexes of both bundled programs are derived from the same files.
    pub(super) fn index_files(&self, options: &AlignOptions) -> Vec<(PathBuf, bool)> {
        let beside = |extension: &str| options.reference.with_added_extension(extension);
        match &self.program {
            InstalledProgram::Bundled(_) => {
                ["amb", "ann", "pac", "alt"].map(|extension| (beside(extension), false)).into()
            }
            InstalledProgram::Minimap2(_) => vec![(Minimap2::index_path(&options.reference), true)],
            InstalledProgram::Template { .. } => vec![(options.reference.clone(), true)],
        }
    }

    /// Starts a bundled aligner, of which one process aligns all lanes. Other aligners start later, with one process
    /// per lane.
    ///
    /// # Errors
    /// [`PipelineError::Engine`] if the process does not start.
    pub(super) fn start(self, options: &AlignOptions) -> Result<RunningAligner, PipelineError> {
        let foreign = || sam_program::aligner_info(&options.reference, &self.version);
        let selected = match self.program {
            InstalledProgram::Bundled(selected) => selected,
            InstalledProgram::Minimap2(minimap2) => {
                return Ok(RunningAligner { hello: foreign()?, program: RunningProgram::Minimap2(minimap2) });
            }
            InstalledProgram::Template { template, program } => {
                return Ok(RunningAligner {
                    hello: foreign()?,
                    program: RunningProgram::Template { template, program },
                });
            }
        };
        let session = BwaOptions {
            kind: selected.kind,
            program: None,
            reference: options.reference.clone(),
            threads: options.job.threads,
            arguments: options.aligner_args.clone(),
            share_index: false,
        }
        .start()?;
        Ok(RunningAligner {
            hello: session.info().clone(),
            program: RunningProgram::Bundled { selected, session: Some(session) },
        })
    }

    /// Returns this aligner for a cluster run, in which workers start the processes. A worker sent `hello`.
    pub(super) fn into_remote(self, hello: AlignerInfo) -> RunningAligner {
        let program = match self.program {
            InstalledProgram::Bundled(selected) => RunningProgram::Bundled { selected, session: None },
            InstalledProgram::Minimap2(minimap2) => RunningProgram::Minimap2(minimap2),
            InstalledProgram::Template { template, program } => RunningProgram::Template { template, program },
        };
        RunningAligner { hello, program }
    }
}

impl RunningAligner {
    pub(super) fn hello(&self) -> &AlignerInfo {
        &self.hello
    }

    /// Returns the number of lanes, of all `lanes`, that a single aligner process aligns.
    pub(super) fn lanes_per_process(&self, lanes: usize) -> usize {
        match self.program {
            RunningProgram::Bundled { .. } => lanes,
            RunningProgram::Minimap2(_) | RunningProgram::Template { .. } => 1,
        }
    }

    /// Returns the pipes of a process that aligns lane `number`, and all later lanes if the process aligns several.
    ///
    /// # Errors
    /// [`PipelineError::Engine`] if the process does not start.
    pub(super) fn start_lane_process(
        &mut self,
        options: &AlignOptions,
        groups: &LaneReadGroups,
        number: usize,
        lane: &Lane,
    ) -> Result<AlignerPipes, PipelineError> {
        let invocation = match &mut self.program {
            RunningProgram::Bundled { session, .. } => {
                let session = session.take().expect("one process takes all lanes, so it is asked for once");
                return Ok(session.split());
            }
            RunningProgram::Minimap2(minimap2) => minimap2.invocation(&lane_values(options, groups, number, lane)?)?,
            RunningProgram::Template { template, program } => {
                template.invocation(program, &lane_values(options, groups, number, lane)?)?
            }
        };
        Ok(SamSession::start(&invocation, self.hello.clone())?.split())
    }

    /// Returns name, version and command line for the `@PG` line, with those options that change records. Both bundled
    /// programs use bwa's line, so that a file does not depend on which of them aligned its reads.
    pub(super) fn program_line(&self, options: &AlignOptions) -> (String, String, String) {
        let named = |line| (options.aligner.name().to_owned(), self.hello.engine_version.clone(), line);
        match &self.program {
            RunningProgram::Minimap2(minimap2) => named(minimap2.command_line()),
            RunningProgram::Template { template, .. } => named(template.text().to_owned()),
            RunningProgram::Bundled { .. } => {
                let (name, version) = bwa::BWA_NAME_AND_VERSION;
                let words = [name.to_owned(), "mem".to_owned(), format!("-K {}", options.block_bases)];
                let words: Vec<String> = words.into_iter().chain(options.aligner_args.iter().cloned()).collect();
                (name.to_owned(), version.to_owned(), words.join(" "))
            }
        }
    }

    /// Returns the aligner's section of `run.json`. In a cluster run, `exchange` contains the aligners that workers
    /// used.
    pub(super) fn to_report(&self, options: &AlignOptions, exchange: Option<&ExchangeReport>) -> AlignerReport {
        let index: &Path = &options.reference;
        let (index, selected) = match &self.program {
            RunningProgram::Minimap2(_) => (Minimap2::index_path(index), None),
            RunningProgram::Bundled { selected, .. } => (index.to_owned(), Some(selected)),
            RunningProgram::Template { .. } => (index.to_owned(), None),
        };
        let own = || vec![(options.aligner.name().to_owned(), self.hello.engine_version.clone())];
        let used = match (selected, exchange) {
            (None, _) => own(),
            (Some(selected), None) => vec![selected.name_and_version()],
            (Some(_), Some(exchange)) => exchange.distinct_aligners(),
        };
        let joined = |part: fn(&(String, String)) -> &str| used.iter().map(part).collect::<Vec<_>>().join(", ");
        AlignerReport {
            choice: options.aligner.option_value().to_owned(),
            name: joined(|(name, _)| name),
            version: joined(|(_, version)| version),
            // In a cluster run each worker selects its own program, so there is no common reason.
            reason: selected.filter(|_| exchange.is_none()).and_then(|selected| selected.reason.clone()),
            index,
            identity: options.aligner.block_dependence().report_label(),
        }
    }
}

/// Returns the placeholder values of a command template for one lane.
fn lane_values<'l>(
    options: &'l AlignOptions,
    groups: &'l LaneReadGroups,
    number: usize,
    lane: &Lane,
) -> Result<LaneValues<'l>, PipelineError> {
    let Some(paired) = lane.is_paired() else {
        let file = lane.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        let problem =
            format!("{file} is SAM or BAM, which only --aligner auto, bwa and bwa-mem3 read; convert it to FASTQ");
        return Err(PipelineError::Options { problem });
    };
    Ok(LaneValues {
        reference: &options.reference,
        threads: options.job.threads,
        read_group: groups.read_group_line(number),
        read_group_id: groups.read_group_id(number),
        sample: &options.sample,
        paired,
    })
}

/// Returns a message for the user if the choice of the aligner needs an explanation.
pub(super) fn aligner_note(choice: &AlignerChoice) -> Option<String> {
    if *choice == AlignerChoice::BwaMem2 {
        return Some(
            "bwa-mem2 is another name for bwa-mem3, which loads the same index and gives the same records".into(),
        );
    }
    (choice.block_dependence() == BlockDependence::Dependent).then(|| {
        format!(
            "the result of {} for a read may depend on earlier reads: one process aligns each lane from its first \
             read to its last, so workers cannot share a lane",
            choice.name()
        )
    })
}
