//! Explains the decision of a policy as text.

use std::sync::Arc;

use godwit_flight::{Catalog, Dataset, DatasetError, FileAccess, FileAuthorization};
use godwit_model::{Region, RegionError};

use crate::authorized_catalog::AuthorizedCatalog;
use crate::policy::Policy;
use crate::policy_store::PolicyStore;
use crate::row_filter::RegionSet;
use crate::rule::{Condition, DatePart, Grouping, Mask, Rule};
use crate::samples::{dataset_samples, visible_sample_indexes};

/// Most names in a list of a decision.
const MAX_LISTED_NAMES: usize = 12;

/// A hypothetical request to a policy.
#[derive(Clone, Debug, Default)]
pub struct ExplainRequest {
    /// Name of the principal; empty for an unnamed one.
    pub principal: String,
    /// Visas of the principal, by their names in the policy.
    pub visas: Vec<String>,
    /// The dataset.
    pub dataset: String,
    /// Requested columns.
    pub columns: Vec<String>,
    /// Requested regions, as users write them.
    pub regions: Vec<String>,
}

/// A decision of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The text, one line per decision.
    pub text: String,
    /// True if the requested data are visible, possibly masked.
    pub is_visible: bool,
}

/// Explains how a policy decides a request, and by which rule.
///
/// # Errors
/// [`DatasetError`] where a visible dataset cannot be opened.
pub fn explain(
    policy: &Arc<Policy>,
    catalog: Arc<dyn Catalog>,
    question: &ExplainRequest,
) -> Result<Explanation, DatasetError> {
    let ExplainRequest { principal, dataset: name, .. } = question;
    let grants =
        Arc::new(policy.grants_with_visas(principal, &|visa| question.visas.iter().any(|shown| shown == visa)));
    let canonical = catalog.canonical_name(name).unwrap_or_else(|_| name.clone());
    let principal_name = if principal.is_empty() { "whoever is let in" } else { principal };
    let Some(rule) = grants.deciding_rule(&canonical, &|| catalog.open(&canonical).ok()) else {
        let text = format!(
            "{principal_name} does not see {canonical}: {}\n",
            denial_reason(policy, &grants, &catalog, &canonical)
        );
        return Ok(Explanation { text, is_visible: false });
    };
    let mut lines =
        vec![format!("{principal_name} sees {canonical} by rule {}, {:?}", policy.rule_number(&rule.name), rule.name)];
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
        FileAuthorization::Allowed(_) => "file     as it is, by `godwit copy`".to_owned(),
        _ => "file     no: bytes cannot be shown in part".to_owned(),
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
        lines.push("there is no such dataset now; what depends on its columns and samples is not told".to_owned());
    }
    for region in &question.regions {
        let (line, is_seen) = describe_region(rule, dataset.as_deref(), region)
            .map_err(|error| DatasetError::InvalidRequest { problem: format!("{canonical}: {error}") })?;
        lines.push(line);
        is_visible &= is_seen;
    }
    Ok(Explanation { text: lines.join("\n") + "\n", is_visible })
}

fn denial_reason(policy: &Policy, grants: &crate::grants::Grants, catalog: &Arc<dyn Catalog>, name: &str) -> String {
    if grants.rules.is_empty() {
        return "no rule is about who that is".to_owned();
    }
    let denying = grants.rules.iter().find(|rule| rule.covers(name));
    match denying {
        Some(rule) if rule.deny && !rule.depends_on_samples() => {
            format!("rule {}, {:?}, denies it", policy.rule_number(&rule.name), rule.name)
        }
        Some(rule) => match catalog.open(name) {
            Ok(_) => format!(
                "rule {}, {:?}, goes by samples that are not its, and no rule after it is about it",
                policy.rule_number(&rule.name),
                rule.name
            ),
            Err(_) => "rules about it go by samples, and it cannot be opened".to_owned(),
        },
        None => "no rule is about it, and what no rule is about is not there".to_owned(),
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
    format!("seen only as groups by {} that have at least {} {members}", join_names(&groups.by), groups.min_members)
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
        phrases.push(format!("is there and none of {}", values(not_in)));
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
    let mut phrases = vec![format!("{} as they are", join_names(&shown))];
    if !masked.is_empty() {
        phrases.push(masked.join(", "));
    }
    if !dropped.is_empty() {
        phrases.push(format!("not there: {}", join_names(&dropped)));
    }
    format!("columns  {}", phrases.join("; "))
}

fn describe_column(rule: &Rule, dataset: &dyn Dataset, view: &dyn Dataset, column: &str) -> (String, bool) {
    let is_there = dataset.schema().index_of(column).is_ok();
    let is_shown = view.schema().index_of(column).is_ok();
    let description = match rule.column_mask(column) {
        _ if !is_there => "there is no such column".to_owned(),
        _ if !is_shown => "is not there for them".to_owned(),
        _ if rule.grouping.as_ref().is_some_and(|groups| groups.mean_columns.iter().any(|mean| mean == column)) => {
            "is the mean of its group".to_owned()
        }
        None => "is shown as it is".to_owned(),
        Some(mask) => format!("is {}", describe_mask(mask)),
    };
    (format!("column   {column} {description}"), is_shown)
}

fn describe_region(rule: &Rule, dataset: Option<&dyn Dataset>, text: &str) -> Result<(String, bool), RegionError> {
    let has_contig = |contig: &str| dataset?.has_contig(contig);
    let region = match Region::parse(text, has_contig) {
        Err(error @ RegionError::UnknownContig { .. }) => return Ok((format!("region   {text}: {error}"), false)),
        parsed => parsed?,
    };
    let regions = rule.regions_on_contigs(has_contig)?;
    if regions.as_ref().is_none_or(|regions| RegionSet::new(regions).contains(&region)) {
        return Ok((format!("region   {region} is seen"), true));
    }
    let meets = |other: &Region| other.contig == region.contig && other.start < region.end && region.start < other.end;
    Ok(match regions.iter().flatten().any(meets) {
        true => (format!("region   {region} is seen in part: rows that also overlap what may be seen"), true),
        false => (format!("region   {region} is not seen, but for rows that reach into what may be seen"), false),
    })
}

fn describe_mask(mask: Mask) -> String {
    match mask {
        Mask::Drop => "dropped".to_owned(),
        Mask::Redact => "redacted".to_owned(),
        Mask::Hash => "a pseudonym".to_owned(),
        Mask::Bin(width) => format!("in steps of {width}"),
        Mask::Prefix(characters) => format!("cut to {characters} characters"),
        Mask::Date(DatePart::Year) => "cut to the year".to_owned(),
        Mask::Date(DatePart::Month) => "cut to the month".to_owned(),
        Mask::Date(DatePart::Day) => "cut to the day".to_owned(),
    }
}

/// Joins the first names of a list, and the number of the others.
fn join_names(names: &[String]) -> String {
    let listed = names.iter().take(MAX_LISTED_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "none".to_owned(),
        count if count > MAX_LISTED_NAMES => format!("{listed} and {} more", count - MAX_LISTED_NAMES),
        _ => listed,
    }
}
