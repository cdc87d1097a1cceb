//! The aligner of a run, and its processes: one for all lanes, or one for each.

use std::path::{Path, PathBuf};

use godwit_engines::aligner::bwa::{self, BwaOptions, IndexKind};
use godwit_engines::aligner::foreign::{self, Invocation, SamSession};
use godwit_engines::aligner::minimap2::Minimap2;
use godwit_engines::aligner::template::{CommandTemplate, LaneValues};
use godwit_engines::aligner::{Aligner, AlignerChoice, BlockReader, BlockWriter, Hello, Identity, Session};
use godwit_engines::{ChildHandle, EngineError};

use super::AlignOptions;
use super::header::LaneGroups;
use super::lanes::Lane;
use crate::error::PipelineError;
use crate::reference::current_index;
use crate::run_plan::IndexNeed;
use crate::run_report::AlignerReport;

/// The aligner, found, its index checked; nothing runs yet.
pub(super) struct FoundEngine {
    version: String,
    kind: FoundKind,
}

enum FoundKind {
    /// One of godwit's programs.
    Own(IndexKind),
    Minimap2(Minimap2),
    Template {
        template: CommandTemplate,
        program: PathBuf,
    },
}

/// The aligner at work.
pub(super) struct Engine {
    hello: Hello,
    kind: Kind,
}

enum Kind {
    /// One of godwit's programs, running; taken when its lanes are aligned.
    Own(Option<Session>),
    Minimap2(Minimap2),
    Template {
        template: CommandTemplate,
        program: PathBuf,
    },
}

/// The three ends of a process.
pub(super) type Ends = (BlockWriter, BlockReader, ChildHandle);

impl FoundEngine {
    /// Finds the aligner. Refuses one whose index is not there or belongs to something else, before anything is made.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(super) fn find(options: &AlignOptions) -> Result<Self, PipelineError> {
        let own = |kind| {
            current_index(&options.reference, kind)?;
            Ok(Self { version: bwa::library_version(kind).to_owned(), kind: FoundKind::Own(kind) })
        };
        match &options.aligner {
            AlignerChoice::Bwa => own(IndexKind::Bwa),
            AlignerChoice::BwaMem2 => own(IndexKind::BwaMem2),
            AlignerChoice::Minimap2 => {
                let minimap2 = Minimap2::find(&options.aligner_args)?;
                minimap2.check_index(&options.reference)?;
                Ok(Self { version: minimap2.version().to_owned(), kind: FoundKind::Minimap2(minimap2) })
            }
            AlignerChoice::Template(template) if options.aligner_args.is_empty() => {
                let (program, version) = template.find()?;
                let kind = FoundKind::Template { template: template.clone(), program };
                Ok(Self { version: version.unwrap_or_default(), kind })
            }
            AlignerChoice::Template(_) => {
                let problem =
                    "--aligner-args goes with a named aligner; write the options into the command line".into();
                Err(PipelineError::Options { problem })
            }
        }
    }

    /// Refuses an aligner that would not take the options or the lanes, without letting it work.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(super) fn check(
        &self,
        options: &AlignOptions,
        groups: &LaneGroups,
        lanes: &[Lane],
    ) -> Result<(), PipelineError> {
        let each = |invocation: &dyn Fn(&LaneValues) -> Result<Invocation, EngineError>| {
            for (number, lane) in lanes.iter().enumerate() {
                invocation(&values(options, groups, number, lane)?)?;
            }
            Ok(())
        };
        match &self.kind {
            FoundKind::Own(kind) => Ok(bwa::check_arguments(*kind, &options.aligner_args)?),
            FoundKind::Minimap2(minimap2) => each(&|lane| minimap2.invocation(lane)),
            FoundKind::Template { template, program } => each(&|lane| template.invocation(program, lane)),
        }
    }

    /// What loading its index takes, as far as that is known.
    pub(super) fn index_need(&self, options: &AlignOptions) -> IndexNeed {
        let files: Vec<PathBuf> = self.index_files(options).into_iter().map(|(file, _)| file).collect();
        IndexNeed::measured(&files)
    }

    /// Its version; empty where it tells none.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The files of its index, and whether each follows from the others, so that its size says enough.
    pub(super) fn index_files(&self, options: &AlignOptions) -> Vec<(PathBuf, bool)> {
        let beside = |extension: &str| options.reference.with_added_extension(extension);
        let of_kind = |kind: IndexKind| {
            let derived = |extension: &str| !["amb", "ann", "pac"].contains(&extension);
            let files = kind.extensions().iter().map(|extension| (beside(extension), derived(extension)));
            files.chain([(beside("alt"), false)]).collect()
        };
        match &self.kind {
            FoundKind::Own(kind) => of_kind(*kind),
            FoundKind::Minimap2(_) => vec![(Minimap2::index_path(&options.reference), true)],
            FoundKind::Template { .. } => vec![(options.reference.clone(), true)],
        }
    }

    /// Starts it where one process takes all lanes.
    ///
    /// # Errors
    /// [`PipelineError::Engine`].
    pub(super) fn open(self, options: &AlignOptions) -> Result<Engine, PipelineError> {
        let foreign = || foreign::hello(&options.reference, &self.version);
        let kind = match self.kind {
            FoundKind::Own(kind) => kind,
            FoundKind::Minimap2(minimap2) => return Ok(Engine { hello: foreign()?, kind: Kind::Minimap2(minimap2) }),
            FoundKind::Template { template, program } => {
                return Ok(Engine { hello: foreign()?, kind: Kind::Template { template, program } });
            }
        };
        let session = BwaOptions {
            kind,
            program: None,
            reference: options.reference.clone(),
            threads: options.job.threads,
            arguments: options.aligner_args.clone(),
            share_index: false,
        }
        .start()?;
        Ok(Engine { hello: session.hello().clone(), kind: Kind::Own(Some(session)) })
    }

    /// The same aligner where nodes run it, one of which has told who it is.
    pub(super) fn elsewhere(self, hello: Hello) -> Engine {
        let kind = match self.kind {
            FoundKind::Own(_) => Kind::Own(None),
            FoundKind::Minimap2(minimap2) => Kind::Minimap2(minimap2),
            FoundKind::Template { template, program } => Kind::Template { template, program },
        };
        Engine { hello, kind }
    }
}

