//! `godwit policy` and `godwit audit`: what somebody may see, and what somebody saw; and both as a server has them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use godwit_flight::{AccessLog, Accessed, Catalog};
use godwit_formats::with_causes;
use godwit_model::Region;
use godwit_rules::{Audit, AuditError, Policy, PolicyError, Question, Rulebook, explain};
use godwit_serve::Root;

use super::cram_access;
use crate::cli::{AuditVerb, AuditVerifyArgs, PolicyTestArgs, PolicyVerb, ServeArgs};
use crate::failure::{Exit, Failure, log_message, log_warning, print};

/// What is recorded of rules that hold.
const IN_FORCE: &str = "in force";
/// How often the policy of a server is looked at.
const REFRESH: Duration = Duration::from_millis(500);

/// What rules let somebody see.
pub fn policy(verb: &PolicyVerb) -> Result<(), Failure> {
    let PolicyVerb::Test(args) = verb;
    test(args)
}

fn test(args: &PolicyTestArgs) -> Result<(), Failure> {
    let policy = Arc::new(Policy::read(&args.policy)?);
    if let Some(error) = args.region.iter().find_map(|region| Region::parse(region, |_| None).err()) {
        return Err(Failure::new(Exit::Usage, format!("--region: {error}")));
    }
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let root = Root::new(directory, cram_access(None, &std::env::temp_dir()))?;
    let who = args.who.clone().unwrap_or_default();
    if let Some(unknown) = args.visa.iter().find(|visa| !policy.has_visa(visa)) {
        let problem = format!("--visa {unknown}: {} has no [visas.{unknown}]", args.policy.display());
        return Err(Failure::new(Exit::Usage, problem));
    }
    let (dataset, columns, visas) = (args.dataset.clone(), args.column.clone(), args.visa.clone());
    let question = Question { who, visas, dataset, columns, regions: args.region.clone() };
    let explained = explain(&policy, Arc::new(root), &question)?;
    print(&explained.text)?;
    match explained.seen {
        true => Ok(()),
        false => {
            let problem = format!("not everything that was asked of {} is seen; the lines above say why", args.dataset);
            Err(Failure::new(Exit::Machine, problem))
        }
    }
}

/// What somebody saw.
pub fn audit(verb: &AuditVerb) -> Result<(), Failure> {
    let AuditVerb::Verify(args) = verb;
    verify(args)
}

fn verify(args: &AuditVerifyArgs) -> Result<(), Failure> {
    let verified = godwit_rules::verify(&args.file, args.expect.as_deref())?;
    let torn =
        if verified.torn > 0 { format!(", {} of them cut short by a stop", verified.torn) } else { String::new() };
    let found =
        verified.found.map(|line| format!("line {line} has the chain that was asked for\n")).unwrap_or_default();
    print(&format!("{} lines{torn}; the last chain is {}\n{found}", verified.lines, verified.chain))
}

/// The rules of a server, where it has some.
pub(super) fn rulebook_of(args: &ServeArgs, catalog: &Arc<Root>) -> Result<Option<Arc<Rulebook>>, Failure> {
    let Some(path) = &args.policy else { return Ok(None) };
    let catalog: Arc<dyn Catalog> = catalog.clone();
    Ok(Some(Arc::new(Rulebook::open(path, catalog)?)))
}

/// The record of a server's accesses, where it keeps one.
pub(super) fn log_of(args: &ServeArgs) -> Result<Option<Arc<dyn AccessLog>>, Failure> {
    let Some(path) = &args.audit else { return Ok(None) };
    Ok(Some(Arc::new(Audit::open(path)?)))
}

/// Which rules a server has, as the record says it.
async fn record_rules(log: Option<&Arc<dyn AccessLog>>, policy: &Policy, path: &Path, outcome: String) {
    let Some(log) = log else { return };
    let (call, what) = ("Policy".to_owned(), format!("{} {}", path.display(), policy.digest()));
    // What cannot be recorded is told to whoever asks next.
    let _ = log.record(Accessed { call, what, outcome, ..Accessed::default() }).await;
}

/// Reads the policy again whenever it has changed, until it is dropped. One that is none is told, and the old one stays.
pub(super) async fn keep_fresh(book: Arc<Rulebook>, path: std::path::PathBuf, log: Option<Arc<dyn AccessLog>>) {
    record_rules(log.as_ref(), &book.policy(), &path, IN_FORCE.to_owned()).await;
    loop {
        tokio::time::sleep(REFRESH).await;
        let fresh = book.clone();
        let Ok(Some(read)) = tokio::task::spawn_blocking(move || fresh.refresh()).await else { continue };
        match read {
            Ok(policy) => {
                log_message(&format!("the rules of {} are in force, {} of them", path.display(), policy.len()));
                record_rules(log.as_ref(), &policy, &path, IN_FORCE.to_owned()).await;
            }
            Err(error) => {
                let problem = with_causes(&error).replace('\n', " | ");
                log_warning(&format!("the rules stay as they were: {problem}"));
                let outcome = format!("{IN_FORCE}; what its file has is not in force: {problem}");
                record_rules(log.as_ref(), &book.policy(), &path, outcome).await;
            }
        }
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        let exit = match error {
            PolicyError::File { .. } => Exit::Machine,
            PolicyError::Text { .. } | PolicyError::Rule { .. } => Exit::Input,
        };
        Self::new(exit, with_causes(&error))
    }
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        let exit = match error {
            AuditError::File { .. } | AuditError::Busy { .. } => Exit::Machine,
            AuditError::Broken { .. } => Exit::Input,
        };
        Self::new(exit, with_causes(&error))
    }
}
