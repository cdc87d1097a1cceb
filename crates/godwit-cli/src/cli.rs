//! Definition of the command line. Scripts depend on the names and meanings of verbs and options, so these must not
//! change.

mod access;
mod align;
mod bam_metrics;
mod bench;
mod bench_flight;
mod bench_path;
mod bench_query;
mod bench_shuffle;
mod call;
mod calling;
mod cluster;
mod cohort_plan;
mod compare;
mod copy;
mod decode_cram;
mod encryption;
mod filter;
mod marking;
mod mount;
mod pack;
mod policy_audit;
mod query;
mod recalibrate;
mod resource_help;
mod run;
mod score;
mod search;
mod serve;
mod startup;
mod value_parsers;
mod variant_columns;
mod verb_groups;

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use godwit_engines::aligner::AlignerChoice;
use godwit_pipeline::reduce::Format;

use crate::config::THIS_RUN_HEADING;
pub use access::AccessArgs;
pub use align::{AlignArgs, TrimmerName};
pub use bam_metrics::{JobMetrics, JobMetricsArgs, MetricsArgs, MetricsValue, TargetListArgs};
pub use bench::{BenchVerb, TableFormat};
pub use bench_flight::{BenchFlightArgs, BenchMethod, BenchShape, BenchSocket};
pub use bench_path::{BenchPathArgs, PathEmulatorArgs};
pub use bench_query::BenchQueryArgs;
pub use bench_shuffle::BenchShuffleArgs;
pub use call::CallArgs;
pub use calling::CallingArgs;
pub use cluster::{ClusterArgs, LauncherName, WorkerArgs};
pub use cohort_plan::{BalancePolicy, PlanArgs};
pub use compare::{CompareArgs, OutputModeName};
pub use copy::{CompressionName, CopyArgs};
pub use decode_cram::DecodeCramArgs;
pub use encryption::{KeyArgs, RecipientArgs};
pub use filter::{FilterArgs, ResourceArgs};
pub use marking::MarkingArgs;
pub use mount::{MountArgs, MountGuardArgs};
pub use pack::{
    CollectionAddArgs, CollectionExtractArgs, CollectionRegionArgs, CollectionVerb, MutateArgs, PackArgs, UnpackArgs,
};
pub use policy_audit::{AuditVerb, AuditVerifyArgs, PolicyTestArgs, PolicyVerb};
pub use query::{QueryArgs, RowFormatName};
pub use recalibrate::{QualityArgs, RecalibrateArgs};
pub(crate) use resource_help::RESOURCE_OPTIONS;
pub use run::RunArgs;
pub use score::ScoreArgs;
pub use search::{SearchArgs, SearchEngine, SearchWorkerArgs};
pub use serve::{KeySource, ServeArgs, TokenArgs};
pub use startup::{StartupError, with_arguments};
pub use value_parsers::parse_rate;
use value_parsers::{parse_aligner, parse_milliseconds, parse_size};
pub use variant_columns::VariantsArgs;
pub(crate) use verb_groups::{SHORT_HELP, VERB_GROUPS};

/// From sequencer to results: align, sort and mark reads with the results of bwa, samtools and Picard.
#[derive(Parser)]
#[command(
    name = "godwit",
    version,
    propagate_version = true,
    subcommand_required = true,
    help_template = verb_groups::help_template()
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    /// Read this configuration file instead of those of the user and the project
    #[arg(long, global = true, value_name = "FILE", help_heading = THIS_RUN_HEADING, conflicts_with = "no_config")]
    pub config: Option<PathBuf>,
    /// Read no configuration file
    #[arg(long, global = true, help_heading = THIS_RUN_HEADING)]
    pub no_config: bool,
    /// True if stderr must contain only events, as lines of JSON; [`Cli::from_environment`] sets this field.
    #[arg(skip)]
    pub emits_events: bool,
}

