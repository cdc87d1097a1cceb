//! Implementations of the verbs. Each verb converts its command-line options, runs a job of another crate, and reports
//! the outcome.

mod align;
mod bam_metrics;
mod bench;
mod build_index;
mod call;
mod cluster_run;
mod cluster_worker;
mod cohort_plan;
mod compare;
mod config;
mod copy;
pub mod credentials;
mod decode_cram;
mod decrypted_files;
mod demo;
mod doctor;
mod dry_run;
mod earlier_job;
mod filter;
mod markdup;
mod mount;
mod mounted_inputs;
mod output_check;
mod pack;
mod policy_audit;
mod query;
mod recalibrate;
mod remote_file_transfer;
mod row_output;
mod run;
mod sample_jobs;
mod score;
mod search;
mod serve;
mod simulate;
mod slurm_job;
mod statement_processes;
pub mod storage_pool_monitor;
mod variant_columns;
mod verify;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_cli::cli::{Cli, CommonArgs, Verb};
use godwit_cli::failure::{Failure, print, print_json};
use godwit_delta::ReferenceStore;
use godwit_flight::trace::{TraceContext, set_process_context};
use godwit_io::bgzf::STDIN_PATH;
use godwit_model::ErrorKind;
use godwit_process::TemporaryItem;
use godwit_query::PipelineJobs;
use godwit_serve::{CramOptions, DatasetRoot};
use signal_hook::consts::SIGXFSZ;

use crate::interruption;

/// Environment variable in which a parent process passes its trace context, in the format of the header of W3C Trace
/// Context.
const TRACE_PARENT_VARIABLE: &str = "TRACEPARENT";

/// Runs the verb of the command line.
pub fn run(cli: Cli) -> Result<(), Failure> {
    ignore_file_size_signal()?;
    // `godwit serve` handles SIGHUP itself, as a request to reload its files.
    if !matches!(cli.verb, Verb::Serve(_)) {
        interruption::end_on_hang_up()?;
    }
    // Make requests to servers part of the trace of the parent process, if it has one.
    if let Some(context) = std::env::var(TRACE_PARENT_VARIABLE).ok().and_then(|text| TraceContext::parse(&text)) {
        set_process_context(context);
    }
    match cli.verb {
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Config(args) => config::run(&args, cli.config.as_deref(), cli.no_config),
        Verb::Man(args) => godwit_cli::man::run(&args),
        Verb::Index(args) => build_index::run(&args),
        Verb::Align(args) => align::run(&args),
        Verb::Markdup(args) => markdup::run(&args),
        Verb::Metrics(args) => bam_metrics::run(&args),
        Verb::Run(args) => run::run(*args),
        Verb::Call(args) => call::run(&args),
        Verb::Filter(args) => filter::run(&args),
        Verb::Recalibrate(args) => recalibrate::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Variants(args) => variant_columns::run(&args),
        Verb::Query(args) => query::run(&args),
        Verb::Score(args) => score::run(&args),
        Verb::Search(args) => search::run(&args),
        Verb::SearchWorker(args) => search::run_worker(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Copy(args) => copy::run(&args),
        Verb::Mount(args) => mount::run(&args),
        Verb::MountGuard(args) => mount::run_guard(&args),
        Verb::Token(args) => serve::create_token(&args),
        Verb::Policy(verb) => policy_audit::run_policy(&verb),
        Verb::Audit(verb) => policy_audit::run_audit(&verb),
        Verb::Plan(args) => cohort_plan::run(&args),
        Verb::Pack(args) => pack::pack_file(&args),
        Verb::Unpack(args) => pack::unpack_file(&args),
        Verb::Collection(verb) => pack::run_collection(&verb),
        Verb::Mutate(args) => pack::mutate_file(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Simulate(args) => simulate::run(&args),
        Verb::Bench(verb) => bench::run(&verb),
        Verb::Node(args) => cluster_worker::run(&args),
        Verb::DecodeCram(args) => decode_cram::run(&args),
        Verb::Completions(args) => godwit_cli::completions::run(&args),
    }
}

/// Returns the path of standard input for `-`, and any other path unchanged.
fn input_path(path: &Path) -> PathBuf {
    if path.as_os_str() == "-" { STDIN_PATH.into() } else { path.to_owned() }
}

/// Ignores SIGXFSZ. If a file grows beyond `ulimit -f`, the write then fails with an error that is reported, and the
/// process is not killed.
fn ignore_file_size_signal() -> Result<(), Failure> {
    let ignored = Arc::new(AtomicBool::new(false));
    let registered = signal_hook::flag::register(SIGXFSZ, ignored);
    registered.map(drop).map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot handle signals: {error}")))
}

/// Returns the directory for scratch files (`--temp`), by default that of the system.
fn scratch_directory(common: &CommonArgs) -> PathBuf {
    common.temp.clone().unwrap_or_else(std::env::temp_dir)
}

/// Copies a stream, which can be read only once, to a temporary file in a scratch directory.
fn store_stream(
    source: &mut dyn Read,
    prefix: &str,
    scratch: &Path,
) -> std::io::Result<TemporaryItem<tempfile::NamedTempFile>> {
    let create = || tempfile::Builder::new().prefix(prefix).tempfile_in(scratch);
    let mut stored = TemporaryItem::create(create)?;
    std::io::copy(source, &mut *stored)?;
    Ok(stored)
}

/// Waits until stdin is closed. If `until_stdin_closes` is false, waits forever.
async fn wait_for_stdin_close(until_stdin_closes: bool) {
    match until_stdin_closes {
        true => drop(tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await),
        false => std::future::pending().await,
    }
}

/// Opens the datasets below a directory. If a reference is given, CRAM files are decoded with it.
fn open_root(directory: &Path, reference: Option<&Path>, common: &CommonArgs) -> Result<DatasetRoot, Failure> {
    let root = DatasetRoot::new(directory, cram_options(reference, &scratch_directory(common)))?;
    let references = ReferenceStore::new(reference.map(Path::to_owned).into_iter().collect(), common.thread_count());
    Ok(root.with_unfinished_jobs(Arc::new(PipelineJobs)).with_references(references))
}

/// Returns the options of CRAM decoding. The decoder process runs this executable, even if its file was removed or
/// replaced.
fn cram_options(reference: Option<&Path>, scratch: &Path) -> CramOptions {
    let reference = reference.map(|reference| (reference.to_owned(), scratch.to_owned()));
    CramOptions { program: "/proc/self/exe".into(), reference }
}
