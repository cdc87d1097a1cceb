//! Reporting of tests that cannot run on this machine. In CI, only tests listed in `skips.toml` may be skipped.
//!
//! A skip has an id and a detail: `skip!("shared-data", "no {}", path.display())`. The line `SKIPPED: id: detail` is
//! written to stderr past libtest's capture, so that a passing run shows it too.

use std::io::Write;
use std::path::PathBuf;

/// Reports that the calling test is skipped, and returns from it.
///
/// With the environment variable `CI` set to `true`, a skip whose id is not listed in `tests/skips.toml` panics.
#[macro_export]
macro_rules! skip {
    ($id:literal, $($detail:tt)+) => {{
        $crate::skip::report_skip($id, &format!($($detail)+));
        return;
    }};
}

/// Skips the calling test when one of the named programs is not on `PATH`.
#[macro_export]
macro_rules! needs {
    ($($tool:literal),+) => {
        $(
            if $crate::tool::Tool::find($tool).is_none() {
                $crate::skip!("missing-tool", "{} is not on PATH", $tool);
            }
        )+
    };
}

/// Writes the line that reports a skipped test; see [`skip!`].
///
/// # Panics
/// In CI, when the id is not listed.
pub fn report_skip(id: &str, detail: &str) {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(
        !in_ci || is_listed(&skip_list_text(), id),
        "this test would be skipped ({id}: {detail}), and {id} is not listed in {}",
        skip_list_path().display()
    );
    // Write the line with one call, so that lines of parallel tests do not mix. Ignore the error, because a skipped
    // test must not fail if stderr is closed.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {id}: {detail}\n").as_bytes());
}

fn skip_list_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("skips.toml")
}

fn skip_list_text() -> String {
    std::fs::read_to_string(skip_list_path()).unwrap_or_default()
}

/// Reports whether `text`, in the one form of the list (`id = "reason"` lines under `[allowed]`), lists `id` with a
/// reason.
pub fn is_listed(text: &str, id: &str) -> bool {
    text.lines().map(str::trim).filter(|line| !line.starts_with('#')).any(|line| {
        line.split_once('=').is_some_and(|(key, reason)| {
            key.trim() == id
                && reason.trim().len() > 2
                && reason.trim().starts_with('"')
                && reason.trim().ends_with('"')
        })
    })
}
