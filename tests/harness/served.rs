//! A server of godwit that a test talks to.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use crate::binary;
use crate::scratch;

/// A server at work. Dropping it kills it.
#[derive(Debug)]
pub struct Served {
    child: Child,
    /// Where it is, as `127.0.0.1:PORT`.
    pub address: String,
    /// What it said when it was ready.
    pub greeting: String,
    /// What it says on its standard error.
    said: Option<JoinHandle<String>>,
}

impl Served {
    /// Serves a directory on a port of the server's choice.
    ///
    /// # Panics
    /// When the server does not get ready.
    pub fn start(root: &Path, words: &[&str]) -> Self {
        Self::start_at(root, "127.0.0.1:0", words)
    }

    /// The same, at an address.
    ///
    /// # Panics
    /// When the server does not get ready.
    pub fn start_at(root: &Path, address: &str, words: &[&str]) -> Self {
        Self::start_with(root, address, words, &[])
    }

    /// The same, with variables of the environment.
    ///
    /// # Panics
    /// When the server does not get ready.
    pub fn start_with(root: &Path, address: &str, words: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary::path());
        command.envs(settings.iter().copied());
        command.env("XDG_CONFIG_HOME", scratch::root().join("no-configuration"));
        command.arg("serve").arg("--root").arg(root).args(["--listen", address]).args(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("godwit can be started");
        let mut greeting = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let read = BufReader::new(stdout).read_line(&mut greeting);
        let address = greeting.trim_end().rsplit("://").next().filter(|_| greeting.contains("://"));
        let Some(address) = address.map(str::to_owned) else {
            let _ = child.kill();
            let said = heard(&mut child).join().expect("it can be read");
            panic!("the server did not get ready: {read:?}, {greeting:?}, {said}");
        };
        let said = Some(heard(&mut child));
        Self { child, address, greeting, said }
    }

    /// The process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end after a signal: its exit code, and what it said.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn end(mut self, signal: i32) -> (Option<i32>, String) {
        crate::processes::signal(self.child.id(), signal);
        let said = self.said.take().map(|said| said.join().expect("it can be read"));
        let status = self.child.wait().expect("it can be waited for");
        (status.code(), said.unwrap_or_default())
    }
}

/// What a server says on its standard error, to its end. It is read all the while: a pipe that is full would stop the server.
fn heard(child: &mut Child) -> JoinHandle<String> {
    let stderr = child.stderr.take().expect("it is piped");
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = BufReader::new(stderr).read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    })
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
