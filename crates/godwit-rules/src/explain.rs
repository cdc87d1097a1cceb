//! Explains as text what a policy permits to a principal, and by which rule.

use std::sync::Arc;

use godwit_dataset::{Catalog, Dataset, DatasetError, FileAccess, FileAuthorization, has_region_contig};
use godwit_model::{Region, RegionError};

use crate::authorized_catalog::AuthorizedCatalog;
use crate::policy::Policy;
use crate::policy_store::PolicyStore;
use crate::row_filter::RegionSet;
use crate::rule::{Condition, DatePart, Grouping, Mask, Rule};
use crate::samples::{covers_samples, dataset_samples, visible_sample_indexes};

/// Maximum number of names in a list of an explanation.
const MAX_LISTED_NAMES: usize = 12;

/// A hypothetical request whose decision is explained.
#[derive(Clone, Debug, Default)]
pub struct ExplainRequest {
    /// Name of the principal; empty for a principal without a name.
    pub principal: String,
    /// Visas of the principal, by the names that the policy gives them.
    pub visas: Vec<String>,
    /// Name of the dataset.
    pub dataset: String,
    /// Names of the requested columns.
    pub columns: Vec<String>,
    /// Requested regions, in the form in which users write them.
    pub regions: Vec<String>,
}

/// The explanation of a policy decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Text for users, with one line per decision.
    pub text: String,
    /// True if the principal may see all requested columns and regions. Values may be masked.
    pub is_visible: bool,
}

