//! An access policy: a file of rules, and the secret key for pseudonyms.
//!
//! For each principal and dataset, a single rule decides: the first one in the file that covers both. Rules are never
//! combined, so each rule shows exactly what it contains. A dataset that no rule covers is hidden.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_dataset::{Principal, Visa};
use godwit_model::Region;
use serde::Deserialize;

use crate::client_addresses::ClientAddresses;
use crate::error::PolicyError;
use crate::grants::Grants;
use crate::pseudonyms::{PseudonymKey, derive_key};
use crate::rule::{Condition, ConditionValue, Grouping, Mask, Rule};

/// Prefix of a group name in the list of principals of a rule.
const GROUP_PREFIX: &str = "group:";
/// Prefix of a visa name in the list of principals of a rule.
const VISA_PREFIX: &str = "visa:";
/// Entry in the list of principals of a rule that matches every principal, also one without a name.
const ANY_PRINCIPAL: &str = "*";
/// Minimum length of the secret for pseudonyms, bytes.
const MIN_SECRET_BYTES: usize = 32;
/// Maximum size of a policy file, bytes. The rules for a principal are sent with each statement to the process that
/// runs it.
const MAX_POLICY_BYTES: usize = 512 << 10;

/// The content of a policy file, as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    /// Path of the file with the secret for pseudonyms. A relative path refers to the directory of the policy file.
    #[serde(default)]
    key: Option<PathBuf>,
    #[serde(default)]
    addresses: ClientAddresses,
    #[serde(default)]
    groups: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    visas: BTreeMap<String, VisaRequirement>,
    #[serde(default, rename = "rule")]
    rules: Vec<Rule>,
}

/// The field values that a visa must have (GA4GH Passport 1.2, "Visa Fields"). All are compared exactly.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VisaRequirement {
    #[serde(rename = "type")]
    kind: String,
    value: String,
    /// The organization that makes the assertion in the visa.
    source: String,
    /// The accepted values of the visa field `by`; `None` to accept any value.
    #[serde(default)]
    by: Option<Vec<String>>,
    /// The issuer that must have signed the visa; `None` to accept every issuer that the server trusts.
    #[serde(default)]
    issuer: Option<String>,
}

impl VisaRequirement {
    fn matches(&self, visa: &Visa) -> bool {
        let by = |wanted: &Vec<String>| visa.by.as_ref().is_some_and(|by| wanted.contains(by));
        (&self.kind, &self.value, &self.source) == (&visa.kind, &visa.value, &visa.source)
            && self.by.as_ref().is_none_or(by)
            && self.issuer.as_ref().is_none_or(|issuer| *issuer == visa.issuer)
    }
}

