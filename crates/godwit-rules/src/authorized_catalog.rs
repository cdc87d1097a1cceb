//! The catalog as one principal sees it.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use godwit_dataset::{
    Catalog, Dataset, DatasetAccessList, DatasetError, DatasetWriter, PutRequest, TEMPORARY_DIRECTORY,
};

use crate::dataset_view::DatasetView;
use crate::grants::Grants;
use crate::grouping::GroupedDataset;
use crate::rule::Rule;

/// A catalog that shows only the data that the policy grants to one principal. A hidden dataset is reported as not
/// found.
#[derive(Debug)]
pub struct AuthorizedCatalog {
    catalog: Arc<dyn Catalog>,
    grants: Arc<Grants>,
    accesses: DatasetAccessList,
}

impl AuthorizedCatalog {
    /// Creates a catalog that shows the data in `catalog` that `grants` permits. Each dataset that is opened is added
    /// to `accesses`.
    pub fn new(catalog: Arc<dyn Catalog>, grants: Arc<Grants>, accesses: DatasetAccessList) -> Self {
        Self { catalog, grants, accesses }
    }

    fn visible_rule(&self, canonical: &str) -> Option<&Arc<Rule>> {
        self.grants.deciding_rule(canonical, &|| self.catalog.open(canonical).ok())
    }

    /// Checks that a rule permits writing a dataset. The rule must also show the whole dataset.
    fn authorize_write(&self, name: &str) -> Result<(), DatasetError> {
        let canonical = self.catalog.canonical_name(name)?;
        let rule = self.grants.first_covering(&canonical);
        let rule =
            rule.filter(|rule| rule.write && !rule.deny && rule.shows_everything() && !rule.depends_on_samples());
        let Some(rule) = rule else {
            let problem = format!("no rule allows you to write {name}; ask the administrator of the rules");
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
        // Return the same error for hidden and for absent datasets.
        let hidden = || DatasetError::NotFound { name: name.to_owned() };
        let canonical = self.catalog.canonical_name(name).map_err(|_| hidden())?;
        // The rules must decide about the samples of the dataset that is shown, so it is opened only once: the file may
        // be replaced between two attempts.
        let opened = OnceCell::new();
        let open = || opened.get_or_init(|| self.catalog.open(&canonical)).as_ref().ok().cloned();
        let rule = self.grants.deciding_rule(&canonical, &open).ok_or_else(hidden)?;
        let dataset =
            opened.into_inner().unwrap_or_else(|| self.catalog.open(&canonical)).map_err(|error| match error {
                DatasetError::NotFound { .. } => hidden(),
                error if rule.shows_everything() => error,
                _ => {
                    let problem = format!("the server cannot open {name}; ask its administrator for the cause");
                    DatasetError::Local(problem.into())
                }
            })?;
        let view = match &rule.grouping {
            Some(groups) => GroupedDataset::open(&canonical, dataset, rule, groups, &self.grants),
            None => DatasetView::open(&canonical, dataset, rule, &self.grants),
        }?;
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
