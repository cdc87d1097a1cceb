//! What each verb does. No algorithms: options in, a job run, its outcome told.

pub mod access;
mod align;
mod bench;
mod call;
mod compare;
mod completions;
mod config;
mod copy;
mod decode_cram;
mod demo;
mod doctor;
mod dry_run;
mod encryption;
mod fetching;
mod filter;
mod in_the_clear;
mod index;
mod live;
mod man;
mod markdup;
mod node;
mod pack;
mod plan;
#[cfg(feature = "sql")]
mod query;
mod recalibrate;
#[cfg(feature = "sql")]
mod rows;
mod rules;
mod run;
mod run_nodes;
#[cfg(feature = "sql")]
mod score;
mod search;
mod serve;
mod simulate;
mod slurm_job;
mod spread;
#[cfg(feature = "sql")]
mod sql_worker;
pub mod storage_watch;
mod variants;
mod verify;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_flight::trace::{TraceContext, continue_from};
use godwit_formats::bgzf::STDIN;
use godwit_pipeline::JobOptions;
use godwit_serve::{CramAccess, Root};
use godwit_transfer::References;
use signal_hook::consts::SIGXFSZ;

use crate::cli::{Cli, Common, MarkingArgs, Verb};
use crate::failure::{Exit, Failure, print, print_json};
use crate::interruption;

/// The variable in which programs that start others tell them what they belong to, as the header of W3C Trace Context does.
const TRACE_PARENT: &str = "TRACEPARENT";

/// Runs the verb.
pub fn run(cli: Cli) -> Result<(), Failure> {
    survive_file_size_limit()?;
    // A server decides itself what SIGHUP does.
    if !matches!(cli.verb, Verb::Serve(_)) {
        interruption::end_with_the_terminal()?;
    }
    // Whoever started this process may follow what it asks of servers.
    if let Some(context) = std::env::var(TRACE_PARENT).ok().and_then(|text| TraceContext::parse(&text)) {
        continue_from(context);
    }
    match cli.verb {
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Config(args) => config::run(&args, cli.config.as_deref(), cli.no_config),
        Verb::Man(args) => man::run(&args),
        Verb::Index(args) => index::run(&args),
        Verb::Align(args) => align::run(&args),
        Verb::Markdup(args) => markdup::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Call(args) => call::run(&args),
        Verb::Filter(args) => filter::run(&args),
        Verb::Recalibrate(args) => recalibrate::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Variants(args) => variants::run(&args),
        #[cfg(feature = "sql")]
        Verb::Query(args) => query::run(&args),
        #[cfg(feature = "sql")]
        Verb::Score(args) => score::run(&args),
        Verb::Search(args) => search::run(&args),
        Verb::SearchWorker(args) => search::work(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Copy(args) => copy::run(&args),
        Verb::Token(args) => serve::make_token(&args),
        Verb::Policy(verb) => rules::policy(&verb),
        Verb::Audit(verb) => rules::audit(&verb),
        Verb::Plan(args) => plan::run(&args),
        Verb::Pack(args) => pack::pack_file(&args),
        Verb::Unpack(args) => pack::unpack_file(&args),
        Verb::Collection(verb) => pack::collection(&verb),
        Verb::Mutate(args) => pack::mutate_file(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Simulate(args) => simulate::run(&args),
        Verb::Bench(verb) => bench::run(&verb),
        Verb::Node(args) => node::run(&args),
        Verb::DecodeCram(args) => decode_cram::run(&args),
        #[cfg(feature = "sql")]
        Verb::SqlWorker(args) => sql_worker::run(&args),
        Verb::Completions(args) => completions::run(&args),
    }
}

/// `-` is standard input, under the name that the system has for it.
fn or_stdin(path: &Path) -> PathBuf {
    if path.as_os_str() == "-" { STDIN.into() } else { path.to_owned() }
}

/// A file that grows past `ulimit -f` is an error to report, not a signal to die from.
fn survive_file_size_limit() -> Result<(), Failure> {
    let ignored = Arc::new(AtomicBool::new(false));
    let registered = signal_hook::flag::register(SIGXFSZ, ignored);
    registered.map(drop).map_err(|error| Failure::new(Exit::Machine, format!("cannot handle signals: {error}")))
}

impl Common {
    /// Threads asked for, else all cores.
    fn thread_count(&self) -> usize {
        match self.threads {
            Some(threads) => threads as usize,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Options of a job.
    fn job(&self, marking: &MarkingArgs, metrics: bool) -> JobOptions {
        JobOptions {
            threads: self.thread_count(),
            memory_bytes: self.memory,
            temp: self.temp.clone(),
            partitions: marking.partitions,
            duplicates: marking.duplicates.into(),
            optical_distance: marking.optical_distance,
            marking: marking.marking(),
            step: None,
            recipients: Vec::new(),
            metrics,
            command: command_line(&self.configured),
            // Also where the file that it was started from is gone or another by now.
            program: "/proc/self/exe".into(),
        }
    }
}

/// Where scratch files of statements go.
fn scratch_of(common: &Common) -> PathBuf {
    common.temp.clone().unwrap_or_else(std::env::temp_dir)
}

/// Waits until stdin is closed, or, where it need not be, for ever.
async fn closed(until_stdin_closes: bool) {
    match until_stdin_closes {
        true => drop(tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await),
        false => std::future::pending().await,
    }
}

/// The datasets below a directory; CRAM is decoded by the reference, where one is given.
fn root_of(directory: &Path, reference: Option<&Path>, common: &Common) -> Result<Root, Failure> {
    let root = Root::new(directory, cram_access(reference, &scratch_of(common)))?;
    let references = References::new(reference.map(Path::to_owned).into_iter().collect(), common.thread_count());
    Ok(root.with_runs(Arc::new(live::OfPipeline)).with_references(references))
}

/// How CRAM is decoded: by this program, also where the file that it was started from is gone or another by now.
fn cram_access(reference: Option<&Path>, scratch: &Path) -> CramAccess {
    let reference = reference.map(|reference| (reference.to_owned(), scratch.to_owned()));
    CramAccess { program: "/proc/self/exe".into(), reference }
}

/// The command line, for reports, with what files and the environment add to it.
fn command_line(configured: &[String]) -> Vec<String> {
    let given = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    given.chain(configured.iter().cloned()).collect()
}