impl Cli {
    /// Returns the common options of the verb, if it has them.
    fn common_mut(&mut self) -> Option<&mut CommonArgs> {
        match &mut self.verb {
            Verb::Index(args) => Some(&mut args.common),
            Verb::Align(args) => Some(&mut args.common),
            Verb::Markdup(args) => Some(&mut args.common),
            Verb::Metrics(args) => Some(&mut args.common),
            Verb::Run(args) => Some(&mut args.common),
            Verb::Call(args) => Some(&mut args.common),
            Verb::Filter(args) => Some(&mut args.common),
            Verb::Recalibrate(args) => Some(&mut args.common),
            Verb::Verify(args) => Some(&mut args.common),
            Verb::Compare(args) => Some(&mut args.common),
            Verb::Variants(args) => Some(&mut args.common),
            Verb::Query(args) => Some(&mut args.common),
            Verb::Score(args) => Some(&mut args.common),
            Verb::Search(args) => Some(&mut args.common),
            Verb::Serve(args) => Some(&mut args.common),
            Verb::Copy(args) => Some(&mut args.common),
            Verb::Mount(args) => Some(&mut args.common),
            Verb::Pack(args) => Some(&mut args.common),
            Verb::Unpack(args) => Some(&mut args.common),
            Verb::Collection(verb) => verb.common_mut(),
            Verb::Demo(args) => Some(&mut args.common),
            _ => None,
        }
    }
}

