//! `godwit pack`, `unpack`, `collection` and `mutate`: delta compression of genomes against a reference.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use godwit_cli::cli::{
    CollectionAddArgs, CollectionExtractArgs, CollectionRegionArgs, CollectionVerb, CommonArgs, LogLevel, MutateArgs,
    PackArgs, UnpackArgs,
};
use godwit_cli::failure::Failure;
use godwit_delta::{
    Collection, DeltaError, GwpReader, MutationRates, PackOptions, PackSummary, Reference, ReferenceCachePolicy,
    mutate_fasta, pack, unpack,
};
use godwit_files::{AtomicFile, OutputTarget, is_stdout};
use godwit_io::bgzf::{GZIP_MAGIC, Reader};
use godwit_model::ErrorKind;
use godwit_model::Region;

use super::output_check::{NamedInput, check_output, reference_files};
use super::{input_path, print, scratch_directory, store_stream};
use crate::interruption;

/// Buffer size for reading and writing, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Runs `godwit pack`, which compresses a genome against a reference.
pub fn pack_file(args: &PackArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let threads = args.common.thread_count();
    check_inputs_remain(("OUT.gwp", &args.out), ("IN", &args.input), Some(args.reference.as_path()))?;
    let (mut input, out) = (
        open_input(&args.input, threads, &scratch_directory(&args.common), is_fasta)?,
        AtomicOutput::create(&args.out)?,
    );
    let reference = Reference::open(&args.reference, ReferenceCachePolicy::BesideFasta, threads)?;
    let anchors = reference.kmer_index(threads)?;
    let options = PackOptions { threads, ..PackOptions::default() };
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let summary = pack(&mut *input, &mut out, &reference, &anchors, &options, &cancelled)?;
    commit_output(out)?;
    print_outcome_of_file(&args.common, &args.out, &ratio_text(&summary))
}

/// Runs `godwit unpack`, which decompresses a genome or a region of it.
pub fn unpack_file(args: &UnpackArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let threads = args.common.thread_count();
    check_inputs_remain(("OUT", &args.out), ("IN.gwp", &args.input), args.reference.as_deref())?;
    let open = |path: &PathBuf| Reference::open(path, ReferenceCachePolicy::BesideFasta, threads);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, AtomicOutput::create(&args.out)?);
    if let Some(text) = &args.region {
        let reference = args.reference.as_ref().map(open).transpose()?;
        let mut genome = GwpReader::open(&args.input, reference.as_ref())?;
        let region = parse_region(text, &args.input, |contig| genome.has_sequence(contig))?;
        let bases = genome.write_region(&region, "", &mut out)?;
        commit_output(out)?;
        return print_outcome_of_file(&args.common, &args.out, &format!("{region}: {bases} bases"));
    }
    let mut input: Box<dyn Read> = match args.input.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(BufReader::with_capacity(BUFFER_BYTES, open_file(&args.input)?)),
    };
    let reference = args.reference.as_ref().map(open).transpose()?;
    let summary = unpack(&mut *input, &mut out, reference.as_ref(), threads, &cancelled)?;
    commit_output(out)?;
    print_outcome_of_file(&args.common, &args.out, &format!("{} bytes", summary.text_bytes))
}

/// Runs a subcommand of `godwit collection`.
pub fn run_collection(verb: &CollectionVerb) -> Result<(), Failure> {
    match verb {
        CollectionVerb::Add(args) => add_genomes(args),
        CollectionVerb::List(args) => list_genomes(&args.collection),
        CollectionVerb::Extract(args) => extract_genome(args),
        CollectionVerb::Region(args) => write_region_of_all(args),
    }
}

