//! The command line. Names and meanings are a contract: scripts depend on them.

mod nodes;

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use godwit_engines::EngineError;
use godwit_engines::aligner::AlignerChoice;
use godwit_pipeline::{BarcodeTags, DuplicateMode, DuplicatePolicy, Format, MarkingOptions, TaggingPolicy};

pub use nodes::{NodeArgs, Place, PlaceArgs};

/// From sequencer to answer: align, sort and mark reads with the results of bwa, samtools and Picard.
#[derive(Parser)]
#[command(name = "godwit", version, propagate_version = true, subcommand_required = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// Parses the arguments of the process.
    ///
    /// # Errors
    /// What clap found wrong, or a request for help.
    pub fn from_environment() -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        if let (Verb::Align(args), Some((_, align))) = (&mut cli.verb, matches.subcommand()) {
            let lanes = align.get_occurrences::<PathBuf>("reads").into_iter().flatten();
            args.lanes = lanes.map(|files| files.cloned().collect()).collect();
        }
        Ok(cli)
    }
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub enum Verb {
    /// Make what the aligner needs beside a reference
    #[command(after_help = "Example:\n  godwit index ref.fa")]
    Index(IndexArgs),
    /// FASTQ to sorted, duplicate-marked BAM, CRAM, Parquet or Arrow
    #[command(
        after_help = "Example:\n  godwit align --reference ref.fa --reads s_R1.fq.gz s_R2.fq.gz --sample S --out out"
    )]
    Align(AlignArgs),
    /// Sort and mark duplicates in reads aligned elsewhere
    #[command(after_help = "Example:\n  godwit markdup aligned.sam --out marked.bam")]
    Markdup(MarkdupArgs),
    /// Check files against their manifest: sizes, checksums, record counts
    #[command(after_help = "Example:\n  godwit verify out/S.bam")]
    Verify(VerifyArgs),
    /// Make a small genome and reads, run the main job, compare with the truth
    #[command(after_help = "Example:\n  godwit demo --out demo")]
    Demo(DemoArgs),
    /// Make reads from a diploid copy of a reference, with known variants and duplicates
    #[command(hide = true, after_help = "Example:\n  godwit simulate --reference ref.fa --pairs 1000 --out sim")]
    Simulate(SimulateArgs),
    /// Measure a network or a server
    #[command(subcommand, after_help = "Example:\n  godwit bench flight --streams 1,2,4")]
    Bench(BenchVerb),
    /// Work for a run over many nodes; started by `godwit align --on`, not by people
    #[command(hide = true, after_help = "Example:\n  godwit node --meeting out/.godwit/nodes")]
    Node(NodeArgs),
    /// Print a shell's completion script
    #[command(after_help = "Example:\n  godwit completions bash > /etc/bash_completion.d/godwit")]
    Completions(CompletionsArgs),
}

/// Options of every verb that works for a while.
#[derive(Args, Clone)]
pub struct Common {
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Memory of godwit itself, the aligner apart (512M, 8G) [default: 8G; align: 512M or what its blocks need]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Directory for scratch files [default: beside the output]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
    /// Print events as JSON lines on stderr
    #[arg(long)]
    pub json: bool,
    /// How to show progress
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto, value_name = "MODE")]
    pub progress: ProgressMode,
    /// Print nothing but errors
    #[arg(long)]
    pub quiet: bool,
    /// What to log
    #[arg(long, value_enum, default_value_t = LogLevel::Info, value_name = "LEVEL")]
    pub log: LogLevel,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, else plain
    Auto,
    /// A line now and then
    Plain,
    /// Nothing
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Errors only
    Error,
    /// And warnings
    Warn,
    /// And the outcome
    Info,
    /// And every stage
    Debug,
}