#[derive(Subcommand)]
pub enum Verb {
    /// Build the index files of the aligner for a reference
    #[command(mut_args(resource_help::threads_only), after_help = "Example:\n  godwit index ref.fa")]
    Index(IndexArgs),
    /// FASTQ to sorted, duplicate-marked BAM, CRAM, Parquet or Arrow
    #[command(
        mut_args(resource_help::align),
        after_help = "Example:\n  godwit align --reference ref.fa --reads s_R1.fq.gz s_R2.fq.gz --sample S --out out"
    )]
    Align(Box<AlignArgs>),
    /// Sort and mark duplicates in aligned reads of any origin
    #[command(mut_args(resource_help::markdup), after_help = "Example:\n  godwit markdup aligned.sam --out marked.bam")]
    Markdup(MarkdupArgs),
    /// Picard's metrics of a BAM in one pass
    #[command(
        mut_args(resource_help::threads_only),
        after_help = "Example:\n  godwit metrics out/S.bam --reference ref.fa --out metrics"
    )]
    Metrics(MetricsArgs),
    /// Many samples from FASTQ to variants
    #[command(
        mut_args(resource_help::run),
        after_help = "Example:\n  godwit run --reference ref.fa --samples sheet.csv --out out"
    )]
    Run(Box<RunArgs>),
    /// Call variants by region, with the records of a single run of the caller
    #[command(
        mut_args(resource_help::call),
        after_help = "Example:\n  godwit call --reference ref.fa --reads out --out S.vcf.gz"
    )]
    Call(Box<CallArgs>),
    /// Recalibrate base qualities, with the table and qualities of GATK
    #[command(
        mut_args(resource_help::recalibrate),
        after_help = "Example:\n  godwit recalibrate --reference ref.fa --reads out --known-sites known.vcf.gz --out S.bam"
    )]
    Recalibrate(RecalibrateArgs),
    /// Filter variants with GATK: recalibration (VQSR), or hard filters if there are too few training variants
    #[command(
        mut_args(resource_help::none),
        after_help = "Example:\n  godwit filter --reference ref.fa --variants joint.vcf.gz --out joint.filtered.vcf.gz"
    )]
    Filter(FilterArgs),
    /// Check files against their manifest: sizes, checksums, record counts
    #[command(mut_args(resource_help::threads_only), after_help = "Example:\n  godwit verify out/S.bam")]
    Verify(VerifyArgs),
    /// Compare called variants with a truth set: recall, precision and F1 of SNPs and indels
    #[command(
        mut_args(resource_help::compare),
        after_help = "Example:\n  godwit compare calls.vcf.gz truth.vcf.gz --reference ref.fa --confident truth.bed --out verdicts"
    )]
    Compare(CompareArgs),
    /// VCF to Parquet or Arrow
    #[command(
        mut_args(resource_help::threads_only),
        after_help = "Example:\n  godwit variants calls.vcf.gz --out calls.parquet"
    )]
    Variants(VariantsArgs),
    /// Query reads, variants and tables with SQL
    #[command(
        mut_args(resource_help::query),
        after_help = "Example:\n  godwit query \"SELECT count(*) FROM reads('S.bam') WHERE region('chr20:1-100000')\" --data out"
    )]
    Query(QueryArgs),
    /// Score rows of a file or a statement with a scoring service
    #[command(
        mut_args(resource_help::query),
        after_help = "Example:\n  godwit score --model filter --at grpc+tcp://127.0.0.1:8816 calls.parquet --out scored.parquet"
    )]
    Score(Box<ScoreArgs>),
    /// Search sequences with BLAST+ on several workers: the output equals that of the program alone
    #[command(
        mut_args(resource_help::search),
        after_help = "Example:\n  godwit search --workers 4 -- blastp -db swissprot -query proteins.fa -outfmt 6 -out hits.tsv"
    )]
    Search(SearchArgs),
    /// Serve reads, variants and tables over Arrow Flight, with SQL
    #[command(mut_args(resource_help::serve), after_help = "Example:\n  godwit serve --root out")]
    Serve(Box<ServeArgs>),
    /// Copy files from or to a server, verified, and resumed after an interruption
    #[command(
        mut_args(resource_help::threads_only),
        after_help = "Example:\n  godwit copy grpc+tls://data.example.org/run7/S.bam ."
    )]
    Copy(Box<CopyArgs>),
    /// Mount a server, a pool or a directory, so that any program uses its files
    #[command(
        mut_args(resource_help::mount),
        after_help = "Example:\n  godwit mount godwit+pool://storage/run7 /mnt/run7 --pool pool.toml"
    )]
    Mount(Box<MountArgs>),
    /// Remove the mount of a killed process; started by `godwit mount`, not by users
    #[command(hide = true, after_help = "Example:\n  godwit mount-guard /mnt/run7")]
    MountGuard(MountGuardArgs),
    /// Make a token that authenticates a client to a server
    #[command(after_help = "Example:\n  godwit token alice --tokens tokens.txt")]
    Token(TokenArgs),
    /// Show what a policy permits a principal to see
    #[command(
        subcommand,
        after_help = "Example:\n  godwit policy test --policy policy.toml --as alice --dataset cohort/S.bam --data out"
    )]
    Policy(PolicyVerb),
    /// Verify the audit log of data accesses
    #[command(subcommand, after_help = "Example:\n  godwit audit verify audit.jsonl")]
    Audit(AuditVerb),
    /// Compress a genome against a reference: kilobytes instead of gigabytes
    #[command(
        mut_args(resource_help::threads_only),
        after_help = "Example:\n  godwit pack --reference ref.fa sample.fa sample.gwp"
    )]
    Pack(PackArgs),
    /// Unpack a genome to its original bytes, or a region of it
    #[command(
        mut_args(resource_help::threads_only),
        after_help = "Example:\n  godwit unpack --reference ref.fa sample.gwp sample.fa"
    )]
    Unpack(UnpackArgs),
    /// Collections of genomes packed against one reference
    #[command(subcommand, after_help = "Example:\n  godwit collection add genomes sample.fa --reference ref.fa")]
    Collection(CollectionVerb),
    /// Make a mutated individual of a genome, from a seed
    #[command(hide = true, after_help = "Example:\n  godwit mutate ref.fa other.fa --seed 1")]
    Mutate(MutateArgs),
    /// Predict hours and genomes per day of a cohort on a facility, by simulation
    #[command(after_help = "Example:\n  godwit plan --samples 120 --nodes 40 --storage-nodes 3 --balance round-robin")]
    Plan(PlanArgs),
    /// Make a small genome and reads, run the main job, and compare the calls with the truth
    #[command(mut_args(resource_help::demo), after_help = "Example:\n  godwit demo --out demo")]
    Demo(DemoArgs),
    /// Check the installation, permissions and limits of this host, with advice on problems
    #[command(after_help = "Example:\n  godwit doctor --reference ref.fa --bandwidth 10G --rtt 40")]
    Doctor(DoctorArgs),
    /// Show the sources of option values
    #[command(after_help = "Example:\n  godwit config show")]
    Config(ConfigArgs),
    /// Make reads from a diploid copy of a reference, with known variants and duplicates
    #[command(hide = true, after_help = "Example:\n  godwit simulate --reference ref.fa --pairs 1000 --out sim")]
    Simulate(SimulateArgs),
    /// Measure a network or a server
    #[command(subcommand, after_help = "Example:\n  godwit bench flight --streams 1,2,4")]
    Bench(BenchVerb),
    /// Run as a worker of a cluster run; started by verbs with --on, not by users
    #[command(hide = true, after_help = "Example:\n  godwit node --meeting out/.godwit/nodes")]
    Node(WorkerArgs),
    /// Decode a CRAM file to stdout for a parent process; started by other verbs, not by users
    #[command(hide = true, after_help = "Example:\n  godwit decode-cram --input in.cram --threads 2 > messages")]
    DecodeCram(DecodeCramArgs),
    /// Search pieces of queries; started by `godwit search`, not by users
    #[command(hide = true, after_help = "Example:\n  godwit search-worker '{..}' queries.fa")]
    SearchWorker(SearchWorkerArgs),
    /// Print a shell's completion script
    #[command(after_help = "Example:\n  godwit completions bash > /etc/bash_completion.d/godwit")]
    Completions(CompletionsArgs),
    /// Write manual pages, or the reference of all verbs as Markdown
    #[command(after_help = "Example:\n  godwit man --out /usr/local/share/man/man1")]
    Man(ManArgs),
}

