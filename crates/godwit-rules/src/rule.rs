//! A rule: its principals, its datasets, and what it shows of them.

use std::collections::BTreeMap;

use godwit_model::{GlobPattern, Region, RegionError};
use serde::{Deserialize, Serialize};

/// The fields of a rule in a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Its name, for explanations of decisions.
    pub(crate) name: String,
    /// Names of principals, `group:NAME`, or `*` for any authenticated one.
    #[serde(rename = "who")]
    pub(crate) principals: Vec<String>,
    /// Patterns of names of datasets and files.
    pub(crate) datasets: Vec<String>,
    /// True if all of them are hidden.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deny: bool,
    /// True if they may be written, replaced and removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) write: bool,
    /// Only these samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) samples: Option<Vec<String>>,
    /// All samples but these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without_samples: Vec<String>,
    /// Only rows that overlap one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) regions: Option<Vec<String>>,
    /// Only rows that meet all of these.
    #[serde(default, rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    /// Only these columns, and masked ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) show: Option<Vec<String>>,
    /// The masks of columns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) mask: BTreeMap<String, Mask>,
    /// Rows are visible only as members of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "groups")]
    pub(crate) grouping: Option<Grouping>,
}

/// The groups that replace rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grouping {
    /// Columns by whose shown values rows are grouped.
    pub(crate) by: Vec<String>,
    /// Least number of members of a visible group.
    #[serde(rename = "at_least")]
    pub(crate) min_members: u64,
    /// The column that identifies the individual of a row; absent: each row is about another individual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "of")]
    pub(crate) member_column: Option<String>,
    /// Numeric columns whose mean in the group is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "means")]
    pub(crate) mean_columns: Vec<String>,
}

impl Grouping {
    /// Returns all columns that it names.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &String> {
        self.by.iter().chain(&self.mean_columns).chain(&self.member_column)
    }
}

/// A condition on the value of a column in visible rows. A row without a value is hidden.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    pub(crate) column: String,
    /// One of these.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub(crate) one_of: Option<Vec<ConditionValue>>,
    /// None of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_in: Option<Vec<ConditionValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_most: Option<f64>,
}

/// A value as written, compared as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum ConditionValue {
    Boolean(bool),
    Number(i64),
    Text(String),
}

impl ConditionValue {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Boolean(truth) => truth.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// A mask of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mask {
    /// The column is hidden.
    Drop,
    /// All values are null.
    Redact,
    /// A pseudonym: the same for the same value everywhere, and not reversible without the key.
    Hash,
    /// Numbers: the largest multiple of this width that is not above them.
    Bin(f64),
    /// Texts: their first characters, this many.
    #[serde(rename = "keep")]
    Prefix(usize),
    /// Times and dates: truncated to this precision.
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
    /// Returns the number of characters of ISO 8601 that are kept.
    pub(crate) fn characters(self) -> usize {
        match self {
            Self::Year => 4,
            Self::Month => 7,
            Self::Day => 10,
        }
    }
}

impl Rule {
    /// Reports whether its patterns match a name, whatever its other conditions.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.datasets.iter().any(|pattern| GlobPattern::for_dataset_names(pattern).matches(name))
    }

    /// Reports whether it depends on samples, so that the name of a dataset does not decide.
    pub(crate) fn depends_on_samples(&self) -> bool {
        self.samples.is_some() || !self.without_samples.is_empty()
    }

    pub(crate) fn selects_sample(&self, sample: &str) -> bool {
        self.samples.as_ref().is_none_or(|wanted| wanted.iter().any(|wanted| wanted == sample))
            && !self.without_samples.iter().any(|unwanted| unwanted == sample)
    }

    /// Reports whether it shows everything unchanged, apart from samples.
    pub(crate) fn shows_everything(&self) -> bool {
        !self.hides_rows() && self.show.is_none() && self.mask.is_empty() && self.grouping.is_none()
    }

    /// Reports whether it may hide rows.
    pub(crate) fn hides_rows(&self) -> bool {
        self.regions.is_some() || !self.conditions.is_empty()
    }

    /// Returns the rule for the rows that groups are made of: the grouping columns as shown, and the other columns unmasked.
    pub(crate) fn for_member_rows(&self, groups: &Grouping) -> Self {
        let mask = groups.by.iter().filter_map(|column| Some((column.clone(), self.column_mask(column)?))).collect();
        let show = Some(groups.columns().cloned().collect());
        Self { grouping: None, show, mask, ..self.clone() }
    }

    /// Returns its regions on the contigs of a dataset; those on other contigs are left out.
    ///
    /// # Errors
    /// [`RegionError`] for a region that is ambiguous among these contigs, or malformed.
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

    /// Returns the mask of a column: `None` where it is shown unchanged.
    pub(crate) fn column_mask(&self, column: &str) -> Option<Mask> {
        if self.grouping.as_ref().is_some_and(|groups| !groups.by.iter().any(|by| by == column)) {
            return Some(Mask::Drop);
        }
        if let Some((_, mask)) = self.mask.iter().find(|(name, _)| exact_column_name(name) == Some(column)) {
            return Some(*mask);
        }
        // Of several matching patterns the longest decides.
        let fitting = self.mask.iter().filter(|(pattern, _)| matches_column(pattern, column));
        let longest = fitting.max_by_key(|(pattern, _)| (pattern.len(), *pattern));
        let is_shown = || self.show.as_ref().is_none_or(|show| show.iter().any(|name| matches_column(name, column)));
        match longest {
            Some((_, mask)) => Some(*mask),
            None if is_shown() => None,
            None => Some(Mask::Drop),
        }
    }

    /// Returns the columns that it names and that must exist.
    pub(crate) fn required_columns(&self) -> impl Iterator<Item = &str> {
        let listed = self.show.iter().flatten().chain(self.mask.keys());
        let listed = listed.filter(|name| !name.ends_with('?')).filter_map(|name| exact_column_name(name));
        listed.chain(self.conditions.iter().map(|condition| condition.column.as_str()))
    }
}

/// Returns the column of a name that is not a pattern. A name with a question mark at its end is optional.
fn exact_column_name(name: &str) -> Option<&str> {
    (!name.contains('*')).then(|| name.strip_suffix('?').unwrap_or(name))
}

fn matches_column(pattern: &str, column: &str) -> bool {
    match exact_column_name(pattern) {
        Some(name) => name == column,
        // Names of columns are not paths.
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
