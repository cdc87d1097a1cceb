//! `godwit policy` and `godwit audit`: tests access policies and verifies audit logs. Also opens both for `godwit
//! serve`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use godwit_cli::cli::{AuditVerb, AuditVerifyArgs, PolicyTestArgs, PolicyVerb, ServeArgs};
use godwit_cli::failure::{Failure, print};
use godwit_cli::log::{log_message, log_warning};
use godwit_dataset::{AccessLog, AccessRecord, Catalog};
use godwit_model::ErrorKind;
use godwit_model::Region;
use godwit_model::message_with_causes;
use godwit_rules::{AuditLog, ExplainRequest, Policy, PolicyStore, explain};
use godwit_serve::DatasetRoot;

use super::cram_options;

/// Outcome in a record of the audit log which states that a policy is in force.
const IN_FORCE: &str = "in force";
/// Interval at which a server checks whether its policy file has changed.
const POLICY_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Runs `godwit policy test`, which prints what a policy permits a principal to see.
pub fn run_policy(verb: &PolicyVerb) -> Result<(), Failure> {
    let PolicyVerb::Test(args) = verb;
    test_policy(args)
}

fn test_policy(args: &PolicyTestArgs) -> Result<(), Failure> {
    let policy = Arc::new(Policy::read(&args.policy)?);
    if let Some(error) = args.region.iter().find_map(|region| Region::parse(region, |_| None).err()) {
        return Err(Failure::new(ErrorKind::Usage, format!("--region: {error}")));
    }
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let root = DatasetRoot::new(directory, cram_options(None, &std::env::temp_dir()))?;
    let principal = args.principal.clone().unwrap_or_default();
    if let Some(unknown) = args.visa.iter().find(|visa| !policy.has_visa(visa)) {
        let problem = format!("--visa {unknown}: {} has no [visas.{unknown}]", args.policy.display());
        return Err(Failure::new(ErrorKind::Usage, problem));
    }
    let (dataset, columns, visas) = (args.dataset.clone(), args.column.clone(), args.visa.clone());
    let question = ExplainRequest { principal, visas, dataset, columns, regions: args.region.clone() };
    let explained = explain(&policy, Arc::new(root), &question)?;
    print(&explained.text)?;
    match explained.is_visible {
        true => Ok(()),
        false => {
            let problem = format!(
                "some of the requested columns, samples or regions of {} are not visible; see the lines above",
                args.dataset
            );
            Err(Failure::new(ErrorKind::Machine, problem))
        }
    }
}

/// Runs `godwit audit verify`, which verifies the chain of hashes in an audit log.
pub fn run_audit(verb: &AuditVerb) -> Result<(), Failure> {
    let AuditVerb::Verify(args) = verb;
    verify_audit(args)
}

fn verify_audit(args: &AuditVerifyArgs) -> Result<(), Failure> {
    let verified = godwit_rules::verify_audit(&args.file, args.expect.as_deref())?;
    let torn = if verified.torn_lines > 0 {
        format!(", {} of them torn by an interruption", verified.torn_lines)
    } else {
        String::new()
    };
    let found =
        verified.expected_line.map(|line| format!("line {line} has the chain hash of --expect\n")).unwrap_or_default();
    print(&format!("{} lines{torn}; the last chain is {}\n{found}", verified.lines, verified.chain))
}

/// Opens the policy file of a server; returns `None` without `--policy`.
pub(super) fn open_policy_store(
    args: &ServeArgs,
    catalog: &Arc<DatasetRoot>,
) -> Result<Option<Arc<PolicyStore>>, Failure> {
    let Some(path) = &args.policy else { return Ok(None) };
    let catalog: Arc<dyn Catalog> = catalog.clone();
    Ok(Some(Arc::new(PolicyStore::open(path, catalog)?)))
}

/// Opens the audit log of a server; returns `None` without `--audit`.
pub(super) fn open_access_log(args: &ServeArgs) -> Result<Option<Arc<dyn AccessLog>>, Failure> {
    let Some(path) = &args.audit else { return Ok(None) };
    Ok(Some(Arc::new(AuditLog::open(path)?)))
}

/// Appends a record to the audit log with the path and the digest of the policy that the server applies.
async fn record_policy(log: Option<&Arc<dyn AccessLog>>, policy: &Policy, path: &Path, outcome: String) {
    let Some(log) = log else { return };
    let (call, resource) = ("Policy".to_owned(), format!("{} {}", path.display(), policy.digest()));
    // Ignore the error: if the audit log cannot be written, the next access fails with the same error.
    let _ = log.record(AccessRecord { call, resource, outcome, ..AccessRecord::default() }).await;
}

/// Reloads the policy of a server whenever its file has changed. If the new file is invalid, prints a warning, and the
/// old policy remains in force.
pub(super) async fn reload_policy_on_change(
    policy_store: Arc<PolicyStore>,
    path: std::path::PathBuf,
    log: Option<Arc<dyn AccessLog>>,
) {
    record_policy(log.as_ref(), &policy_store.policy(), &path, IN_FORCE.to_owned()).await;
    loop {
        tokio::time::sleep(POLICY_POLL_INTERVAL).await;
        let fresh = policy_store.clone();
        let Ok(Some(read)) = tokio::task::spawn_blocking(move || fresh.reload_if_changed()).await else { continue };
        match read {
            Ok(policy) => {
                log_message(&format!("the policy {} is in force, with {} rules", path.display(), policy.len()));
                record_policy(log.as_ref(), &policy, &path, IN_FORCE.to_owned()).await;
            }
            Err(error) => {
                let problem = message_with_causes(&error).replace('\n', " | ");
                log_warning(&format!("the policy is unchanged: {problem}"));
                let outcome = format!("{IN_FORCE}; the changed file is not in force: {problem}");
                record_policy(log.as_ref(), &policy_store.policy(), &path, outcome).await;
            }
        }
    }
}
