//! HTTP clients of the tests: curl, and clients in Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use serde_json::Value;

use crate::run::formats::python_with;

/// An HTTP response.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    /// The headers, each with its name in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl HttpResponse {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the HTTP status and the error name of an htsget error.
    pub fn htsget_error(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let message = body["htsget"]["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty(), "an error says what is wrong: {self:?}");
        format!("{} {}", self.status, body["htsget"]["error"].as_str().unwrap_or("no error"))
    }
}

/// Sends a request with curl.
pub fn curl(url: &str, words: &[&str]) -> HttpResponse {
    let mut command = Tool::require("curl").command();
    // Remove the header `Expect`, because with `Expect: 100-continue` the server would send two responses.
    command
        .args(["--silent", "--show-error", "--include", "--max-time", "60", "--header", "expect:"])
        .args(words)
        .arg(url);
    let told = String::from_utf8(run_checked(&mut command).stdout).expect("it is text");
    let (head, body) = told.split_once("\r\n\r\n").unwrap_or((&told, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    HttpResponse { status: status.unwrap_or_else(|| panic!("no status: {told}")), headers, body: body.to_owned() }
}

/// Sends a GET request to a server without TLS.
pub fn get(served: &DataServer, path: &str, words: &[&str]) -> HttpResponse {
    curl(&format!("http://{}{path}", served.address), words)
}

/// Returns the Python with the clients.
pub fn python_command() -> Command {
    let mut command = python_with("web").expect("tools/python-packages.sh made it").command();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/web/web_clients.py"));
    command
}

/// Runs the Python script with HTTP clients and returns its output.
pub fn python_output(words: &[&str]) -> String {
    let told = run_checked(python_command().args(words)).stdout;
    String::from_utf8(told).expect("it prints text").trim_end().to_owned()
}

/// Returns the `sh` blocks of a page of the guide.
pub fn shell_blocks(page: &str) -> Vec<String> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide").join(page);
    let text = std::fs::read_to_string(path).expect("the page is there");
    text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// Runs each `sh` block of a page of the guide in a directory, against a server.
///
/// # Panics
/// When one fails or prints nothing, or the page has none.
pub fn run_guide_page(page: &str, served: &DataServer, directory: &Path) {
    let blocks = shell_blocks(page);
    assert!(!blocks.is_empty(), "the page has lost its commands");
    let python = Path::new(python_command().get_program()).parent().expect("it is in a directory").to_owned();
    let path = format!("{}:{}", python.display(), std::env::var("PATH").unwrap_or_default());
    for block in blocks {
        let block = block.replace("127.0.0.1:8815", &served.address);
        let mut command: Command = Tool::require("bash").command();
        let told =
            run_checked(command.args(["-euo", "pipefail", "-c", &block]).current_dir(directory).env("PATH", &path));
        assert!(!told.stdout.is_empty(), "{block} prints nothing");
    }
}