impl Engine {
    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// How many of so many lanes one process takes.
    pub(super) fn lanes_per_process(&self, lanes: usize) -> usize {
        match self.kind {
            Kind::Own(_) => lanes,
            Kind::Minimap2(_) | Kind::Template { .. } => 1,
        }
    }

    /// A process for the lanes from that one on.
    ///
    /// # Errors
    /// [`PipelineError::Engine`].
    pub(super) fn start(
        &mut self,
        options: &AlignOptions,
        groups: &LaneGroups,
        number: usize,
        lane: &Lane,
    ) -> Result<Ends, PipelineError> {
        let invocation = match &mut self.kind {
            Kind::Own(session) => {
                let session = session.take().expect("one process takes all lanes, so it is asked for once");
                return Ok(session.split());
            }
            Kind::Minimap2(minimap2) => minimap2.invocation(&values(options, groups, number, lane)?)?,
            Kind::Template { template, program } => {
                template.invocation(program, &values(options, groups, number, lane)?)?
            }
        };
        Ok(SamSession::start(&invocation, self.hello.clone())?.split())
    }

    /// `ID` and `PN` of its `@PG` line, and its command line: what changes records.
    pub(super) fn program_line(&self, options: &AlignOptions) -> (String, String) {
        let arguments = |first: String| {
            let all = std::iter::once(first).chain(options.aligner_args.iter().cloned());
            all.collect::<Vec<_>>().join(" ")
        };
        let blocks = format!("-K {}", options.block_bases);
        let line = match (&options.aligner, &self.kind) {
            (_, Kind::Minimap2(minimap2)) => minimap2.command_line(),
            (_, Kind::Template { template, .. }) => template.text().to_owned(),
            (choice, Kind::Own(_)) => format!("{} mem {}", choice.name(), arguments(blocks)),
        };
        (options.aligner.name().to_owned(), line)
    }

    /// For `run.json`.
    pub(super) fn report(&self, options: &AlignOptions) -> AlignerReport {
        let index: &Path = &options.reference;
        let index = match self.kind {
            Kind::Minimap2(_) => Minimap2::index_path(index),
            _ => index.to_owned(),
        };
        AlignerReport {
            choice: options.aligner.text().to_owned(),
            name: options.aligner.name().to_owned(),
            version: self.hello.engine_version.clone(),
            index,
            identity: options.aligner.identity().name(),
        }
    }
}

/// What a command line may ask of a lane.
fn values<'l>(
    options: &'l AlignOptions,
    groups: &'l LaneGroups,
    number: usize,
    lane: &Lane,
) -> Result<LaneValues<'l>, PipelineError> {
    let Some(paired) = lane.is_paired() else {
        let file = lane.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        let problem = format!("{file} is SAM or BAM, which --aligner bwa and bwa-mem2 take; make FASTQ of it");
        return Err(PipelineError::Options { problem });
    };
    Ok(LaneValues {
        reference: &options.reference,
        threads: options.job.threads,
        read_group: groups.line(number),
        read_group_id: groups.id(number),
        sample: &options.sample,
        paired,
    })
}

/// What the user should know of an aligner that cannot be cut; `None` for others.
pub(super) fn note(choice: &AlignerChoice) -> Option<String> {
    (choice.identity() == Identity::SingleStream).then(|| {
        format!(
            "nothing is known of what {} keeps from read to read: each lane is aligned by one process from end to end, and \
             cannot be spread over machines",
            choice.name()
        )
    })
}