fn add_genomes(args: &CollectionAddArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    if args.name.is_some() && args.inputs.len() > 1 {
        return Err(Failure::new(
            ErrorKind::Usage,
            "--name is for a single genome, but several are given; omit it".into(),
        ));
    }
    let threads = args.common.thread_count();
    check_added_files_remain(args)?;
    let reference = Reference::open(&args.reference, ReferenceCachePolicy::BesideFasta, threads)?;
    let mut collection = Collection::open_or_create(&args.collection, &reference)?;
    let anchors = reference.kmer_index(threads)?;
    let options = PackOptions { threads, ..PackOptions::default() };
    let mut failures = InputFailures::new(args.inputs.len(), "genomes were not added");
    for path in &args.inputs {
        let name = member_name(args, path);
        let added = open_input(path, threads, &scratch_directory(&args.common), is_fasta).and_then(|mut input| {
            Ok(collection.add_member(&name, &mut *input, &reference, &anchors, &options, &cancelled)?)
        });
        if let Some(summary) = failures.record(path.display(), added)? {
            print_outcome(&args.common, &format!("{name}: {}\n", ratio_text(&summary)))?;
        }
    }
    failures.into_result()
}

/// Rejects genomes and a reference that are in the collection, where a packed file would replace them.
fn check_added_files_remain(args: &CollectionAddArgs) -> Result<(), Failure> {
    let genomes = args.inputs.iter().map(|path| ("IN", input_path(path)));
    let inputs: Vec<NamedInput> = genomes.chain(reference_files(&args.reference)).collect();
    args.inputs.iter().try_for_each(|path| {
        let out = Collection::packed_path(&args.collection, &member_name(args, path));
        check_output("the packed file in DIR", &out, &inputs)
    })
}

/// Returns the name under which a genome is added to a collection.
fn member_name(args: &CollectionAddArgs, path: &Path) -> String {
    args.name.clone().unwrap_or_else(|| genome_name(path))
}

/// The failures of a verb with several inputs, which continues with the next input after a failure.
struct InputFailures {
    input_count: usize,
    description: &'static str,
    failures: Vec<(String, Failure)>,
}

impl InputFailures {
    fn new(input_count: usize, description: &'static str) -> Self {
        Self { input_count, description, failures: Vec::new() }
    }

    /// Returns the value of an input that succeeded. If the input failed, stores the failure, prints a warning and
    /// returns `None`.
    ///
    /// # Errors
    /// The failure itself if the user interrupted the verb, or if there is only one input.
    fn record<T>(&mut self, input: impl ToString, outcome: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(failure) if failure.kind == ErrorKind::Interrupted || self.input_count == 1 => Err(failure),
            Err(failure) => {
                let input = input.to_string();
                godwit_cli::log::log_warning(&format!("{input} failed: {}", failure.single_line()));
                self.failures.push((input, failure));
                Ok(None)
            }
        }
    }

    /// Returns a failure that lists all stored failures, with the exit code of the first; `Ok` if there are none.
    fn into_result(self) -> Result<(), Failure> {
        let Some((_, first)) = self.failures.first() else { return Ok(()) };
        let each: Vec<String> =
            self.failures.iter().map(|(input, failure)| format!("{input}: {}", failure.single_line())).collect();
        let (failed, inputs, what) = (each.len(), self.input_count, self.description);
        Err(Failure::new(first.kind, format!("{failed} of {inputs} {what}: {}", each.join("; "))))
    }
}

fn list_genomes(directory: &Path) -> Result<(), Failure> {
    let collection = Collection::open(directory)?;
    let mut text = format!("reference\t{}\n", collection.reference_digest());
    for member in collection.members() {
        text.push_str(&format!("{}\t{}\t{}\n", member.name, member.text_bytes, member.packed_bytes));
    }
    print(&text)
}

fn extract_genome(args: &CollectionExtractArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let threads = args.common.thread_count();
    let collection = Collection::open(&args.collection)?;
    check_collection_remains(&args.out, &collection, &args.reference)?;
    let reference = Reference::open(&args.reference, ReferenceCachePolicy::BesideFasta, threads)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, AtomicOutput::create(&args.out)?);
    let summary = collection.extract_member(&args.name, &mut out, &reference, threads, &cancelled)?;
    commit_output(out)?;
    print_outcome_of_file(&args.common, &args.out, &format!("{} bytes", summary.text_bytes))
}

