//! A rule: whom it is about, which datasets, and what may be seen of them.

use std::collections::BTreeMap;

use godwit_model::{Pattern, Region, RegionError};
use serde::{Deserialize, Serialize};

/// Fields of a rule, as they stand in a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// What it is called, where decisions are told.
    pub(crate) name: String,
    /// Names of callers, `group:NAME`, or `*` for whoever is let in.
    pub(crate) who: Vec<String>,
    /// Patterns of names of datasets and files.
    pub(crate) datasets: Vec<String>,
    /// Nothing of them is seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deny: bool,
    /// They may be put, replaced and removed.
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
    /// Only these columns, and those that are masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) show: Option<Vec<String>>,
    /// What is shown in place of the values of a column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) mask: BTreeMap<String, Mask>,
    /// Rows are seen only as members of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<Groups>,
}

/// What is seen in place of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Groups {
    /// Columns whose values, as they are shown, are the same in a group.
    pub(crate) by: Vec<String>,
    /// How many are in a group that is seen.
    pub(crate) at_least: u64,
    /// The column that says whom a row is about; where there is none, each is about somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<String>,
    /// Columns of numbers whose mean in its group is seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) means: Vec<String>,
}

impl Groups {
    /// All columns that it names.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &String> {
        self.by.iter().chain(&self.means).chain(&self.of)
    }
}

/// What the value of a column has to be in rows that are seen. A row without a value is not seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    pub(crate) column: String,
    /// One of these.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub(crate) one_of: Option<Vec<Value>>,
    /// None of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_in: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_most: Option<f64>,
}

/// A value as it is written, compared as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Truth(bool),
    Number(i64),
    Text(String),
}

impl Value {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Truth(truth) => truth.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// What becomes of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mask {
    /// The column is not there.
    Drop,
    /// It is there, and has no values.
    Redact,
    /// A pseudonym: the same for the same value, everywhere, and told by nobody without the key.
    Hash,
    /// Numbers: the largest multiple of this that is not above them.
    Bin(f64),
    /// Texts: so many characters of their beginning.
    Keep(usize),
    /// Times and dates: no more than that.
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
    /// Characters of ISO 8601 that are left.
    pub(crate) fn characters(self) -> usize {
        match self {
            Self::Year => 4,
            Self::Month => 7,
            Self::Day => 10,
        }
    }
}

