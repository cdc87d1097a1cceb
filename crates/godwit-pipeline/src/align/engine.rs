//! The aligner of a run, and its processes: one for all lanes, or one for each.

use std::path::{Path, PathBuf};

use godwit_engines::aligner::bwa::{self, BwaOptions};
use godwit_engines::aligner::foreign::{self, Invocation, SamSession};
use godwit_engines::aligner::minimap2::Minimap2;
use godwit_engines::aligner::template::{CommandTemplate, LaneValues};
use godwit_engines::aligner::{Aligner, AlignerChoice, BlockReader, BlockWriter, Hello, Identity, Session};
use godwit_engines::{ChildHandle, EngineError};

use super::AlignOptions;
use super::header::LaneGroups;
use super::lanes::Lane;
use super::spread::ExchangeReport;
use crate::aligner_selection::{Place, SelectedAligner, Selection};
use crate::error::PipelineError;
use crate::run_plan::IndexNeed;
use crate::run_report::AlignerReport;

/// The aligner, found, its index checked; nothing runs yet.
pub(super) struct FoundEngine {
    version: String,
    kind: FoundKind,
}

enum FoundKind {
    /// One of godwit's programs.
    Own(SelectedAligner),
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
    /// One of godwit's programs.
    Own {
        selected: SelectedAligner,
        /// The running process, until its lanes are aligned; `None` where workers align.
        session: Option<Session>,
    },
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
    pub(super) fn find(options: &AlignOptions, place: Place) -> Result<Self, PipelineError> {
        let choice = &options.aligner;
        match choice {
            AlignerChoice::Auto | AlignerChoice::Bwa | AlignerChoice::BwaMem3 | AlignerChoice::BwaMem2 => {
                let (reference, arguments) = (&options.reference, &options.aligner_args);
                let (threads, block_bases) = (options.job.threads, options.block_bases);
                let selection =
                    Selection { choice, reference, arguments, place, threads, block_bases, compares_reference: true };
                let selected = selection.select()?;
                Ok(Self { version: bwa::library_version(selected.kind).to_owned(), kind: FoundKind::Own(selected) })
            }
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
            FoundKind::Own(selected) => Ok(bwa::check_arguments(selected.kind, &options.aligner_args)?),
            FoundKind::Minimap2(minimap2) => each(&|lane| minimap2.invocation(lane)),
            FoundKind::Template { template, program } => each(&|lane| template.invocation(program, lane)),
        }
    }

    /// Returns memory and time that loading the index takes, if its files are known.
    pub(super) fn index_need(&self, options: &AlignOptions) -> IndexNeed {
        let files = match &self.kind {
            FoundKind::Own(selected) => bwa::loaded_files(&options.reference, selected.kind),
            FoundKind::Minimap2(_) | FoundKind::Template { .. } => {
                self.index_files(options).into_iter().map(|(file, _)| file).collect()
            }
        };
        IndexNeed::measured(&files)
    }

    /// The program that was selected for the records of bwa; `None` for other aligners.
    pub(super) fn selected(&self) -> Option<&SelectedAligner> {
        if let FoundKind::Own(selected) = &self.kind { Some(selected) } else { None }
    }

    /// Name and version of the program that aligns; the version is empty where it reports none.
    pub(super) fn text(&self, options: &AlignOptions) -> String {
        let other = || format!("{} {}", options.aligner.name(), self.version).trim_end().to_owned();
        self.selected().map_or_else(other, SelectedAligner::text)
    }

