//! How a client asks for a dataset in JSON.

use serde::{Deserialize, Serialize};

use crate::dataset::Existing;

/// What may be asked of a dataset, as the JSON of a descriptor's command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetCommand {
    /// Its name.
    pub dataset: String,
    /// Names of columns; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Regions as samtools writes them; absent for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<String>>,
    /// Most parts it is cut into; absent for what the server thinks right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<usize>,
    /// For an upload: what becomes of a dataset of that name; absent where there must be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put: Option<Existing>,
    /// For an upload: whether it is kept in memory, and gone with the server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
    /// For an upload: a name of it that no other upload has, hexadecimal digits. What is put again under the same one is kept once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
}