/// An access policy: the rules that decide which data a principal may see.
#[derive(Clone)]
pub struct Policy {
    addresses: ClientAddresses,
    groups: BTreeMap<String, Vec<String>>,
    visas: BTreeMap<String, VisaRequirement>,
    rules: Vec<Arc<Rule>>,
    key: Option<PseudonymKey>,
    digest: blake3::Hash,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy").field("groups", &self.groups).field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Policy {
    /// Reads a policy file, and the key file to which it refers.
    ///
    /// # Errors
    /// [`PolicyError::File`] if a file cannot be read, [`PolicyError::Syntax`] if the policy or the key is malformed,
    /// [`PolicyError::Rule`] if a rule is invalid.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| PolicyError::File { path, source }
        };
        let text = fs::read_to_string(path).map_err(failed(path))?;
        let wrong = |problem: String| PolicyError::Syntax { path: path.to_owned(), problem };
        if text.len() > MAX_POLICY_BYTES {
            return Err(wrong(format!("the file has {} bytes; the limit is {MAX_POLICY_BYTES}", text.len())));
        }
        let written: PolicyFile = toml::from_str(&text).map_err(|error| wrong(error.to_string().trim().to_owned()))?;
        let secret = match &written.key {
            Some(key) => {
                let key_path = path.parent().unwrap_or(Path::new(".")).join(key);
                let secret = fs::read(&key_path).map_err(failed(&key_path))?;
                if secret.len() < MIN_SECRET_BYTES {
                    let problem = format!(
                        "{} has {} bytes, but a secret needs {MIN_SECRET_BYTES} random bytes or more: `head -c 32 \
                         /dev/urandom > {0}`",
                        key_path.display(),
                        secret.len()
                    );
                    return Err(wrong(problem));
                }
                Some(secret)
            }
            None => None,
        };
        Self::validate(path, &text, written, secret.as_deref())
    }

    fn validate(path: &Path, text: &str, written: PolicyFile, secret: Option<&[u8]>) -> Result<Self, PolicyError> {
        let PolicyFile { addresses, groups, visas, rules, .. } = written;
        let key = secret.map(derive_key);
        let mut names: Vec<&str> = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            let twice = names.contains(&rule.name.as_str());
            let problem = match twice {
                true => Some("an earlier rule has the same name; explanations need unique names".to_owned()),
                false => rule_problem(rule, &groups, &visas, key.is_some()),
            };
            if let Some(problem) = problem {
                let (path, name) = (path.to_owned(), rule.name.clone());
                return Err(PolicyError::Rule { path, number: at + 1, name, problem });
            }
            names.push(&rule.name);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(text.as_bytes());
        hasher.update(key.as_ref().map_or(&[][..], |key| &key[..]));
        let (rules, digest) = (rules.into_iter().map(Arc::new).collect(), hasher.finalize());
        Ok(Self { addresses, groups, visas, rules, key, digest })
    }

    /// Returns the rules that apply to a principal with this name and without visas. An unauthenticated principal has
    /// an empty name.
    pub fn grants_by_name(&self, name: &str) -> Grants {
        self.grants_for(&Principal::named(name))
    }

    /// Returns the rules that apply to a principal.
    pub(crate) fn grants_for(&self, principal: &Principal) -> Grants {
        let shows = |wanted: &VisaRequirement| principal.visas().iter().any(|visa| wanted.matches(visa));
        self.grants_with_visas(principal.name(), &|visa| self.visas.get(visa).is_some_and(shows))
    }

    /// Returns the rules that apply to a principal with the name `principal`. `shows` returns whether the principal has
    /// the visa with the given name in the policy.
    pub(crate) fn grants_with_visas(&self, principal: &str, shows: &dyn Fn(&str) -> bool) -> Grants {
        let is_about = |rule: &&Arc<Rule>| {
            // The token issuer chooses the name of a principal. A name that begins with `group:` or `visa:` must not
            // match such entries.
            rule.principals.iter().any(|entry| {
                match (entry.strip_prefix(GROUP_PREFIX), entry.strip_prefix(VISA_PREFIX)) {
                    (Some(group), _) => {
                        self.groups.get(group).is_some_and(|members| members.iter().any(|it| it == principal))
                    }
                    (None, Some(visa)) => shows(visa),
                    (None, None) => entry == ANY_PRINCIPAL || (!principal.is_empty() && entry == principal),
                }
            })
        };
        let rules: Vec<Arc<Rule>> = self.rules.iter().filter(is_about).cloned().collect();
        let hashes = rules.iter().any(|rule| rule.mask.values().any(|mask| *mask == Mask::Hash));
        Grants { rules, key: self.key.filter(|_| hashes) }
    }

    /// Returns the principal of clients with this address, for protocols that do not authenticate clients; `None` if
    /// `[addresses]` does not list the address.
    pub fn principal_at(&self, address: IpAddr) -> Option<Principal> {
        self.addresses.principal_name(address).map(Principal::named)
    }

    /// Returns whether the policy defines a visa with this name.
    pub fn has_visa(&self, name: &str) -> bool {
        self.visas.contains_key(name)
    }

    /// Returns the number of rules in the policy.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether the policy has no rules, so that all datasets are hidden.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns a hexadecimal digest of the policy file and its key.
    pub fn digest(&self) -> String {
        self.digest.to_hex().to_string()
    }

    /// Returns the 1-based number of the rule with this name; 0 if there is none.
    pub(crate) fn rule_number(&self, name: &str) -> usize {
        self.rules.iter().position(|rule| rule.name == name).map_or(0, |at| at + 1)
    }
}