fn write_region_of_all(args: &CollectionRegionArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let collection = Collection::open(&args.collection)?;
    check_collection_remains(&args.out, &collection, &args.reference)?;
    let reference = Reference::open(&args.reference, ReferenceCachePolicy::BesideFasta, args.common.thread_count())?;
    let names = collection.sequence_names(&reference, &cancelled)?;
    let region = parse_region(&args.region, &args.collection, |contig| names.contains(contig))?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, AtomicOutput::create(&args.out)?);
    let all = collection.members().len();
    let mut failures = InputFailures::new(all, "genomes were skipped");
    let mut found = 0;
    for member in collection.members() {
        let written = collection.write_region(member, &region, &mut out, &reference, &cancelled).map_err(Failure::from);
        found += usize::from(failures.record(&member.name, written)? == Some(true));
    }
    if found == 0 {
        failures.into_result()?;
        return Err(DeltaError::ContigNotFound { contig: region.contig }.into());
    }
    commit_output(out)?;
    print_outcome_of_file(&args.common, &args.out, &format!("{region} of {found} of {all} genomes"))?;
    failures.into_result()
}

/// Runs `godwit mutate`, which writes a mutated copy of a genome.
pub fn mutate_file(args: &MutateArgs) -> Result<(), Failure> {
    check_inputs_remain(("OUT.fa", &args.out), ("IN.fa", &args.input), None)?;
    let mut input =
        BufReader::with_capacity(BUFFER_BYTES, open_input(&args.input, 1, &std::env::temp_dir(), |_| true)?);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, AtomicOutput::create(&args.out)?);
    let human = MutationRates::human(args.seed);
    let mutations = MutationRates {
        substitution_rate: human.substitution_rate * args.rate,
        indel_rate: human.indel_rate * args.rate,
        structural_variant_rate: human.structural_variant_rate * args.rate,
        inversion_rate: human.inversion_rate * args.rate,
        ..human
    };
    mutate_fasta(&mut input, &mut out, &mutations)
        .map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot write {}: {error}", args.out.display())))?;
    commit_output(out)
}

/// Rejects an output that is the input, or the reference or one of its indexes. Each path has the name of its argument.
fn check_inputs_remain(
    (option, out): (&str, &Path),
    (name, input): (&'static str, &Path),
    reference: Option<&Path>,
) -> Result<(), Failure> {
    let mut inputs = vec![(name, input_path(input))];
    inputs.extend(reference.into_iter().flat_map(reference_files));
    check_output_file(option, out, &inputs)
}

/// Rejects an output that is a file of the collection, or the reference or one of its indexes.
fn check_collection_remains(out: &Path, collection: &Collection, reference: &Path) -> Result<(), Failure> {
    let mut inputs: Vec<NamedInput> = reference_files(reference);
    inputs.extend(collection.files().map(|path| ("the file of the collection", path)));
    check_output_file("OUT", out, &inputs)
}

/// Rejects an output that is one of the inputs, unless it is stdout.
fn check_output_file(option: &str, out: &Path, inputs: &[NamedInput]) -> Result<(), Failure> {
    if is_stdout(out) { Ok(()) } else { check_output(option, out, inputs) }
}

/// Opens a file, pipe or standard input (`-`) for reading. If it is gzip or BGZF and `is_text` returns true for its first
/// decompressed bytes, it is decompressed. Everything else is read as it is, so that it can be restored byte by byte.
fn open_input(
    path: &Path,
    threads: usize,
    scratch: &Path,
    is_text: impl FnOnce(&[u8]) -> bool,
) -> Result<Box<dyn Read>, Failure> {
    let failed = |error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display()));
    let file = if path.as_os_str() == "-" { None } else { Some(open_file(path)?) };
    let is_regular = file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|found| found.is_file()));
    let mut source: Box<dyn Read> =
        file.map_or_else(|| Box::new(std::io::stdin().lock()) as _, |file| Box::new(file) as _);
    let mut first = Vec::new();
    Read::by_ref(&mut source).take(GZIP_MAGIC.len() as u64).read_to_end(&mut first).map_err(failed)?;
    let is_compressed = first == GZIP_MAGIC;
    let mut whole = std::io::Cursor::new(first).chain(source);
    if !is_compressed {
        return Ok(Box::new(whole));
    }
    // The content decides whether it is decompressed, so a stream is stored: it has to be read twice.
    let (compressed, raw) = if is_regular {
        (open_file(path)?, open_file(path)?)
    } else {
        let wrong = |error| {
            Failure::new(ErrorKind::Machine, format!("cannot store the input in {}: {error}", scratch.display()))
        };
        let stored = store_stream(&mut whole, "godwit-input-", scratch).map_err(wrong)?;
        (stored.reopen().map_err(wrong)?, stored.reopen().map_err(wrong)?)
    };
    let mut text = Reader::from_file(path, compressed, threads).map_err(DeltaError::Input)?;
    let is_text = is_text(text.data().map_err(DeltaError::Input)?);
    Ok(if is_text { Box::new(text) } else { Box::new(raw) })
}