#[derive(Args)]
pub struct IndexArgs {
    /// The reference, FASTA
    #[arg(value_name = "REF.fa")]
    pub reference: PathBuf,
    /// The aligner to index for: bwa, bwa-mem2 or minimap2
    #[arg(long, value_name = "NAME", default_value = "bwa", value_parser = parse_aligner)]
    pub aligner: AlignerChoice,
    /// Options of minimap2: the index depends on its preset, as in "-x map-ont"
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub aligner_args: String,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct AlignArgs {
    /// The reference, FASTA, indexed by `godwit index`
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Reads of one lane: FASTQ, one file or read 1 and read 2, or an unaligned SAM or BAM; - is stdin; again for each lane
    #[arg(long, value_name = "FQ", num_args = 1..=2, required = true)]
    pub reads: Vec<PathBuf>,
    /// `reads` by occurrence, filled by [`Cli::from_environment`].
    #[arg(skip)]
    pub lanes: Vec<Vec<PathBuf>>,
    #[command(flatten)]
    pub input: InputArgs,
    /// Sample name: names the output and fills SM
    #[arg(long, value_name = "NAME", value_parser = parse_sample)]
    pub sample: String,
    /// Output directory
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// @RG line, \t for tabs; once for all lanes or once for each [default: from sample and read names]
    #[arg(long, value_name = "@RG..")]
    pub read_group: Vec<String>,
    /// bwa, bwa-mem2, minimap2, or a command line: 'bowtie2 -x {index} --interleaved {reads} -p {threads} --reorder'
    #[arg(long, value_name = "NAME|COMMAND", default_value = "bwa", value_parser = parse_aligner)]
    pub aligner: AlignerChoice,
    /// Options of the aligner that change records, in one string
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub aligner_args: String,
    /// Output formats, any of bam, cram, parquet and arrow, all written in one pass
    #[arg(long, value_enum, value_delimiter = ',', default_value = "bam", value_name = "FORMATS")]
    pub format: Vec<FormatName>,
    #[command(flatten)]
    pub marking: MarkingArgs,
    /// Bases per block: `bwa mem -K`
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub block_bases: u64,
    /// Take metrics of the BAM and make report.html
    #[arg(long, value_enum, default_value_t = Switch::On, value_name = "on|off", hide_possible_values = true)]
    pub metrics: Switch,
    /// Refuse any FASTQ that is not clean (the default)
    #[arg(long, conflicts_with = "lenient")]
    pub strict: bool,
    /// Accept a BGZF file without its last block, and `+` lines with another title
    #[arg(long)]
    pub lenient: bool,
    /// Go on with a run of the same command that was stopped; nothing is done twice
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub common: Common,
}

/// How reads come.
#[derive(Args)]
pub struct InputArgs {
    /// FASTQ files hold both mates, one after the other
    #[arg(long)]
    pub interleaved: bool,
    /// Tags of an unaligned SAM or BAM that the output keeps, as BC,RX
    #[arg(long, value_name = "TAGS", value_delimiter = ',', value_parser = parse_kept_tag)]
    pub keep_tags: Vec<[u8; 2]>,
    /// Trim FASTQ on the way in
    #[arg(long, value_enum, value_name = "TRIMMER")]
    pub trim: Option<TrimmerName>,
    /// Options of the trimmer that change reads, in one string
    #[arg(long, value_name = "ARGS", requires = "trim", default_value = "", allow_hyphen_values = true)]
    pub trim_args: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrimmerName {
    /// fastp 0.23 or later
    Fastp,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// BAM with index
    Bam,
    /// CRAM 3.0 with index
    Cram,
    /// A directory of Parquet files, one per partition
    Parquet,
    /// A directory of Arrow IPC files, one per partition
    Arrow,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Bam => Self::Bam,
            FormatName::Cram => Self::Cram,
            FormatName::Parquet => Self::Parquet,
            FormatName::Arrow => Self::Arrow,
        }
    }
}

/// How records are sorted and duplicates found, and what becomes of them.
#[derive(Args)]
pub struct MarkingArgs {
    /// What to do with duplicates
    #[arg(long, value_enum, default_value_t = Duplicates::Mark, value_name = "POLICY")]
    pub duplicates: Duplicates,
    /// Greatest distance of optical duplicates, pixels (2500 for patterned flow cells)
    #[arg(long, value_name = "PIXELS", default_value_t = 100, value_parser = clap::value_parser!(i32).range(0..))]
    pub optical_distance: i32,
    /// What is marked: reads, as Picard does on coordinate-sorted input, or whole templates, as on query-grouped input
    #[arg(long, value_enum, default_value_t = Mode::Coordinate, value_name = "MODE")]
    pub duplicate_mode: Mode,
    /// Tell in tag DT of which kind duplicates are: LB of the library, SQ of sequencing (optical)
    #[arg(long, value_enum, default_value_t = Tagging::None, value_name = "POLICY")]
    pub tagging_policy: Tagging,
    /// Tag the pairs of duplicate sets: DI names the set, DS is its number of pairs
    #[arg(long)]
    pub tag_duplicate_set_members: bool,
    /// Tag of a barcode that duplicates share, such as RX
    #[arg(long, value_name = "TAG", value_parser = parse_tag)]
    pub barcode_tag: Option<[u8; 2]>,
    /// Tag of a barcode of read 1 that duplicates share
    #[arg(long, value_name = "TAG", value_parser = parse_tag)]
    pub read_one_barcode_tag: Option<[u8; 2]>,
    /// Tag of a barcode of read 2 that duplicates share
    #[arg(long, value_name = "TAG", value_parser = parse_tag)]
    pub read_two_barcode_tag: Option<[u8; 2]>,
    /// The barcode is of both strands (AT-GA) and is swapped on the bottom strand
    #[arg(long, requires = "barcode_tag")]
    pub duplex_umi: bool,
    /// Tag to write each record's molecule to, such as MI
    #[arg(long, value_name = "TAG", value_parser = parse_tag, requires = "barcode_tag")]
    pub molecular_identifier_tag: Option<[u8; 2]>,
    /// Partitions of the genome that are sorted and written independently
    #[arg(long, value_name = "P", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub partitions: u32,
}