/// Options of every verb that runs for a while.
#[derive(Args, Clone)]
pub struct CommonArgs {
    /// Number of threads; `resource_help` replaces this help and that of the next two options.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Memory limit, bytes.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Directory for scratch files.
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
    /// Print events as JSON lines on stderr
    #[arg(long)]
    pub json: bool,
    /// Display of progress
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto, value_name = "MODE")]
    pub progress: ProgressMode,
    /// Print nothing but errors
    #[arg(long)]
    pub quiet: bool,
    /// Log level
    #[arg(long, value_enum, default_value_t = LogLevel::Info, value_name = "LEVEL")]
    pub log: LogLevel,
    /// Arguments from configuration files and the environment, as `--option=value`; [`Cli::from_environment`] sets this
    /// field.
    #[arg(skip)]
    pub configured_flags: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A progress bar on a terminal, else plain
    Auto,
    /// A line from time to time
    Plain,
    /// Nothing
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Errors only
    Error,
    /// Errors and warnings
    Warn,
    /// Also the outcome
    Info,
    /// Also every stage
    Debug,
}

#[derive(Args)]
pub struct IndexArgs {
    /// The reference, FASTA
    #[arg(value_name = "REF.fa")]
    pub reference: PathBuf,
    /// The aligner to index for: bwa, bwa-mem3 or minimap2; "auto" makes the indexes of bwa and bwa-mem3
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_aligner)]
    pub aligner: AlignerChoice,
    /// Memory of the loaded bwa-mem3 index: determines its suffix array sampling [default: one in 8 rows]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub index_memory: Option<u64>,
    /// Options of minimap2: the index depends on its preset, as in "-x map-ont"
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub aligner_args: String,
    #[command(flatten)]
    pub common: CommonArgs,
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