    /// Name and version of the program whose records it gives.
    pub(super) fn records<'e>(&'e self, options: &'e AlignOptions) -> (&'e str, &'e str) {
        self.selected().map_or((options.aligner.name(), self.version.as_str()), |_| bwa::RECORDS)
    }

    /// The files that tell its index from others, and whether the size of each says enough. Indexes of all programs with the
    /// records of bwa follow from the same files.
    pub(super) fn index_files(&self, options: &AlignOptions) -> Vec<(PathBuf, bool)> {
        let beside = |extension: &str| options.reference.with_added_extension(extension);
        match &self.kind {
            FoundKind::Own(_) => ["amb", "ann", "pac", "alt"].map(|extension| (beside(extension), false)).into(),
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
        let selected = match self.kind {
            FoundKind::Own(selected) => selected,
            FoundKind::Minimap2(minimap2) => return Ok(Engine { hello: foreign()?, kind: Kind::Minimap2(minimap2) }),
            FoundKind::Template { template, program } => {
                return Ok(Engine { hello: foreign()?, kind: Kind::Template { template, program } });
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
        Ok(Engine { hello: session.hello().clone(), kind: Kind::Own { selected, session: Some(session) } })
    }

    /// The same aligner where workers run it, one of which has sent its hello.
    pub(super) fn elsewhere(self, hello: Hello) -> Engine {
        let kind = match self.kind {
            FoundKind::Own(selected) => Kind::Own { selected, session: None },
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
            Kind::Own { .. } => lanes,
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
            Kind::Own { session, .. } => {
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

    /// Name, version and command line for its `@PG` line: what changes records. All programs with the records of bwa have the
    /// line of bwa, so that a file does not depend on which of them made it.
    pub(super) fn program_line(&self, options: &AlignOptions) -> (String, String, String) {
        let named = |line| (options.aligner.name().to_owned(), self.hello.engine_version.clone(), line);
        match &self.kind {
            Kind::Minimap2(minimap2) => named(minimap2.command_line()),
            Kind::Template { template, .. } => named(template.text().to_owned()),
            Kind::Own { .. } => {
                let (name, version) = bwa::RECORDS;
                let words = [name.to_owned(), "mem".to_owned(), format!("-K {}", options.block_bases)];
                let words: Vec<String> = words.into_iter().chain(options.aligner_args.iter().cloned()).collect();
                (name.to_owned(), version.to_owned(), words.join(" "))
            }
        }
    }

    /// For `run.json`. `exchange`: what workers used, where they align.
    pub(super) fn report(&self, options: &AlignOptions, exchange: Option<&ExchangeReport>) -> AlignerReport {
        let index: &Path = &options.reference;
        let (index, selected) = match &self.kind {
            Kind::Minimap2(_) => (Minimap2::index_path(index), None),
            Kind::Own { selected, .. } => (index.to_owned(), Some(selected)),
            Kind::Template { .. } => (index.to_owned(), None),
        };
        let own = || vec![(options.aligner.name().to_owned(), self.hello.engine_version.clone())];
        let used = match (selected, exchange) {
            (None, _) => own(),
            (Some(selected), None) => vec![selected.name_and_version()],
            (Some(_), Some(exchange)) => exchange.distinct_aligners(),
        };
        let joined = |part: fn(&(String, String)) -> &str| used.iter().map(part).collect::<Vec<_>>().join(", ");
        AlignerReport {
            choice: options.aligner.text().to_owned(),
            name: joined(|(name, _)| name),
            version: joined(|(_, version)| version),
            // Workers select for themselves.
            reason: selected.filter(|_| exchange.is_none()).and_then(|selected| selected.reason.clone()),
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
        let problem = format!("{file} is SAM or BAM, which --aligner auto, bwa and bwa-mem3 take; make FASTQ of it");
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

/// Returns a note about the aligner for the user.
pub(super) fn note(choice: &AlignerChoice) -> Option<String> {
    if *choice == AlignerChoice::BwaMem2 {
        return Some(
            "bwa-mem2 is another name for bwa-mem3, which loads the same index and gives the same records".into(),
        );
    }
    (choice.identity() == Identity::SingleStream).then(|| {
        format!(
            "nothing is known of what {} keeps from read to read: each lane is aligned by one process from end to end, and \
             cannot be spread over machines",
            choice.name()
        )
    })
}
