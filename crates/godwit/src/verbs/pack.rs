//! `godwit pack`, `unpack` and `collection`: genomes as what differs from a reference.

use std::fs::{File, Permissions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use godwit_formats::bgzf::{BgzfError, open_text};
use godwit_formats::{is_system_failure, with_causes};
use godwit_model::Region;
use godwit_process::Temporary;
use godwit_transfer::delta::{
    Collection, DeltaError, Keep, Mutations, PackOptions, PackSummary, PackedGenome, Reference, mutate, pack, unpack,
};
use tempfile::NamedTempFile;

use super::print;
use crate::cli::{
    CollectionAddArgs, CollectionExtractArgs, CollectionRegionArgs, CollectionVerb, Common, LogLevel, MutateArgs,
    PackArgs, UnpackArgs,
};
use crate::failure::{Exit, Failure};
use crate::interruption;

/// First bytes of gzip and BGZF.
const GZIP: [u8; 2] = [0x1F, 0x8B];
/// Bytes read or written at once.
const BUFFER_BYTES: usize = 1 << 20;

impl From<DeltaError> for Failure {
    fn from(error: DeltaError) -> Self {
        Self::new(exit_of(&error), with_causes(&error))
    }
}

/// Whose failure it is.
pub(super) fn exit_of(error: &DeltaError) -> Exit {
    match error {
        DeltaError::Reference(source) if is_system_failure(source) => Exit::Machine,
        DeltaError::Input(source) if is_system_failure(source) => Exit::Machine,
        // The reader of compressed text says itself what is wrong with it.
        DeltaError::Stream { source, .. } if is_bad_text(source) => Exit::Input,
        DeltaError::Io { .. } | DeltaError::Stream { .. } | DeltaError::Thread(_) => Exit::Machine,
        DeltaError::NoReference { .. } | DeltaError::NoSuchContig { .. } | DeltaError::BeyondEnd { .. } => Exit::Usage,
        DeltaError::NotExact => Exit::Bug,
        DeltaError::Cancelled => Exit::Interrupted,
        _ => Exit::Input,
    }
}

/// Whether reading failed because of what compressed text is, not because of the machine.
fn is_bad_text(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<BgzfError>());
    inner.is_some_and(|inner| !is_system_failure(inner))
}

/// `godwit pack`.
pub fn pack_file(args: &PackArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let threads = args.common.thread_count();
    let (mut input, out) = (open_input(&args.input, threads)?, Aside::create(&args.out)?);
    let reference = Reference::open(&args.reference, Keep::Beside, threads)?;
    let anchors = reference.anchors(threads)?;
    let options = PackOptions { threads, ..PackOptions::default() };
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let summary = pack(&mut *input, &mut out, &reference, &anchors, &options, &cancelled)?;
    finish(out)?;
    tell(&args.common, &format!("{}: {}\n", args.out.display(), ratio(&summary)))
}

/// `godwit unpack`.
pub fn unpack_file(args: &UnpackArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let threads = args.common.thread_count();
    let open = |path: &PathBuf| Reference::open(path, Keep::Beside, threads);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, Aside::create(&args.out)?);
    if let Some(text) = &args.region {
        let reference = args.reference.as_ref().map(open).transpose()?;
        let mut genome = PackedGenome::open(&args.input, reference.as_ref())?;
        let region = region_of(text, &args.input, |contig| genome.has_sequence(contig))?;
        let bases = genome.write_region(&region, "", &mut out)?;
        finish(out)?;
        return tell_beside(&args.common, &args.out, &format!("{region}: {bases} bases"));
    }
    let mut input: Box<dyn Read> = match args.input.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(BufReader::with_capacity(BUFFER_BYTES, open_file(&args.input)?)),
    };
    let reference = args.reference.as_ref().map(open).transpose()?;
    let summary = unpack(&mut *input, &mut out, reference.as_ref(), threads, &cancelled)?;
    finish(out)?;
    tell_beside(&args.common, &args.out, &format!("{} bytes", summary.text_bytes))
}

/// `godwit collection`.
pub fn collection(verb: &CollectionVerb) -> Result<(), Failure> {
    match verb {
        CollectionVerb::Add(args) => add(args),
        CollectionVerb::List(args) => list(&args.collection),
        CollectionVerb::Extract(args) => extract(args),
        CollectionVerb::Region(args) => region_of_all(args),
    }
}

