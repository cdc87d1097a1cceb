//! The directory that contains a file.

use std::path::Path;

/// Returns the directory that contains a file; `.` if the path has only one component.
pub(crate) fn parent_directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