impl Rule {
    /// Whether it is about datasets of that name. What else it asks of them is another question.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.datasets.iter().any(|pattern| Pattern::of_names(pattern).matches(name))
    }

    /// Whether it asks for samples, so that the name of a dataset does not tell whether it is about it.
    pub(crate) fn asks_for_samples(&self) -> bool {
        self.samples.is_some() || !self.without_samples.is_empty()
    }

    pub(crate) fn wants_sample(&self, sample: &str) -> bool {
        self.samples.as_ref().is_none_or(|wanted| wanted.iter().any(|wanted| wanted == sample))
            && !self.without_samples.iter().any(|unwanted| unwanted == sample)
    }

    /// Whether what it is about is seen as it is, but for samples.
    pub(crate) fn shows_everything(&self) -> bool {
        !self.hides_rows() && self.show.is_none() && self.mask.is_empty() && self.groups.is_none()
    }

    /// Whether rows of what it is about may not be seen.
    pub(crate) fn hides_rows(&self) -> bool {
        self.regions.is_some() || !self.conditions.is_empty()
    }

    /// The rule for the rows that its groups are made of: what they are by as it is shown, and the other columns as they are.
    pub(crate) fn of_rows(&self, groups: &Groups) -> Self {
        let mask = groups.by.iter().filter_map(|column| Some((column.clone(), self.mask_of(column)?))).collect();
        let show = Some(groups.columns().cloned().collect());
        Self { groups: None, show, mask, ..self.clone() }
    }

    /// Its regions on the contigs of a dataset; those on other contigs are left out.
    ///
    /// # Errors
    /// [`RegionError`] for one that is ambiguous among these contigs, or is not written as a region.
    pub(crate) fn regions_among(
        &self,
        has_contig: impl Fn(&str) -> Option<bool>,
    ) -> Result<Option<Vec<Region>>, RegionError> {
        let Some(texts) = &self.regions else { return Ok(None) };
        let mut regions = Vec::new();
        for text in texts {
            match Region::parse(text, &has_contig) {
                Ok(region) => regions.push(region),
                Err(RegionError::NoContig { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(regions))
    }

    /// What becomes of a column: `None` where it is shown as it is.
    pub(crate) fn mask_of(&self, column: &str) -> Option<Mask> {
        if self.groups.as_ref().is_some_and(|groups| !groups.by.iter().any(|by| by == column)) {
            return Some(Mask::Drop);
        }
        if let Some((_, mask)) = self.mask.iter().find(|(name, _)| plain_name(name) == Some(column)) {
            return Some(*mask);
        }
        // Of several patterns the longest says most.
        let fitting = self.mask.iter().filter(|(pattern, _)| fits_column(pattern, column));
        let longest = fitting.max_by_key(|(pattern, _)| (pattern.len(), *pattern));
        let is_shown = || self.show.as_ref().is_none_or(|show| show.iter().any(|name| fits_column(name, column)));
        match longest {
            Some((_, mask)) => Some(*mask),
            None if is_shown() => None,
            None => Some(Mask::Drop),
        }
    }

    /// Columns that it names and that have to be there.
    pub(crate) fn named_columns(&self) -> impl Iterator<Item = &str> {
        let listed = self.show.iter().flatten().chain(self.mask.keys());
        let listed = listed.filter(|name| !name.ends_with('?')).filter_map(|name| plain_name(name));
        listed.chain(self.conditions.iter().map(|condition| condition.column.as_str()))
    }
}

/// The column that a name stands for, where it is no pattern. One behind which there is a question mark need not be there.
fn plain_name(name: &str) -> Option<&str> {
    (!name.contains('*')).then(|| name.strip_suffix('?').unwrap_or(name))
}

fn fits_column(pattern: &str, column: &str) -> bool {
    match plain_name(pattern) {
        Some(name) => name == column,
        // Names of columns are no paths.
        None => Pattern::of_names(&pattern.replace('*', "**")).matches(column),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        toml::from_str(&format!("name = 'x'\nwho = ['*']\ndatasets = ['**']\n{text}")).unwrap()
    }

    #[test]
    fn the_most_exact_name_says_what_becomes_of_a_column() {
        let of = rule(
            "[mask]\nname = 'hash'\n'tag_*' = 'drop'\n'tag_N*' = 'redact'\n'a/*' = { keep = 2 }\n'gone?' = 'drop'",
        );
        let expected = [
            ("name", Some(Mask::Hash)),
            ("tag_NM", Some(Mask::Redact)),
            ("tag_RG", Some(Mask::Drop)),
            ("a/b/c", Some(Mask::Keep(2))),
            ("gone", Some(Mask::Drop)),
            ("Name", None),
        ];
        for (column, mask) in expected {
            assert_eq!(of.mask_of(column), mask, "{column}");
        }
        assert_eq!(of.named_columns().collect::<Vec<_>>(), ["name"]);
    }

    #[test]
    fn what_is_not_on_a_list_of_columns_is_dropped() {
        let of =
            rule("show = ['contig', 'info_*']\nwhere = [{ column = 'use', in = ['GRU'] }]\n[mask]\nage = { bin = 5 }");
        assert_eq!(of.mask_of("contig"), None);
        assert_eq!(of.mask_of("info_DP"), None);
        assert_eq!(of.mask_of("age"), Some(Mask::Bin(5.0)));
        assert_eq!(of.mask_of("sample"), Some(Mask::Drop));
        assert_eq!(of.named_columns().collect::<Vec<_>>(), ["contig", "age", "use"]);
    }
}