fn add(args: &CollectionAddArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    if args.name.is_some() && args.inputs.len() > 1 {
        return Err(Failure::new(Exit::Usage, "--name names one genome, and several are given; leave it out".into()));
    }
    let threads = args.common.thread_count();
    let reference = Reference::open(&args.reference, Keep::Beside, threads)?;
    let mut collection = Collection::open_or_make(&args.collection, &reference)?;
    let anchors = reference.anchors(threads)?;
    let options = PackOptions { threads, ..PackOptions::default() };
    let mut failures = Failures::new(args.inputs.len(), "genomes were not added");
    for path in &args.inputs {
        let name = args.name.clone().unwrap_or_else(|| name_of(path));
        let added = open_input(path, threads).and_then(|mut input| {
            Ok(collection.add(&name, &mut *input, &reference, &anchors, &options, &cancelled)?)
        });
        if let Some(summary) = failures.note(path.display(), added)? {
            tell(&args.common, &format!("{name}: {}\n", ratio(&summary)))?;
        }
    }
    failures.outcome()
}

/// What failed of several inputs, of which each is tried.
struct Failures {
    inputs: usize,
    what: &'static str,
    failed: Vec<(String, Failure)>,
}

impl Failures {
    fn new(inputs: usize, what: &'static str) -> Self {
        Self { inputs, what, failed: Vec::new() }
    }

    /// The value of an input that did not fail.
    ///
    /// # Errors
    /// An interruption, and the failure of a single input.
    fn note<T>(&mut self, input: impl ToString, outcome: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(failure) if failure.exit == Exit::Interrupted || self.inputs == 1 => Err(failure),
            Err(failure) => {
                let input = input.to_string();
                crate::failure::log_warning(&format!("{input} failed: {}", failure.line()));
                self.failed.push((input, failure));
                Ok(None)
            }
        }
    }

    /// All failures as one, with the exit code of the first.
    fn outcome(self) -> Result<(), Failure> {
        let Some((_, first)) = self.failed.first() else { return Ok(()) };
        let each: Vec<String> =
            self.failed.iter().map(|(input, failure)| format!("{input}: {}", failure.line())).collect();
        let (failed, inputs, what) = (each.len(), self.inputs, self.what);
        Err(Failure::new(first.exit, format!("{failed} of {inputs} {what}: {}", each.join("; "))))
    }
}

fn list(directory: &Path) -> Result<(), Failure> {
    let collection = Collection::open(directory)?;
    let mut text = format!("reference\t{}\n", collection.reference());
    for member in collection.members() {
        text.push_str(&format!("{}\t{}\t{}\n", member.name, member.text_bytes, member.packed_bytes));
    }
    print(&text)
}

fn extract(args: &CollectionExtractArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let threads = args.common.thread_count();
    let collection = Collection::open(&args.collection)?;
    let reference = Reference::open(&args.reference, Keep::Beside, threads)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, Aside::create(&args.out)?);
    let summary = collection.extract(&args.name, &mut out, &reference, threads, &cancelled)?;
    finish(out)?;
    tell_beside(&args.common, &args.out, &format!("{} bytes", summary.text_bytes))
}

fn region_of_all(args: &CollectionRegionArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let collection = Collection::open(&args.collection)?;
    let reference = Reference::open(&args.reference, Keep::Beside, args.common.thread_count())?;
    let names = collection.sequence_names(&reference, &cancelled)?;
    let region = region_of(&args.region, &args.collection, |contig| names.contains(contig))?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, Aside::create(&args.out)?);
    let all = collection.members().len();
    let mut failures = Failures::new(all, "genomes were left out");
    let mut found = 0;
    for member in collection.members() {
        let written = collection.write_region(member, &region, &mut out, &reference, &cancelled).map_err(Failure::from);
        found += usize::from(failures.note(&member.name, written)? == Some(true));
    }
    if found == 0 {
        failures.outcome()?;
        return Err(DeltaError::NoSuchContig { contig: region.contig }.into());
    }
    finish(out)?;
    tell_beside(&args.common, &args.out, &format!("{region} of {found} of {all} genomes"))?;
    failures.outcome()
}