/// Explains how a policy decides a request, and which rule decides.
///
/// # Errors
/// [`DatasetError`] if the dataset is visible but cannot be opened.
pub fn explain(
    policy: &Arc<Policy>,
    catalog: Arc<dyn Catalog>,
    question: &ExplainRequest,
) -> Result<Explanation, DatasetError> {
    let ExplainRequest { principal, dataset: name, .. } = question;
    let grants =
        Arc::new(policy.grants_with_visas(principal, &|visa| question.visas.iter().any(|shown| shown == visa)));
    let canonical = catalog.canonical_name(name).unwrap_or_else(|_| name.clone());
    let principal_name = if principal.is_empty() { "any authenticated principal" } else { principal };
    let Some(rule) = grants.deciding_rule(&canonical, &|| catalog.open(&canonical).ok()) else {
        let text = format!(
            "{principal_name} cannot see {canonical}: {}\n",
            denial_reason(policy, &grants, &catalog, &canonical)
        );
        return Ok(Explanation { text, is_visible: false });
    };
    let mut lines = vec![format!(
        "{principal_name} can see {canonical} by rule {}, {:?}",
        policy.rule_number(&rule.name),
        rule.name
    )];
    let dataset = match catalog.open(&canonical) {
        Ok(dataset) => Some(dataset),
        Err(DatasetError::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    lines.push(describe_rows(rule));
    lines.extend(describe_samples(rule, dataset.as_deref()));
    lines.push(describe_columns(rule, dataset.as_deref()));
    let book = PolicyStore::from_policy(policy.clone(), catalog.clone());
    lines.push(match book.authorize_file_with(&grants, &canonical, FileAccess::Read) {
        FileAuthorization::Allowed(_) => "file     whole, by `godwit copy`".to_owned(),
        _ => "file     denied: bytes cannot be masked".to_owned(),
    });
    lines.push(format!("writing  {}", if rule.write { "yes" } else { "no" }));
    let mut is_visible = true;
    if let Some(dataset) = &dataset {
        let view = AuthorizedCatalog::new(catalog.clone(), grants.clone(), Default::default()).open(&canonical)?;
        for column in &question.columns {
            let (line, is_seen) = describe_column(rule, &**dataset, &*view, column);
            lines.push(line);
            is_visible &= is_seen;
        }
    } else {
        lines.push("the dataset does not exist, so decisions about its columns and samples are omitted".to_owned());
    }
    for region in &question.regions {
        let (line, is_seen) = describe_region(rule, dataset.as_deref(), region)
            .map_err(|error| DatasetError::InvalidRequest { problem: format!("{canonical}: {error}") })?;
        lines.push(line);
        is_visible &= is_seen;
    }
    Ok(Explanation { text: lines.join("\n") + "\n", is_visible })
}

/// Returns the reason why the rules of a principal do not show a dataset. The rules are examined in the same order as by
/// [`Grants::deciding_rule`](crate::grants::Grants::deciding_rule).
fn denial_reason(policy: &Policy, grants: &crate::grants::Grants, catalog: &Arc<dyn Catalog>, name: &str) -> String {
    if grants.rules.is_empty() {
        return "no rule names this principal".to_owned();
    }
    let label = |rule: &Rule| format!("rule {}, {:?}", policy.rule_number(&rule.name), rule.name);
    let mut first = None;
    for rule in grants.rules.iter().filter(|rule| rule.covers(name)) {
        if !rule.depends_on_samples() {
            return format!("{}, denies it", label(rule));
        }
        let Ok(dataset) = catalog.open(name) else {
            return "its rules select samples, but the dataset cannot be opened to read the names of its samples"
                .to_owned();
        };
        if rule.deny && covers_samples(rule, &*dataset) {
            let cause = match dataset_samples(&*dataset) {
                Some(_) => "the dataset contains a sample that the rule selects",
                None => "the samples in the dataset are unknown, so the rule may select one of them",
            };
            return format!("{}, denies it: {cause}", label(rule));
        }
        first = first.or(Some(rule));
    }
    match first {
        Some(rule) => format!("{}, selects other samples, and no later rule covers the dataset", label(rule)),
        None => "no rule names this dataset, and datasets without a rule are hidden".to_owned(),
    }
}

fn describe_rows(rule: &Rule) -> String {
    let mut phrases = Vec::new();
    if let Some(regions) = &rule.regions {
        phrases.push(format!("that overlap {}", join_names(regions)));
    }
    phrases.extend(rule.conditions.iter().map(describe_condition));
    let seen =
        if phrases.is_empty() { "rows     all".to_owned() } else { format!("rows     {}", phrases.join(" and ")) };
    match &rule.grouping {
        None => seen,
        Some(groups) => format!("{seen}; {}", describe_grouping(groups)),
    }
}

fn describe_grouping(groups: &Grouping) -> String {
    let members = groups.member_column.as_ref().map_or_else(|| "rows".to_owned(), |of| format!("different {of}"));
    format!("visible only as groups by {} with at least {} {members}", join_names(&groups.by), groups.min_members)
}

fn describe_condition(condition: &Condition) -> String {
    let values = |values: &[crate::rule::ConditionValue]| {
        join_names(&values.iter().map(crate::rule::ConditionValue::text).collect::<Vec<_>>())
    };
    let mut phrases = Vec::new();
    if let Some(one_of) = &condition.one_of {
        phrases.push(format!("is one of {}", values(one_of)));
    }
    if let Some(not_in) = &condition.not_in {
        phrases.push(format!("exists and is none of {}", values(not_in)));
    }
    phrases.extend(condition.at_least.map(|least| format!("is at least {least}")));
    phrases.extend(condition.at_most.map(|most| format!("is at most {most}")));
    format!("whose {} {}", condition.column, phrases.join(" and "))
}

fn describe_samples(rule: &Rule, dataset: Option<&dyn Dataset>) -> Option<String> {
    let dataset = dataset.filter(|_| rule.depends_on_samples())?;
    let samples = dataset_samples(dataset)?;
    let shown: Vec<String> = match visible_sample_indexes(rule, dataset) {
        Some(places) => places.iter().filter_map(|at| samples.get(*at as usize)).cloned().collect(),
        None => samples.clone(),
    };
    Some(format!("samples  {} of {}: {}", shown.len(), samples.len(), join_names(&shown)))
}

fn describe_columns(rule: &Rule, dataset: Option<&dyn Dataset>) -> String {
    let Some(dataset) = dataset else {
        let masked = rule.mask.iter().map(|(column, mask)| format!("{column} {}", describe_mask(*mask)));
        let shown = rule.show.as_ref().map_or_else(|| "all".to_owned(), |show| format!("only {}", join_names(show)));
        return format!("columns  {}", [shown].into_iter().chain(masked).collect::<Vec<_>>().join("; "));
    };
    let (mut shown, mut dropped, mut masked) = (Vec::new(), Vec::new(), Vec::new());
    let means = rule.grouping.as_ref().map_or(&[][..], |groups| &groups.mean_columns);
    masked.extend(means.iter().map(|column| format!("{column} the mean of its group")));
    for field in dataset.schema().fields().iter().filter(|field| !means.contains(field.name())) {
        match rule.column_mask(field.name()) {
            None => shown.push(field.name().clone()),
            Some(Mask::Drop) => dropped.push(field.name().clone()),
            Some(mask) => masked.push(format!("{} {}", field.name(), describe_mask(mask))),
        }
    }
    let mut phrases = vec![format!("{} unmasked", join_names(&shown))];
    if !masked.is_empty() {
        phrases.push(masked.join(", "));
    }
    if !dropped.is_empty() {
        phrases.push(format!("hidden: {}", join_names(&dropped)));
    }
    format!("columns  {}", phrases.join("; "))
}

fn describe_column(rule: &Rule, dataset: &dyn Dataset, view: &dyn Dataset, column: &str) -> (String, bool) {
    let is_there = dataset.schema().index_of(column).is_ok();
    let is_shown = view.schema().index_of(column).is_ok();
    let description = match rule.column_mask(column) {
        _ if !is_there => "the column does not exist".to_owned(),
        _ if !is_shown => "is hidden".to_owned(),
        _ if rule.grouping.as_ref().is_some_and(|groups| groups.mean_columns.iter().any(|mean| mean == column)) => {
            "is replaced by the mean of the group of the row".to_owned()
        }
        None => "is unmasked".to_owned(),
        Some(mask) => format!("is {}", describe_mask(mask)),
    };
    (format!("column   {column} {description}"), is_shown)
}

fn describe_region(rule: &Rule, dataset: Option<&dyn Dataset>, text: &str) -> Result<(String, bool), RegionError> {
    let has_contig = |contig: &str| has_region_contig(dataset?, contig);
    let region = match Region::parse(text, has_contig) {
        Err(error @ (RegionError::UnknownContig { .. } | RegionError::NoUnplacedReads)) => {
            return Ok((format!("region   {text}: {error}"), false));
        }
        parsed => parsed?,
    };
    let regions = rule.regions_on_contigs(has_contig)?;
    if regions.as_ref().is_none_or(|regions| RegionSet::new(regions).contains(&region)) {
        return Ok((format!("region   {region} is visible"), true));
    }
    let meets = |other: &Region| other.contig == region.contig && other.start < region.end && region.start < other.end;
    Ok(match regions.iter().flatten().any(meets) {
        true => (format!("region   {region} is visible in part: rows that also overlap visible regions"), true),
        false => (format!("region   {region} is hidden, except for rows that overlap visible regions"), false),
    })
}

fn describe_mask(mask: Mask) -> String {
    match mask {
        Mask::Drop => "dropped".to_owned(),
        Mask::Redact => "redacted".to_owned(),
        Mask::Hash => "a pseudonym".to_owned(),
        Mask::Bin(width) => format!("in bins of {width}"),
        Mask::Prefix(characters) => format!("truncated to {characters} characters"),
        Mask::Date(DatePart::Year) => "truncated to the year".to_owned(),
        Mask::Date(DatePart::Month) => "truncated to the month".to_owned(),
        Mask::Date(DatePart::Day) => "truncated to the day".to_owned(),
    }
}

/// Joins the first names of a list, followed by the number of omitted names.
fn join_names(names: &[String]) -> String {
    let listed = names.iter().take(MAX_LISTED_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "none".to_owned(),
        count if count > MAX_LISTED_NAMES => format!("{listed} and {} more", count - MAX_LISTED_NAMES),
        _ => listed,
    }
}