impl Default for MarkingArgs {
    /// What the command line has where nothing is said.
    fn default() -> Self {
        Self {
            duplicates: Duplicates::Mark,
            optical_distance: 100,
            duplicate_mode: Mode::Coordinate,
            tagging_policy: Tagging::None,
            tag_duplicate_set_members: false,
            barcode_tag: None,
            read_one_barcode_tag: None,
            read_two_barcode_tag: None,
            duplex_umi: false,
            molecular_identifier_tag: None,
            partitions: 128,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Duplicates {
    /// Set FLAG 0x400
    Mark,
    /// Leave them out
    Remove,
    /// Leave optical duplicates out, mark the others
    RemoveOptical,
    /// Do not look for them
    None,
}

impl From<Duplicates> for DuplicatePolicy {
    fn from(duplicates: Duplicates) -> Self {
        match duplicates {
            Duplicates::Mark => Self::Mark,
            Duplicates::Remove => Self::Remove,
            Duplicates::RemoveOptical => Self::RemoveOptical,
            Duplicates::None => Self::None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Mapped primary reads; ties are broken by coordinate order
    Coordinate,
    /// Every record of a duplicate's name; ties are broken by the order of the input
    Query,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tagging {
    /// No tags
    None,
    /// Optical duplicates only
    Optical,
    /// All duplicates
    All,
}

impl MarkingArgs {
    /// How duplicates are marked beyond policy and optical distance.
    pub fn marking(&self) -> MarkingOptions {
        MarkingOptions {
            mode: match self.duplicate_mode {
                Mode::Coordinate => DuplicateMode::Coordinate,
                Mode::Query => DuplicateMode::Query,
            },
            tagging: match self.tagging_policy {
                Tagging::None => TaggingPolicy::None,
                Tagging::Optical => TaggingPolicy::Optical,
                Tagging::All => TaggingPolicy::All,
            },
            tag_set_members: self.tag_duplicate_set_members,
            barcodes: BarcodeTags {
                molecule: self.barcode_tag,
                read1: self.read_one_barcode_tag,
                read2: self.read_two_barcode_tag,
                duplex: self.duplex_umi,
            },
            molecule_tag: self.molecular_identifier_tag,
        }
    }
}

#[derive(Args)]
pub struct MarkdupArgs {
    /// SAM, BAM or CRAM, in any order; - is stdin
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// What to write, in the format its ending says: .bam, .cram, .parquet or .arrow
    #[arg(long, value_name = "OUT.bam")]
    pub out: PathBuf,
    /// Formats to write beside that one, in the same pass
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORMATS")]
    pub format: Vec<FormatName>,
    /// Take metrics of what is written and make OUT.report.html
    #[arg(long)]
    pub metrics: bool,
    /// The reference, FASTA: CRAM needs it, in or out, and with it metrics count mismatches
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    #[command(flatten)]
    pub marking: MarkingArgs,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct VerifyArgs {
    /// A file that godwit wrote, a manifest, or a directory with manifests; a BAM without one is checked by itself
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct DemoArgs {
    /// Where to put everything
    #[arg(long, value_name = "DIR", default_value = "godwit-demo")]
    pub out: PathBuf,
    /// Read pairs to make
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub pairs: u64,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct SimulateArgs {
    /// Reference to draw from, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Read pairs to make
    #[arg(long, value_name = "N")]
    pub pairs: u64,
    /// Bases per read
    #[arg(long, value_name = "N", default_value_t = 148)]
    pub read_bases: u32,
    /// Lanes, each with files of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub lanes: u32,
    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write gzip
    #[arg(long)]
    pub gzip: bool,
    /// PREFIX of `PREFIX_L001_R1.fastq`, `PREFIX_L001_R2.fastq`, `PREFIX.truth.vcf`, `PREFIX.truth.tsv`
    #[arg(long, value_name = "PREFIX")]
    pub out: PathBuf,
}

#[derive(Subcommand)]
pub enum BenchVerb {
    /// Throughput of Arrow Flight, between two processes here or to a server started with --listen
    #[command(after_help = "Example:\n  godwit bench flight --method get --streams 1,2,4 --bytes 1G")]
    Flight(BenchFlightArgs),
}

#[derive(Args)]
pub struct BenchFlightArgs {
    /// Measure against this server (HOST:PORT or unix:PATH), started by `godwit bench flight --listen`
    #[arg(long, value_name = "ADDRESS", conflicts_with = "listen")]
    pub at: Option<String>,
    /// Be the server, at HOST:PORT (port 0: any) or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// End when stdin is closed
    #[arg(long, hide = true, requires = "listen")]
    pub until_stdin_closes: bool,
    /// How data moves
    #[arg(long, value_enum, value_delimiter = ',', default_value = "get,put", value_name = "METHODS")]
    pub method: Vec<BenchMethod>,
    /// Connections at once, one result each
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub streams: Vec<u32>,
    /// What rows look like
    #[arg(long, value_enum, default_value_t = BenchShape::Fixed, value_name = "SHAPE")]
    pub shape: BenchShape,
    /// Bytes per row of the fixed shape, a multiple of 8
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(8..=8192))]
    pub row_bytes: u32,
    /// Rows per batch
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub rows: u32,
    /// Data per measurement, held in memory
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub bytes: u64,
    /// Socket between the two processes
    #[arg(long, value_enum, default_value_t = BenchSocket::Tcp, value_name = "SOCKET", conflicts_with = "at")]
    pub socket: BenchSocket,
    /// Measurements of each kind; the median is told
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How to print results
    #[arg(long, value_enum, default_value_t = TableFormat::Table, value_name = "FORMAT")]
    pub format: TableFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchMethod {
    /// DoGet: the server sends
    Get,
    /// DoPut: the client sends
    Put,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchShape {
    /// Numbers of eight bytes
    Fixed,
    /// Aligned reads: numbers, names with nulls, packed records of about 350 bytes
    Alignments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchSocket {
    /// TCP on the loopback interface
    Tcp,
    /// A Unix socket
    Unix,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// For people
    Table,
    /// For programs
    Json,
}

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `512M`, `8G`, `1T`, `64K` or plain bytes.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        unit => return Err(format!("{unit} is not a unit of size; use K, M, G or T")),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a size is a whole number and a unit, as in 512M or 8G".to_string())?;
    number.checked_mul(1 << unit).filter(|bytes| *bytes > 0).ok_or_else(|| "out of range".into())
}

/// The two letters of a SAM tag (SAMv1 §1.5, 2023-05-24).
fn parse_tag(text: &str) -> Result<[u8; 2], String> {
    match text.as_bytes() {
        [first, second] if first.is_ascii_alphabetic() && second.is_ascii_alphanumeric() => Ok([*first, *second]),
        _ => Err("a tag is a letter and a letter or digit, as in RX".into()),
    }
}

/// A tag to carry over. The read group is the lane's.
fn parse_kept_tag(text: &str) -> Result<[u8; 2], String> {
    match text {
        "RG" => Err("RG comes from the header or --read-group".into()),
        _ => parse_tag(text),
    }
}

/// A name or a template.
fn parse_aligner(text: &str) -> Result<AlignerChoice, String> {
    text.parse().map_err(|error: EngineError| error.to_string())
}

/// Sample names become file names and `SM` values.
fn parse_sample(text: &str) -> Result<String, String> {
    let fine = !text.is_empty()
        && text.len() <= 200
        && !text.starts_with('.')
        && text.chars().all(|c| !c.is_control() && c != '/');
    if fine {
        Ok(text.into())
    } else {
        Err("a sample name is a file name: no /, no control characters, no leading dot".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_take_binary_units() {
        assert_eq!(parse_size("8G"), Ok(8 << 30));
        assert_eq!(parse_size("128M"), Ok(128 << 20));
        assert_eq!(parse_size("1000"), Ok(1000));
        assert!(parse_size("8X").is_err() && parse_size("").is_err() && parse_size("0G").is_err());
        assert!(parse_size("99999999999T").is_err());
    }

    #[test]
    fn every_verb_helps_with_an_example() {
        for verb in Cli::command().get_subcommands() {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example:\n  godwit "), "{}", verb.get_name());
        }
    }
}
