//! Why somebody sees what: a decision in words.

use std::sync::Arc;

use godwit_flight::{Catalog, Dataset, DatasetError, FileUse, FileVerdict};
use godwit_model::{Region, RegionError};

use crate::catalog::GrantedCatalog;
use crate::policy::Policy;
use crate::rows::Places;
use crate::rule::{Condition, DatePart, Groups, Mask, Rule};
use crate::rulebook::Rulebook;
use crate::samples::{places_of_samples, samples_of};

/// Lists of a decision are told up to so many names.
const NAMES_TOLD: usize = 12;

/// What is asked of a policy.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Who asks; empty for whoever is not asked for a name.
    pub who: String,
    /// Visas that they show, as the policy names them.
    pub visas: Vec<String>,
    /// The dataset.
    pub dataset: String,
    /// Columns that are asked for.
    pub columns: Vec<String>,
    /// Regions that are asked for, as users write them.
    pub regions: Vec<String>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// In words, a line for each thing.
    pub text: String,
    /// Whether what was asked for is seen, if behind a mask.
    pub seen: bool,
}

/// What becomes of a question, and by which rule.
///
/// # Errors
/// [`DatasetError`] where a dataset that may be seen cannot be opened.
pub fn explain(
    policy: &Arc<Policy>,
    catalog: Arc<dyn Catalog>,
    question: &Question,
) -> Result<Explained, DatasetError> {
    let Question { who, dataset: name, .. } = question;
    let grants = Arc::new(policy.grants_where(who, &|visa| question.visas.iter().any(|shown| shown == visa)));
    let canonical = catalog.canonical_name(name).unwrap_or_else(|_| name.clone());
    let said = if who.is_empty() { "whoever is let in" } else { who };
    let Some(rule) = grants.decide(&canonical, &|| catalog.open(&canonical).ok()) else {
        let text = format!("{said} does not see {canonical}: {}\n", why_not(policy, &grants, &catalog, &canonical));
        return Ok(Explained { text, seen: false });
    };
    let mut lines = vec![format!("{said} sees {canonical} by rule {}, {:?}", policy.number_of(&rule.name), rule.name)];
    let dataset = match catalog.open(&canonical) {
        Ok(dataset) => Some(dataset),
        Err(DatasetError::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    lines.push(rows_of(rule));
    lines.extend(samples_told(rule, dataset.as_deref()));
    lines.push(columns_of(rule, dataset.as_deref()));
    let book = Rulebook::of(policy.clone(), catalog.clone());
    lines.push(match book.file_by(&grants, &canonical, FileUse::Read) {
        FileVerdict::Allowed(_) => "file     as it is, by `godwit copy`".to_owned(),
        _ => "file     no: bytes cannot be shown in part".to_owned(),
    });
    lines.push(format!("writing  {}", if rule.write { "yes" } else { "no" }));
    let mut seen = true;
    if let Some(dataset) = &dataset {
        let view = GrantedCatalog::new(catalog.clone(), grants.clone(), Default::default()).open(&canonical)?;
        for column in &question.columns {
            let (line, is_seen) = column_told(rule, &**dataset, &*view, column);
            lines.push(line);
            seen &= is_seen;
        }
    } else {
        lines.push("there is no such dataset now; what depends on its columns and samples is not told".to_owned());
    }
    for region in &question.regions {
        let (line, is_seen) = region_told(rule, dataset.as_deref(), region)
            .map_err(|error| DatasetError::Refused { problem: format!("{canonical}: {error}") })?;
        lines.push(line);
        seen &= is_seen;
    }
    Ok(Explained { text: lines.join("\n") + "\n", seen })
}

fn why_not(policy: &Policy, grants: &crate::grants::Grants, catalog: &Arc<dyn Catalog>, name: &str) -> String {
    if grants.rules.is_empty() {
        return "no rule is about who that is".to_owned();
    }
    let denying = grants.rules.iter().find(|rule| rule.covers(name));
    match denying {
        Some(rule) if rule.deny && !rule.asks_for_samples() => {
            format!("rule {}, {:?}, denies it", policy.number_of(&rule.name), rule.name)
        }
        Some(rule) => match catalog.open(name) {
            Ok(_) => format!(
                "rule {}, {:?}, goes by samples that are not its, and no rule after it is about it",
                policy.number_of(&rule.name),
                rule.name
            ),
            Err(_) => "rules about it go by samples, and it cannot be opened".to_owned(),
        },
        None => "no rule is about it, and what no rule is about is not there".to_owned(),
    }
}

fn rows_of(rule: &Rule) -> String {
    let mut said = Vec::new();
    if let Some(regions) = &rule.regions {
        said.push(format!("that overlap {}", some(regions)));
    }
    said.extend(rule.conditions.iter().map(condition_told));
    let seen = if said.is_empty() { "rows     all".to_owned() } else { format!("rows     {}", said.join(" and ")) };
    match &rule.groups {
        None => seen,
        Some(groups) => format!("{seen}; {}", groups_told(groups)),
    }
}

fn groups_told(groups: &Groups) -> String {
    let members = groups.of.as_ref().map_or_else(|| "rows".to_owned(), |of| format!("different {of}"));
    format!("seen only as groups by {} that have at least {} {members}", some(&groups.by), groups.at_least)
}

fn condition_told(condition: &Condition) -> String {
    let values = |values: &[crate::rule::Value]| some(&values.iter().map(crate::rule::Value::text).collect::<Vec<_>>());
    let mut said = Vec::new();
    if let Some(one_of) = &condition.one_of {
        said.push(format!("is one of {}", values(one_of)));
    }
    if let Some(not_in) = &condition.not_in {
        said.push(format!("is there and none of {}", values(not_in)));
    }
    said.extend(condition.at_least.map(|least| format!("is at least {least}")));
    said.extend(condition.at_most.map(|most| format!("is at most {most}")));
    format!("whose {} {}", condition.column, said.join(" and "))
}

fn samples_told(rule: &Rule, dataset: Option<&dyn Dataset>) -> Option<String> {
    let dataset = dataset.filter(|_| rule.asks_for_samples())?;
    let samples = samples_of(dataset)?;
    let shown: Vec<String> = match places_of_samples(rule, dataset) {
        Some(places) => places.iter().filter_map(|at| samples.get(*at as usize)).cloned().collect(),
        None => samples.clone(),
    };
    Some(format!("samples  {} of {}: {}", shown.len(), samples.len(), some(&shown)))
}

fn columns_of(rule: &Rule, dataset: Option<&dyn Dataset>) -> String {
    let Some(dataset) = dataset else {
        let masked = rule.mask.iter().map(|(column, mask)| format!("{column} {}", mask_told(*mask)));
        let shown = rule.show.as_ref().map_or_else(|| "all".to_owned(), |show| format!("only {}", some(show)));
        return format!("columns  {}", [shown].into_iter().chain(masked).collect::<Vec<_>>().join("; "));
    };
    let (mut shown, mut dropped, mut masked) = (Vec::new(), Vec::new(), Vec::new());
    let means = rule.groups.as_ref().map_or(&[][..], |groups| &groups.means);
    masked.extend(means.iter().map(|column| format!("{column} the mean of its group")));
    for field in dataset.schema().fields().iter().filter(|field| !means.contains(field.name())) {
        match rule.mask_of(field.name()) {
            None => shown.push(field.name().clone()),
            Some(Mask::Drop) => dropped.push(field.name().clone()),
            Some(mask) => masked.push(format!("{} {}", field.name(), mask_told(mask))),
        }
    }
    let mut said = vec![format!("{} as they are", some(&shown))];
    if !masked.is_empty() {
        said.push(masked.join(", "));
    }
    if !dropped.is_empty() {
        said.push(format!("not there: {}", some(&dropped)));
    }
    format!("columns  {}", said.join("; "))
}

fn column_told(rule: &Rule, dataset: &dyn Dataset, view: &dyn Dataset, column: &str) -> (String, bool) {
    let is_there = dataset.schema().index_of(column).is_ok();
    let is_shown = view.schema().index_of(column).is_ok();
    let told = match rule.mask_of(column) {
        _ if !is_there => "there is no such column".to_owned(),
        _ if !is_shown => "is not there for them".to_owned(),
        _ if rule.groups.as_ref().is_some_and(|groups| groups.means.iter().any(|mean| mean == column)) => {
            "is the mean of its group".to_owned()
        }
        None => "is shown as it is".to_owned(),
        Some(mask) => format!("is {}", mask_told(mask)),
    };
    (format!("column   {column} {told}"), is_shown)
}

fn region_told(rule: &Rule, dataset: Option<&dyn Dataset>, text: &str) -> Result<(String, bool), RegionError> {
    let has_contig = |contig: &str| dataset?.has_contig(contig);
    let region = match Region::parse(text, has_contig) {
        Err(error @ RegionError::NoContig { .. }) => return Ok((format!("region   {text}: {error}"), false)),
        parsed => parsed?,
    };
    let regions = rule.regions_among(has_contig)?;
    if regions.as_ref().is_none_or(|regions| Places::new(regions).hold(&region)) {
        return Ok((format!("region   {region} is seen"), true));
    }
    let meets = |other: &Region| other.contig == region.contig && other.start < region.end && region.start < other.end;
    Ok(match regions.iter().flatten().any(meets) {
        true => (format!("region   {region} is seen in part: rows that also overlap what may be seen"), true),
        false => (format!("region   {region} is not seen, but for rows that reach into what may be seen"), false),
    })
}

fn mask_told(mask: Mask) -> String {
    match mask {
        Mask::Drop => "dropped".to_owned(),
        Mask::Redact => "redacted".to_owned(),
        Mask::Hash => "a pseudonym".to_owned(),
        Mask::Bin(width) => format!("in steps of {width}"),
        Mask::Keep(characters) => format!("cut to {characters} characters"),
        Mask::Date(DatePart::Year) => "cut to the year".to_owned(),
        Mask::Date(DatePart::Month) => "cut to the month".to_owned(),
        Mask::Date(DatePart::Day) => "cut to the day".to_owned(),
    }
}

/// The first names of a list, and how many more there are.
fn some(names: &[String]) -> String {
    let told = names.iter().take(NAMES_TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "none".to_owned(),
        count if count > NAMES_TOLD => format!("{told} and {} more", count - NAMES_TOLD),
        _ => told,
    }
}
