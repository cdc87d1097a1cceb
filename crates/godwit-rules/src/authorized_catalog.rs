//! The catalog that one principal may see.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use godwit_flight::{
    Catalog, Dataset, DatasetAccessList, DatasetError, DatasetWriter, PutRequest, TEMPORARY_DIRECTORY,
};

use crate::dataset_view::DatasetView;
use crate::grants::Grants;
use crate::rule::Rule;

/// A catalog filtered by the rules about one principal. Hidden datasets are reported as absent.
#[derive(Debug)]
pub struct AuthorizedCatalog {
    catalog: Arc<dyn Catalog>,
    grants: Arc<Grants>,
    accesses: DatasetAccessList,
}

impl AuthorizedCatalog {
    /// Filters a catalog by `grants`; opened datasets are added to `accesses`.
    pub fn new(catalog: Arc<dyn Catalog>, grants: Arc<Grants>, accesses: DatasetAccessList) -> Self {
        Self { catalog, grants, accesses }
    }

    fn visible_rule(&self, canonical: &str) -> Option<&Arc<Rule>> {
        self.grants.deciding_rule(canonical, &|| self.catalog.open(canonical).ok())
    }

    /// Checks that a rule allows writing a dataset; the rule has to show all of it too.
    fn authorize_write(&self, name: &str) -> Result<(), DatasetError> {
        let canonical = self.catalog.canonical_name(name)?;
        let rule = self.grants.first_covering(&canonical);
        let rule =
            rule.filter(|rule| rule.write && !rule.deny && rule.shows_everything() && !rule.depends_on_samples());
        let Some(rule) = rule else {
            let problem = format!("no rule lets you write {name}; whoever keeps the rules can");
            return Err(DatasetError::Forbidden { problem });
        };
        self.accesses.add(&canonical, &rule.name);
        Ok(())
    }
}

impl Catalog for AuthorizedCatalog {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        let mut names = self.catalog.names()?;
        names.retain(|name| self.visible_rule(name).is_some());
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        // The same message for absent and hidden datasets.
        let hidden = || DatasetError::NotFound { name: name.to_owned() };
        let canonical = self.catalog.canonical_name(name).map_err(|_| hidden())?;
        let rule = self.visible_rule(&canonical).ok_or_else(hidden)?;
        let dataset = self.catalog.open(&canonical).map_err(|error| match error {
            DatasetError::NotFound { .. } => hidden(),
            error if rule.shows_everything() => error,
            _ => {
                let problem = format!("{name} cannot be opened; whoever keeps it can find out why");
                DatasetError::Local(problem.into())
            }
        })?;
        let view = DatasetView::open(&canonical, dataset, rule, &self.grants)?;
        self.accesses.add(&canonical, &rule.name);
        Ok(view)
    }

    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        self.catalog.canonical_name(name)
    }

    fn is_writable(&self) -> bool {
        self.catalog.is_writable()
    }

    fn open_writer(&self, put: &PutRequest, schema: SchemaRef) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        let below = format!("{TEMPORARY_DIRECTORY}/");
        let name = match put.temporary && !put.name.starts_with(&below) {
            true => below + &put.name,
            false => put.name.clone(),
        };
        self.authorize_write(&name)?;
        self.catalog.open_writer(put, schema)
    }

    fn remove(&self, name: &str) -> Result<(), DatasetError> {
        self.authorize_write(name)?;
        self.catalog.remove(name)
    }
}