/// Returns a description of the first error in a rule; `None` if the rule is valid.
fn rule_problem(
    rule: &Rule,
    groups: &BTreeMap<String, Vec<String>>,
    visas: &BTreeMap<String, VisaRequirement>,
    has_key: bool,
) -> Option<String> {
    if rule.name.trim().is_empty() {
        return Some("the rule has no name".to_owned());
    }
    if rule.principals.is_empty() || rule.datasets.is_empty() {
        return Some("`who` and `datasets` must not be empty; use `*` and `**` for all".to_owned());
    }
    let unknown = rule
        .principals
        .iter()
        .find(|entry| entry.strip_prefix(GROUP_PREFIX).is_some_and(|group| !groups.contains_key(group)));
    if let Some(unknown) = unknown {
        return Some(format!("{unknown} is missing in [groups]"));
    }
    let unknown = rule
        .principals
        .iter()
        .find_map(|entry| entry.strip_prefix(VISA_PREFIX).filter(|visa| !visas.contains_key(*visa)));
    if let Some(unknown) = unknown {
        return Some(format!("[visas.{unknown}] is missing"));
    }
    let empty =
        [&rule.samples, &rule.regions, &rule.show].into_iter().any(|list| list.as_ref().is_some_and(Vec::is_empty));
    if empty {
        return Some("an empty list shows nothing; use `deny = true`".to_owned());
    }
    if rule.deny && (rule.write || !rule.shows_everything()) {
        return Some("a rule with `deny` cannot write, select or mask".to_owned());
    }
    if rule.write && (!rule.shows_everything() || rule.depends_on_samples()) {
        return Some(
            "a rule that shows only a part of its datasets cannot permit writing; write a second rule for the \
             datasets to write"
                .to_owned(),
        );
    }
    for text in rule.regions.iter().flatten() {
        // Rules permit regions of the genome, and not unplaced reads.
        if let Err(error) = Region::parse(text, |name| (name == Region::UNPLACED).then_some(false)) {
            return Some(error.to_string());
        }
    }
    rule.conditions
        .iter()
        .find_map(condition_problem)
        .or_else(|| mask_problem(rule, has_key))
        .or_else(|| grouping_problem(rule, rule.grouping.as_ref()?))
}

fn grouping_problem(rule: &Rule, groups: &Grouping) -> Option<String> {
    if groups.by.is_empty() || groups.min_members < 2 {
        return Some("groups need columns `by` and `at_least` 2: a group of one is an individual".to_owned());
    }
    if rule.show.is_some() {
        return Some("`groups` selects the columns of `by` and `means`; omit `show`".to_owned());
    }
    let mut named = HashSet::new();
    if let Some(column) = groups.columns().find(|column| !named.insert(*column)) {
        return Some(format!("its groups list column {column} twice"));
    }
    let exact = |column: &str| !column.contains('*') && !column.ends_with('?');
    if let Some(column) = groups.columns().find(|column| !exact(column)) {
        return Some(format!("its groups contain the pattern {column}; name each column without patterns"));
    }
    if let Some(column) = groups.by.iter().find(|column| rule.column_mask(column) == Some(Mask::Drop)) {
        return Some(format!("its groups are by column {column}, which is dropped"));
    }
    let masked = groups.mean_columns.iter().chain(&groups.member_column).find(|column| rule.mask.contains_key(*column));
    masked
        .map(|column| format!("column {column} is not shown in groups, so it cannot be masked; remove it from `mask`"))
}

fn condition_problem(condition: &Condition) -> Option<String> {
    let Condition { column, one_of, not_in, at_least, at_most } = condition;
    if one_of.is_none() && not_in.is_none() && at_least.is_none() && at_most.is_none() {
        return Some(format!(
            "`where` has no condition for column {column}; set `in`, `not_in`, `at_least` or `at_most`"
        ));
    }
    let listed = one_of.iter().chain(not_in).flatten().filter_map(|value| match value {
        ConditionValue::Number(number) => Some(number),
        ConditionValue::Boolean(_) | ConditionValue::Text(_) => None,
    });
    let is_finite = at_least.iter().chain(at_most).chain(listed).all(|number| number.is_finite());
    // JSON, in which the rules are sent to other processes, has neither infinite numbers nor NaN.
    (!is_finite).then(|| format!("`where` compares column {column} with `inf` or `nan`; write a finite number"))
}