/// `godwit mutate`.
pub fn mutate_file(args: &MutateArgs) -> Result<(), Failure> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, open_input(&args.input, 1)?);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, Aside::create(&args.out)?);
    let human = Mutations::human(args.seed);
    let mutations = Mutations {
        substitutions: human.substitutions * args.rate,
        indels: human.indels * args.rate,
        structural: human.structural * args.rate,
        inversions: human.inversions * args.rate,
        ..human
    };
    mutate(&mut input, &mut out, &mutations)
        .map_err(|error| Failure::new(Exit::Machine, format!("cannot make {}: {error}", args.out.display())))?;
    finish(out)
}

/// The text of a file: decompressed where it is gzip or BGZF, else as it is.
fn open_input(path: &Path, threads: usize) -> Result<Box<dyn Read>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let mut file = open_file(path)?;
    let mut first = Vec::new();
    let failed = |error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", path.display()));
    Read::by_ref(&mut file).take(GZIP.len() as u64).read_to_end(&mut first).map_err(failed)?;
    let is_file = file.metadata().map_err(failed)?.is_file();
    if first == GZIP && is_file {
        let reader = open_text(path, threads).map_err(DeltaError::Input)?;
        return Ok(Box::new(reader));
    }
    Ok(Box::new(std::io::Cursor::new(first).chain(file)))
}

fn open_file(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|source| DeltaError::Io { path: path.to_owned(), source }.into())
}

/// Reads a region string by the contigs of a file or directory.
fn region_of(text: &str, of: &Path, has_contig: impl Fn(&str) -> bool) -> Result<Region, Failure> {
    let region = Region::parse(text, |contig| Some(has_contig(contig)));
    region.map_err(|error| Failure::new(Exit::Usage, format!("cannot find the region in {}: {error}", of.display())))
}

/// The name of a genome: that of its file, without endings that say what it is.
fn name_of(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = ["gz", "bgz"].iter().find_map(|ending| name.strip_suffix(&format!(".{ending}"))).unwrap_or(&name);
    let endings = ["fa", "fasta", "fna", "faa"];
    endings.iter().find_map(|ending| name.strip_suffix(&format!(".{ending}"))).unwrap_or(name).to_owned()
}

fn ratio(summary: &PackSummary) -> String {
    let PackSummary { text_bytes, packed_bytes, segments_of_text, .. } = *summary;
    if text_bytes == 0 {
        return format!("{packed_bytes} bytes from an empty input");
    }
    let times = text_bytes as f64 / packed_bytes as f64;
    let kept = match segments_of_text {
        0 => "",
        _ => "; some of it is not like the reference and stayed text",
    };
    format!("{packed_bytes} bytes from {text_bytes} (1/{times:.0}){kept}")
}

/// Says the outcome on stdout.
fn tell(common: &Common, line: &str) -> Result<(), Failure> {
    match common.quiet || common.json || common.log < LogLevel::Info {
        true => Ok(()),
        false => print(line),
    }
}

/// Says the outcome, where stdout is not the output itself.
fn tell_beside(common: &Common, out: &Path, what: &str) -> Result<(), Failure> {
    match out.as_os_str() == "-" {
        true => Ok(()),
        false => tell(common, &format!("{}: {what}\n", out.display())),
    }
}

/// An output that has its name when it is whole, or stdout.
enum Aside {
    File { file: Temporary<NamedTempFile>, path: PathBuf },
    Stdout(std::io::Stdout),
}

impl Aside {
    fn create(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout(std::io::stdout()));
        }
        if path.is_dir() {
            let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
            return Err(DeltaError::Io { path: path.to_owned(), source }.into());
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // As other files are made: who may read it is what the process was told.
        let permissions = Permissions::from_mode(0o666);
        let file = Temporary::create(|| tempfile::Builder::new().permissions(permissions).tempfile_in(directory));
        let file = file.map_err(|source| DeltaError::Io { path: path.to_owned(), source })?;
        Ok(Self::File { file, path: path.to_owned() })
    }
}

impl Write for Aside {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::File { file, .. } => file.write(bytes),
            Self::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::File { file, .. } => file.flush(),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }
}

/// Makes the output durable and names it.
fn finish(out: BufWriter<Aside>) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::from(DeltaError::Io { path, source })
    };
    match out.into_inner().map_err(|error| failed(Path::new("the output"))(error.into_error()))? {
        Aside::Stdout(mut stdout) => stdout.flush().map_err(failed(Path::new("stdout"))),
        Aside::File { file, path } => {
            file.as_file().sync_all().map_err(failed(&path))?;
            let (file, _listed) = file.into_parts();
            file.persist(&path).map_err(|error| failed(&path)(error.error))?;
            Ok(())
        }
    }
}
