//! A rule of a policy: to which principals and datasets it applies, and which of their data it shows.

use std::collections::BTreeMap;
use std::fmt;

use godwit_model::{GlobPattern, Region, RegionError};
use serde::{Deserialize, Serialize};

/// A rule, with the fields of a `[[rule]]` table in the policy file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Name of the rule, which explanations of decisions mention.
    pub(crate) name: String,
    /// Principals to which the rule applies: names, `group:NAME`, `visa:NAME`, or `*` for every principal.
    #[serde(rename = "who")]
    pub(crate) principals: Vec<String>,
    /// Patterns for the names of datasets and files to which the rule applies.
    pub(crate) datasets: Vec<String>,
    /// True if the rule hides all datasets and files to which it applies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deny: bool,
    /// True if the principals may write, replace and remove the datasets to which the rule applies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) write: bool,
    /// If set, only these samples are visible. If the rule denies access, it hides every dataset with one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) samples: Option<Vec<String>>,
    /// Samples that are hidden. If the rule denies access, it hides every dataset with another sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without_samples: Vec<String>,
    /// If set, only rows that overlap one of these regions are visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) regions: Option<Vec<String>>,
    /// Conditions that a row must meet to be visible.
    #[serde(default, rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    /// If set, only these columns and the columns with a mask are visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) show: Option<Vec<String>>,
    /// Masks by column name or pattern.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) mask: BTreeMap<String, Mask>,
    /// If set, rows are visible only as members of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "groups")]
    pub(crate) grouping: Option<Grouping>,
}

/// The definition of the groups by which rows are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grouping {
    /// Columns by which rows are grouped. Masked values are grouped as they are shown.
    pub(crate) by: Vec<String>,
    /// Minimum number of members of a visible group.
    #[serde(rename = "at_least")]
    pub(crate) min_members: u64,
    /// The column that identifies the individual to which a row belongs; `None` if each row belongs to a different
    /// individual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "of")]
    pub(crate) member_column: Option<String>,
    /// Numeric columns of which the mean in each group is visible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "means")]
    pub(crate) mean_columns: Vec<String>,
}

impl Grouping {
    /// Returns all columns that the grouping mentions.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &String> {
        self.by.iter().chain(&self.mean_columns).chain(&self.member_column)
    }
}

/// A condition on the value of a column. Rows that do not meet the condition, or have no value, are hidden.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    pub(crate) column: String,
    /// If set, a row is visible only if its value in the column is in this list.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub(crate) one_of: Option<Vec<ConditionValue>>,
    /// If set, a row is visible only if its value in the column is not in this list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_in: Option<Vec<ConditionValue>>,
    /// If set, a row is visible only if its value in the column is at least this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_least: Option<Number>,
    /// If set, a row is visible only if its value in the column is at most this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_most: Option<Number>,
}

/// A number in the policy file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "`at_least` and `at_most` need a number")]
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

impl Number {
    /// Returns whether the number is neither infinite nor NaN.
    pub(crate) fn is_finite(self) -> bool {
        self.to_f64().is_finite()
    }

    /// Returns the nearest floating-point number.
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

impl fmt::Display for Number {
    /// Writes the shortest decimal text that has this value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
        }
    }
}

/// A value in a list of the policy file. It is converted to the type of the column with which it is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "the lists of `where` contain texts, numbers, `true` and `false`; write a date as a text"
)]
pub(crate) enum ConditionValue {
    Boolean(bool),
    Number(Number),
    Text(String),
}

impl ConditionValue {
    /// Returns the value as text, such as `true` or `0.5`.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Boolean(truth) => truth.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The way in which the values of a column are masked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mask {
    /// Hide the column.
    Drop,
    /// Replace all values by null.
    Redact,
    /// Replace each value by a pseudonym. Equal values have the same pseudonym in all datasets; reversing it requires
    /// the key.
    Hash,
    /// Replace each number by the largest multiple of this width that does not exceed it.
    Bin(f64),
    /// Keep only this number of characters at the start of each text.
    #[serde(rename = "keep")]
    Prefix(usize),
    /// Truncate each date or time to this precision. A text that is not an ISO 8601 date becomes null.
    Date(DatePart),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DatePart {
    Year,
    Month,
    Day,
}

impl DatePart {
    /// Returns the number of characters of an ISO 8601 date that remain.
    pub(crate) fn characters(self) -> usize {
        match self {
            Self::Year => 4,
            Self::Month => 7,
            Self::Day => 10,
        }
    }
}

impl Rule {
    /// Returns whether a pattern of the rule matches a dataset name, whatever the other conditions of the rule are.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.datasets.iter().any(|pattern| GlobPattern::for_dataset_names(pattern).matches(name))
    }

    /// Returns whether the rule depends on the samples in a dataset, so that the name of the dataset alone does not
    /// decide.
    pub(crate) fn depends_on_samples(&self) -> bool {
        self.samples.is_some() || !self.without_samples.is_empty()
    }

    pub(crate) fn selects_sample(&self, sample: &str) -> bool {
        self.samples.as_ref().is_none_or(|wanted| wanted.iter().any(|wanted| wanted == sample))
            && !self.without_samples.iter().any(|unwanted| unwanted == sample)
    }

