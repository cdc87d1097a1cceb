//! The JSON command by which a client requests a dataset.

use serde::{Deserialize, Serialize};

use crate::dataset::WriteMode;

/// A request for a dataset, as the JSON of a descriptor's command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetCommand {
    /// Its name.
    pub dataset: String,
    /// Names of columns; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Regions in the format of samtools; absent: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<String>>,
    /// Most parts that it is split into; absent: the server decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "parts")]
    pub max_parts: Option<usize>,
    /// For an upload: the handling of an existing dataset of that name; absent: none may exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "put")]
    pub write_mode: Option<WriteMode>,
    /// For an upload: whether it is kept in memory and removed when the server stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
    /// For an upload: its unique identifier, hexadecimal digits. A repeated upload is stored once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "upload")]
    pub upload_id: Option<String>,
}
