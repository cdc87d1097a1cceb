//! A data server of godwit that a test connects to.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;

use crate::binary;
use crate::scratch;

/// Returns a loopback host, as `127.A.B.C`, that no other server of this process has.
///
/// A test that stops a server and starts it again, or expects its port to be closed, gives it such a host. On one host, a server
/// that another test starts could get the port in between.
///
/// # Panics
/// After 64,000 hosts.
pub fn own_loopback_host() -> String {
    static HOSTS: AtomicU16 = AtomicU16::new(0);
    let number = HOSTS.fetch_add(1, Ordering::Relaxed);
    assert!(number < 64_000, "too many servers have a host of their own");
    // Processes that run at the same time have different numbers.
    let high = 100 + std::process::id() % 150;
    format!("127.{high}.{}.{}", number / 250, 1 + number % 250)
}

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub struct DataServer {
    child: Child,
    /// The address, as `127.A.B.C:PORT`.
    pub address: String,
    /// The line that the server printed when it was ready.
    pub ready_line: String,
    /// The thread that collects the server's standard error.
    stderr_reader: Option<JoinHandle<String>>,
}

impl DataServer {
    /// Starts a server of a directory on a free port that the server chooses.
    ///
    /// # Panics
    /// When the server does not get ready.
    pub fn start(root: &Path, words: &[&str]) -> Self {
        Self::start_at(root, "127.0.0.1:0", words)
    }

    /// Starts a server that a test stops, on a loopback host of its own, so that it can be started again at its address.
    ///
    /// # Panics
    /// When the server does not get ready.
    pub fn start_restartable(root: &Path, words: &[&str]) -> Self {
        Self::start_at(root, &format!("{}:0", own_loopback_host()), words)
    }

    /// Starts a server of a directory at an address.
    ///
    /// # Panics
    /// When the server does not get ready.
    pub fn start_at(root: &Path, address: &str, words: &[&str]) -> Self {
        Self::start_with(root, address, words, &[])
    }

    /// Starts a server of a directory at an address, with environment variables.
    ///
    /// # Panics
    /// When the server does not get ready.
    pub fn start_with(root: &Path, address: &str, words: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary::path());
        command.envs(settings.iter().copied());
        Self::start_command(command, root, address, words)
    }

    /// Starts a server of a directory at an address, by a command line that ends with the program.
    ///
    /// # Panics
    /// When the server does not get ready.
    pub fn start_command(mut command: Command, root: &Path, address: &str, words: &[&str]) -> Self {
        command.env("XDG_CONFIG_HOME", scratch::root().join("no-configuration"));
        command.arg("serve").arg("--root").arg(root).args(["--listen", address]).args(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("godwit can be started");
        let mut ready_line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let read = BufReader::new(stdout).read_line(&mut ready_line);
        let address = ready_line.trim_end().rsplit("://").next().filter(|_| ready_line.contains("://"));
        let Some(address) = address.map(str::to_owned) else {
            let _ = child.kill();
            let said = read_stderr(&mut child).join().expect("it can be read");
            panic!("the server did not get ready: {read:?}, {ready_line:?}, {said}");
        };
        let stderr_reader = Some(read_stderr(&mut child));
        Self { child, address, ready_line, stderr_reader }
    }

    /// Returns the process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, waits until the server exits, and returns its exit code and its standard error.
    ///
    /// # Panics
    /// When waiting for it fails.
    pub fn stop(mut self, signal: i32) -> (Option<i32>, String) {
        crate::processes::send_signal(self.child.id(), signal);
        let said = self.stderr_reader.take().map(|said| said.join().expect("it can be read"));
        let status = self.child.wait().expect("it can be waited for");
        (status.code(), said.unwrap_or_default())
    }
}

/// Starts a thread that reads the standard error of a server until it exits. A full pipe would block the server.
fn read_stderr(child: &mut Child) -> JoinHandle<String> {
    let stderr = child.stderr.take().expect("it is piped");
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = BufReader::new(stderr).read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    })
}

impl Drop for DataServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