/// Returns whether a text begins as FASTA: with a sequence name or a comment, possibly after empty lines.
fn is_fasta(text: &[u8]) -> bool {
    text.trim_ascii_start().first().is_some_and(|byte| b">;".contains(byte))
}

fn open_file(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|source| DeltaError::Io { path: path.to_owned(), source }.into())
}

/// Parses a region. `has_contig` returns whether the file or collection at the path `of` has a contig with this name.
fn parse_region(text: &str, of: &Path, has_contig: impl Fn(&str) -> bool) -> Result<Region, Failure> {
    let region = Region::parse(text, |contig| Some(has_contig(contig)));
    region
        .map_err(|error| Failure::new(ErrorKind::Usage, format!("cannot find the region in {}: {error}", of.display())))
}

/// Returns the default name of a genome: its file name without the extensions of gzip and FASTA.
fn genome_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = ["gz", "bgz"].iter().find_map(|ending| name.strip_suffix(&format!(".{ending}"))).unwrap_or(&name);
    let endings = ["fa", "fasta", "fna", "faa"];
    endings.iter().find_map(|ending| name.strip_suffix(&format!(".{ending}"))).unwrap_or(name).to_owned()
}

fn ratio_text(summary: &PackSummary) -> String {
    let PackSummary { text_bytes, packed_bytes, text_segments, .. } = *summary;
    if text_bytes == 0 {
        return format!("{packed_bytes} bytes from an empty input");
    }
    let times = text_bytes as f64 / packed_bytes as f64;
    let kept = match text_segments {
        0 => "",
        _ => "; parts that differ from the reference are stored as compressed text",
    };
    format!("{packed_bytes} bytes from {text_bytes} (1/{times:.0}){kept}")
}

/// Prints the outcome on stdout, unless `--quiet`, `--json` or the log level suppresses it.
fn print_outcome(common: &CommonArgs, line: &str) -> Result<(), Failure> {
    match common.quiet || common.json || common.log < LogLevel::Info {
        true => Ok(()),
        false => print(line),
    }
}

/// Prints the outcome on stdout, unless the output is stdout or another stream, which may be the same pipe: the line
/// would follow the data.
fn print_outcome_of_file(common: &CommonArgs, out: &Path, what: &str) -> Result<(), Failure> {
    let is_stream = || OutputTarget::resolve(out).is_ok_and(|target| target == OutputTarget::Stream);
    match is_stdout(out) || is_stream() {
        true => Ok(()),
        false => print_outcome(common, &format!("{}: {what}\n", out.display())),
    }
}

/// An output file that is renamed to its final name when it is complete, or stdout.
enum AtomicOutput {
    File(AtomicFile),
    Stdout(std::io::Stdout),
}

impl AtomicOutput {
    fn create(path: &Path) -> Result<Self, Failure> {
        if is_stdout(path) {
            return Ok(Self::Stdout(std::io::stdout()));
        }
        let file = AtomicFile::create_unique(path, 0o666);
        Ok(Self::File(file.map_err(|source| DeltaError::Io { path: path.to_owned(), source })?))
    }
}

impl Write for AtomicOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }
}

/// Flushes the output; a file is synced to disk and renamed to its final name.
fn commit_output(out: BufWriter<AtomicOutput>) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::from(DeltaError::Io { path, source })
    };
    match out.into_inner().map_err(|error| failed(Path::new("the output"))(error.into_error()))? {
        AtomicOutput::Stdout(mut stdout) => stdout.flush().map_err(failed(Path::new("stdout"))),
        AtomicOutput::File(file) => {
            let failed = failed(file.path());
            file.commit().map_err(failed)
        }
    }
}