#[derive(Args)]
pub struct MarkdupArgs {
    /// SAM, BAM or CRAM, in any order; - is stdin
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Output file; its extension selects the format: .bam, .cram, .parquet or .arrow
    #[arg(long, value_name = "OUT.bam", help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    /// Further output formats, written in the same pass
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORMATS")]
    pub format: Vec<FormatName>,
    /// Compute metrics of the output and write OUT.report.html; with a value, such as --metrics=all, also metrics of Picard:
    /// all, or names as for `godwit metrics`
    #[arg(
        long,
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "on",
        value_name = "on|off|all|NAMES",
        value_parser = bam_metrics::parse_job_metrics
    )]
    pub metrics: Vec<MetricsValue>,
    #[command(flatten, next_help_heading = "Interval lists, with --metrics")]
    pub lists: TargetListArgs,
    /// The reference, FASTA: required to read and write CRAM; with a reference, metrics count mismatches
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    /// Check the inputs, print the resources that a run would need, and write nothing
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub dry_run: bool,
    #[command(flatten)]
    pub marking: MarkingArgs,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub recipients: RecipientArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct VerifyArgs {
    /// A file that godwit wrote, a manifest, or a directory with manifests; for a BAM without a manifest, its structure
    /// and index are checked
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct DemoArgs {
    /// Output directory
    #[arg(long, value_name = "DIR", default_value = "godwit-demo", help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    /// Read pairs to simulate; 70,000 are 30x coverage of the genome
    #[arg(long, value_name = "N", default_value_t = 70_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub pairs: u64,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct SimulateArgs {
    /// Reference to simulate reads from, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Read pairs to simulate
    #[arg(long, value_name = "N")]
    pub pairs: u64,
    /// Bases per read
    #[arg(long, value_name = "N", default_value_t = 148)]
    pub read_bases: u32,
    /// Lanes, each in separate files
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub lanes: u32,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write gzip
    #[arg(long)]
    pub gzip: bool,
    /// PREFIX of `PREFIX_L001_R1.fastq`, `PREFIX_L001_R2.fastq`, `PREFIX.truth.vcf`, `PREFIX.truth.tsv`
    #[arg(long, value_name = "PREFIX")]
    pub out: PathBuf,
}

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
#[command(group(ArgGroup::new("round_trip").args(["rtt", "at"]).multiple(true)))]
pub struct DoctorArgs {
    /// Check the index of this reference too
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    /// Directory for scratch files, to check [default: beside the output]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
    /// Output directory, to check [default: the working directory]
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub out: Option<PathBuf>,
    /// Also check this server: its response, its version, and whether it accepts the credentials
    #[arg(long, value_name = "URL", help_heading = THIS_RUN_HEADING)]
    pub at: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Bandwidth of a network path in bits per second (10G, 500M), for advice on TCP
    #[arg(long, visible_alias = "rate", value_name = "RATE", value_parser = parse_rate, requires = "round_trip", help_heading = THIS_RUN_HEADING)]
    pub bandwidth: Option<u64>,
    /// Round-trip time of the path, milliseconds [default: measured to the server of --at]
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds, requires = "bandwidth", help_heading = THIS_RUN_HEADING)]
    pub rtt: Option<f64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub action: ConfigAction,
}

#[derive(Subcommand)]
pub enum ConfigAction {
    /// Print every effective value and its source, as a configuration file
    #[command(after_help = "Example:\n  godwit config show > godwit.toml")]
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub struct ManArgs {
    /// Write the pages into this directory [default: print the page of godwit, or the whole reference]
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub out: Option<PathBuf>,
    /// The reference as Markdown instead of manual pages: an index, and a page for each group of verbs
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub markdown: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_helps_with_an_example() {
        for verb in Cli::command().get_subcommands() {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example:\n  godwit "), "{}", verb.get_name());
        }
    }
}
