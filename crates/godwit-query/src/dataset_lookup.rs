//! Finds the dataset that a table name of a statement refers to.

use std::sync::Arc;

use godwit_dataset::{Catalog, Dataset, DatasetError};

/// Finds a dataset by its name. Also accepts the file name without directories and suffixes if only one dataset
/// matches. Returns the complete name and the dataset.
///
/// # Errors
/// [`DatasetError::NotFound`] if no dataset matches; [`DatasetError::InvalidRequest`] if several do; other variants if
/// the datasets cannot be listed or opened.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use godwit_dataset::{Catalog, Dataset, DatasetError};
/// use godwit_query::find_dataset;
///
/// # #[derive(Debug)]
/// # struct NoDatasets;
/// # impl Catalog for NoDatasets {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(Vec::new())
/// #     }
/// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Err(DatasetError::NotFound { name: name.to_owned() })
/// #     }
/// # }
/// assert!(matches!(find_dataset(&NoDatasets, "genes"), Err(DatasetError::NotFound { name }) if name == "genes"));
/// ```
pub fn find_dataset(catalog: &dyn Catalog, name: &str) -> Result<(String, Arc<dyn Dataset>), DatasetError> {
    match catalog.open(name) {
        Ok(dataset) => Ok((name.to_owned(), dataset)),
        Err(DatasetError::NotFound { .. }) => {
            let mut names = catalog.names()?;
            names.retain(|found| dataset_stem(found) == name);
            match &names[..] {
                [one] => Ok((one.clone(), catalog.open(one)?)),
                [] => Err(DatasetError::NotFound { name: name.to_owned() }),
                several => Err(DatasetError::InvalidRequest {
                    problem: format!(
                        "{name} may be any of {}; write the path, in double quotes",
                        several.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
                    ),
                }),
            }
        }
        Err(error) => Err(error),
    }
}

/// Returns the name of a dataset without directories and file name suffixes.
fn dataset_stem(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.split('.').next().unwrap_or(file)
}
