//! A catalog of what one caller may see.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use godwit_flight::{Catalog, Dataset, DatasetError, DatasetWriter, Put, TEMPORARY, Touches};

use crate::grants::Grants;
use crate::rule::Rule;
use crate::view::View;

/// A catalog through the rules about one caller. What the caller may not see is not there.
#[derive(Debug)]
pub struct GrantedCatalog {
    catalog: Arc<dyn Catalog>,
    grants: Arc<Grants>,
    touches: Touches,
}

impl GrantedCatalog {
    /// What `grants` let be seen of a catalog; what is opened is added to `touches`.
    pub fn new(catalog: Arc<dyn Catalog>, grants: Arc<Grants>, touches: Touches) -> Self {
        Self { catalog, grants, touches }
    }

    fn rule_of(&self, canonical: &str) -> Option<&Arc<Rule>> {
        self.grants.decide(canonical, &|| self.catalog.open(canonical).ok())
    }

    /// The rule that lets a dataset be written; there has to be one that also shows all of it.
    fn rule_for_writing(&self, name: &str) -> Result<(), DatasetError> {
        let canonical = self.catalog.canonical_name(name)?;
        let rule = self.grants.first_covering(&canonical);
        let rule = rule.filter(|rule| rule.write && !rule.deny && rule.shows_everything() && !rule.asks_for_samples());
        let Some(rule) = rule else {
            let problem = format!("no rule lets you write {name}; whoever keeps the rules can");
            return Err(DatasetError::Forbidden { problem });
        };
        self.touches.add(&canonical, &rule.name);
        Ok(())
    }
}

impl Catalog for GrantedCatalog {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        let mut names = self.catalog.names()?;
        names.retain(|name| self.rule_of(name).is_some());
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        // One text for what is not there and for what is not to be seen.
        let hidden = || DatasetError::NotFound { name: name.to_owned() };
        let canonical = self.catalog.canonical_name(name).map_err(|_| hidden())?;
        let rule = self.rule_of(&canonical).ok_or_else(hidden)?;
        let dataset = self.catalog.open(&canonical).map_err(|error| match error {
            DatasetError::NotFound { .. } => hidden(),
            error if rule.shows_everything() => error,
            _ => {
                let problem = format!("{name} cannot be opened; whoever keeps it can find out why");
                DatasetError::Machine(problem.into())
            }
        })?;
        let view = View::of(&canonical, dataset, rule, &self.grants)?;
        self.touches.add(&canonical, &rule.name);
        Ok(view)
    }

    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        self.catalog.canonical_name(name)
    }

    fn is_writable(&self) -> bool {
        self.catalog.is_writable()
    }

    fn put(&self, put: &Put, schema: SchemaRef) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        let below = format!("{TEMPORARY}/");
        let name = match put.temporary && !put.name.starts_with(&below) {
            true => below + &put.name,
            false => put.name.clone(),
        };
        self.rule_for_writing(&name)?;
        self.catalog.put(put, schema)
    }

    fn remove(&self, name: &str) -> Result<(), DatasetError> {
        self.rule_for_writing(name)?;
        self.catalog.remove(name)
    }
}