fn mask_problem(rule: &Rule, has_key: bool) -> Option<String> {
    rule.mask.iter().find_map(|(column, mask)| match mask {
        Mask::Hash if !has_key => Some(format!("column {column} is hashed, which requires `key = \"FILE\"`")),
        Mask::Bin(width) if !(width.is_finite() && *width > 0.0 && *width < 1e18) => {
            Some(format!("column {column}: the width of a bin must be above 0"))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Policy, String> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("key"), [7; 32]).unwrap();
        fs::write(directory.path().join("short"), [7; 31]).unwrap();
        let path = directory.path().join("policy.toml");
        fs::write(&path, text).unwrap();
        Policy::read(&path).map_err(|error| error.to_string())
    }

    fn rule(rest: &str) -> String {
        format!("[[rule]]\nname = 'r'\nwho = ['alice', 'group:dac']\ndatasets = ['a/*']\n{rest}")
    }

    #[test]
    fn principals_receive_the_rules_about_them_in_order() {
        let text = "[groups]\ndac = ['bob']\n".to_owned()
            + &rule("")
            + "[[rule]]\nname = 'all'\nwho = ['*']\ndatasets = ['**']\ndeny = true\n";
        let policy = read(&text).unwrap();
        let names = |principal: &str| {
            policy.grants_by_name(principal).rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("alice"), ["r", "all"]);
        assert_eq!(names("bob"), ["r", "all"]);
        assert_eq!(names("group:dac"), ["all"]);
        assert_eq!(names(""), ["all"]);
        let none = || -> Option<Arc<dyn godwit_dataset::Dataset>> { None };
        let decided = |principal: &str, name: &str| {
            policy.grants_by_name(principal).deciding_rule(name, &none).map(|rule| rule.name.clone())
        };
        assert_eq!(decided("alice", "a/x.bam").as_deref(), Some("r"));
        assert_eq!(decided("alice", "b/x.bam"), None);
        assert_eq!(decided("carol", "a/x.bam"), None);
        let back = Grants::from_bytes(&policy.grants_by_name("alice").to_bytes()).unwrap();
        assert_eq!(back.rules, policy.grants_by_name("alice").rules);
    }

    #[test]
    fn a_visa_must_match_every_field_of_the_requirement() {
        let text = "[visas.study]\ntype = 'ControlledAccessGrants'\nvalue = 'https://d'\nsource = 'https://dac'\nby = ['dac']\n\
            issuer = 'https://i'\n[[rule]]\nname = 'r'\nwho = ['visa:study']\ndatasets = ['**']\n";
        let policy = read(text).unwrap();
        let visa = |change: &dyn Fn(&mut Visa)| {
            let mut visa = Visa {
                issuer: "https://i".to_owned(),
                kind: "ControlledAccessGrants".to_owned(),
                value: "https://d".to_owned(),
                source: "https://dac".to_owned(),
                by: Some("dac".to_owned()),
                expires_unix_s: u64::MAX,
            };
            change(&mut visa);
            policy.grants_for(&Principal::named("bob").with_visas(vec![visa])).rules.len()
        };
        assert_eq!(visa(&|_| ()), 1);
        assert_eq!(visa(&|visa| visa.kind = "ResearcherStatus".to_owned()), 0);
        assert_eq!(visa(&|visa| visa.value += "/2"), 0);
        assert_eq!(visa(&|visa| visa.source = "https://no.organization".to_owned()), 0);
        assert_eq!(visa(&|visa| visa.by = None), 0);
        assert_eq!(visa(&|visa| visa.by = Some("self".to_owned())), 0);
        assert_eq!(visa(&|visa| visa.issuer = "https://j".to_owned()), 0);
        assert_eq!(policy.grants_by_name("visa:study").rules.len(), 0, "a name is not a visa");
        assert!(read(&text.replace("visa:study", "visa:other")).unwrap_err().contains("[visas.other]"));
        assert!(read(&text.replace("source = 'https://dac'\n", "")).unwrap_err().contains("source"));
    }

    #[test]
    fn clients_without_credentials_are_the_principals_of_their_addresses() {
        let text = "[addresses]\n'10.1.0.0/16' = 'cluster'\n'10.1.0.9' = 'sequencer'\n'fd00::/8' = 'lab'\n";
        let policy = read(text).unwrap();
        let name = |address: &str| {
            let principal = policy.principal_at(address.parse().unwrap());
            principal.map(|principal| principal.name().to_owned())
        };
        assert_eq!(name("10.1.2.3").as_deref(), Some("cluster"));
        assert_eq!(name("10.1.0.9").as_deref(), Some("sequencer"));
        assert_eq!(name("fd12::1").as_deref(), Some("lab"));
        assert_eq!(name("10.2.0.1"), None);
        for (wrong, expected) in [("10.1.0.0/33", "10.1.0.0/33"), ("10.1.0.0/8", "10.0.0.0/8"), ("host", "host")] {
            let problem = read(&format!("[addresses]\n'{wrong}' = 'cluster'\n")).unwrap_err();
            assert!(problem.contains(expected) && problem.contains("policy.toml"), "{wrong}: {problem}");
        }
        let problem = read("[addresses]\n'10.1.0.0/16' = ''\n").unwrap_err();
        assert!(problem.contains("name"), "{problem}");
    }

    #[test]
    fn the_numbers_of_conditions_are_equal_in_all_processes() {
        let condition =
            "not_in = [0.1, 1, 1.0, true, 'a', 0.30000000000000004], at_least = 1e300, at_most = 9007199254740993";
        let text = "[groups]\ndac = []\n".to_owned() + &rule(&format!("where = [{{ column = 'x', {condition} }}]"));
        let grants = read(&text).unwrap().grants_by_name("alice");
        assert_eq!(Grants::from_bytes(&grants.to_bytes()).unwrap().rules, grants.rules);
        let conditions = &grants.rules[0].conditions[0];
        let texts = conditions.not_in.iter().flatten().map(ConditionValue::text).collect::<Vec<_>>();
        assert_eq!(texts, ["0.1", "1", "1", "true", "a", "0.30000000000000004"]);
        assert_eq!(conditions.at_most.unwrap().to_string(), "9007199254740993");
    }

    #[test]
    fn the_key_goes_only_where_pseudonyms_are_made() {
        let text = "key = 'key'\n[groups]\ndac = []\n".to_owned() + &rule("[rule.mask]\nname = 'hash'\n");
        let policy = read(&text).unwrap();
        assert!(policy.grants_by_name("alice").key.is_some() && policy.grants_by_name("bob").key.is_none());
        let shown = format!("{policy:?}{:?}", policy.grants_by_name("alice"));
        assert!(!shown.contains("key"), "{shown}");
    }

    #[test]
    fn mistakes_are_reported_with_their_rule() {
        for (rest, expected) in [
            ("regions = ['chr1:9-3']", "chr1:9-3"),
            ("regions = []", "deny = true"),
            ("where = [{ column = 'x' }]", "at_least"),
            ("where = [{ column = 'x', at_least = nan }]", "finite"),
            ("where = [{ column = 'x', at_most = -inf }]", "finite"),
            ("where = [{ column = 'x', not_in = [1, inf] }]", "finite"),
            ("where = [{ column = 'x', not_in = [2020-01-02] }]", "write a date as a text"),
            ("where = [{ column = 'x', at_least = '1' }]", "need a number"),
            ("[rule.mask]\nname = 'hash'", "key ="),
            ("[rule.mask]\nage = { bin = 0 }", "above 0"),
            ("deny = true\nwrite = true", "`deny`"),
            ("write = true\nshow = ['a']", "cannot permit writing"),
            ("mask = { a = 'hide' }", "hide"),
            ("colour = 'red'", "colour"),
            ("groups = { by = ['a'], at_least = 1 }", "at_least"),
            ("groups = { by = [], at_least = 5 }", "by"),
            ("groups = { by = ['a'] }", "at_least"),
            ("groups = { by = ['a'], at_least = 5, of = 'a' }", "twice"),
            ("groups = { by = ['a*'], at_least = 5 }", "a*"),
            ("show = ['a']\ngroups = { by = ['a'], at_least = 5 }", "`show`"),
            ("groups = { by = ['a'], at_least = 5 }\nmask = { a = 'drop' }", "dropped"),
            (
                "groups = { by = ['a'], at_least = 5, means = ['b'] }\nmask = { b = { bin = 2 } }",
                "remove it from `mask`",
            ),
            ("write = true\ngroups = { by = ['a'], at_least = 5 }", "cannot permit writing"),
        ] {
            let text = "[groups]\ndac = []\n".to_owned() + &rule(rest);
            let problem = read(&text).unwrap_err();
            assert!(problem.contains(expected) && problem.contains("policy.toml"), "{rest}: {problem}");
        }
        assert!(read(&rule("")).unwrap_err().contains("group:dac"));
        let twice = "[groups]\ndac = []\n".to_owned() + &rule("") + &rule("");
        assert!(read(&twice).unwrap_err().contains("rule 2"));
        assert!(read("key = 'short'\n").unwrap_err().contains("31 bytes"));
        assert!(read("key = 'none'\n").unwrap_err().contains("none"));
        assert!(read("").unwrap().is_empty());
    }
}