    /// Returns whether the rule shows all rows and columns unchanged, apart from its selection of samples.
    pub(crate) fn shows_everything(&self) -> bool {
        !self.hides_rows() && self.show.is_none() && self.mask.is_empty() && self.grouping.is_none()
    }

    /// Returns whether the rule may hide rows.
    pub(crate) fn hides_rows(&self) -> bool {
        self.regions.is_some() || !self.conditions.is_empty()
    }

    /// Returns the rule for the rows from which groups are built: the grouping columns with their masks, and the other
    /// columns unmasked.
    pub(crate) fn for_member_rows(&self, groups: &Grouping) -> Self {
        let mask = groups.by.iter().filter_map(|column| Some((column.clone(), self.column_mask(column)?))).collect();
        let show = Some(groups.columns().cloned().collect());
        Self { grouping: None, show, mask, ..self.clone() }
    }

    /// Returns the regions of the rule that are on contigs of a dataset. Regions on other contigs are omitted.
    ///
    /// # Errors
    /// [`RegionError`] if a region is malformed, or ambiguous because of the contig names.
    pub(crate) fn regions_on_contigs(
        &self,
        has_contig: impl Fn(&str) -> Option<bool>,
    ) -> Result<Option<Vec<Region>>, RegionError> {
        let Some(texts) = &self.regions else { return Ok(None) };
        let mut regions = Vec::new();
        for text in texts {
            match Region::parse(text, &has_contig) {
                Ok(region) => regions.push(region),
                Err(RegionError::UnknownContig { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(regions))
    }

    /// Returns the mask of a column; `None` if the column is visible without a mask.
    pub(crate) fn column_mask(&self, column: &str) -> Option<Mask> {
        if self.grouping.as_ref().is_some_and(|groups| !groups.by.iter().any(|by| by == column)) {
            return Some(Mask::Drop);
        }
        if let Some((_, mask)) = self.mask.iter().find(|(name, _)| exact_column_name(name) == Some(column)) {
            return Some(*mask);
        }
        // If several patterns match the column, the longest one decides.
        let fitting = self.mask.iter().filter(|(pattern, _)| matches_column(pattern, column));
        let longest = fitting.max_by_key(|(pattern, _)| (pattern.len(), *pattern));
        let is_shown = || self.show.as_ref().is_none_or(|show| show.iter().any(|name| matches_column(name, column)));
        match longest {
            Some((_, mask)) => Some(*mask),
            None if is_shown() => None,
            None => Some(Mask::Drop),
        }
    }

    /// Returns the columns that the rule mentions by name and that the dataset must have.
    pub(crate) fn required_columns(&self) -> impl Iterator<Item = &str> {
        let listed = self.show.iter().flatten().chain(self.mask.keys());
        let listed = listed.filter(|name| !name.ends_with('?')).filter_map(|name| exact_column_name(name));
        listed.chain(self.conditions.iter().map(|condition| condition.column.as_str()))
    }
}

/// Returns the column name in an entry of a rule, without the trailing question mark of an optional column. Returns
/// `None` if the entry is a pattern.
fn exact_column_name(name: &str) -> Option<&str> {
    (!name.contains('*')).then(|| name.strip_suffix('?').unwrap_or(name))
}

fn matches_column(pattern: &str, column: &str) -> bool {
    match exact_column_name(pattern) {
        Some(name) => name == column,
        // Column names are not paths, so `*` must also match slashes.
        None => GlobPattern::for_dataset_names(&pattern.replace('*', "**")).matches(column),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        toml::from_str(&format!("name = 'x'\nwho = ['*']\ndatasets = ['**']\n{text}")).unwrap()
    }

    #[test]
    fn the_most_exact_name_determines_the_mask_of_a_column() {
        let of = rule(
            "[mask]\nname = 'hash'\n'tag_*' = 'drop'\n'tag_N*' = 'redact'\n'a/*' = { keep = 2 }\n'gone?' = 'drop'",
        );
        let expected = [
            ("name", Some(Mask::Hash)),
            ("tag_NM", Some(Mask::Redact)),
            ("tag_RG", Some(Mask::Drop)),
            ("a/b/c", Some(Mask::Prefix(2))),
            ("gone", Some(Mask::Drop)),
            ("Name", None),
        ];
        for (column, mask) in expected {
            assert_eq!(of.column_mask(column), mask, "{column}");
        }
        assert_eq!(of.required_columns().collect::<Vec<_>>(), ["name"]);
    }

    #[test]
    fn what_is_not_on_a_list_of_columns_is_dropped() {
        let of =
            rule("show = ['contig', 'info_*']\nwhere = [{ column = 'use', in = ['GRU'] }]\n[mask]\nage = { bin = 5 }");
        assert_eq!(of.column_mask("contig"), None);
        assert_eq!(of.column_mask("info_DP"), None);
        assert_eq!(of.column_mask("age"), Some(Mask::Bin(5.0)));
        assert_eq!(of.column_mask("sample"), Some(Mask::Drop));
        assert_eq!(of.required_columns().collect::<Vec<_>>(), ["contig", "age", "use"]);
    }
}
