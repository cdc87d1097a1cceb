//! An S3 server that nobody here wrote: versitygw, which keeps objects as files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::patience::wait_for;
use crate::scratch;
use crate::tool::succeed;

/// Who may do everything.
const KEY: &str = "AKIDTEST";
/// Must appear nowhere.
pub const SECRET: &str = "a-secret-that-is-not-told";
/// How often a port is taken by another in the moment between.
const ATTEMPTS: usize = 20;

/// Where `tests/tools/s3/fetch.sh` puts the server.
pub fn program() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"));
    cache.join("godwit/versitygw-1.8.0/versitygw")
}

/// The server at work. Dropping it kills it.
#[derive(Debug)]
pub struct S3 {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub endpoint: String,
}

impl S3 {
    /// Starts a server without buckets.
    ///
    /// # Panics
    /// When it does not get ready.
    pub fn start(label: &str) -> Self {
        let directory = scratch::directory(label);
        let [objects, sidecar] = ["objects", "sidecar"].map(|name| directory.join(name));
        for made in [&objects, &sidecar] {
            fs::create_dir_all(made).expect("it can be made");
        }
        for _ in 0..ATTEMPTS {
            let address = free_address();
            let mut command = Command::new(program());
            command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
            command.args(["--port", &address, "--quiet"]);
            command.arg("posix").arg("--sidecar").arg(&sidecar).arg(&objects);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("it can be started");
            let ready = wait_for("the S3 server", || match child.try_wait().expect("it can be asked") {
                Some(_) => Some(false),
                None => TcpStream::connect(&address).ok().map(|_| true),
            });
            if ready {
                return Self { child, endpoint: format!("http://{address}") };
            }
        }
        panic!("the S3 server found no port");
    }

    /// What godwit finds it by.
    pub fn settings(&self) -> [(&str, &str); 5] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ]
    }

    fn curl(&self, words: &[&str], path: &str) {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail-with-body", "--aws-sigv4", "aws:amz:us-east-1:s3"]);
        command.args(["--user", &format!("{KEY}:{SECRET}"), "--header", "x-amz-content-sha256:UNSIGNED-PAYLOAD"]);
        succeed(command.args(words).arg(format!("{}/{path}", self.endpoint)));
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// When it is refused.
    pub fn make_bucket(&self, bucket: &str) {
        self.curl(&["--request", "PUT"], bucket);
    }

    /// Lets anybody list and read a bucket.
    ///
    /// # Panics
    /// When it is refused.
    pub fn make_public(&self, bucket: &str) {
        let policy = format!(
            "{{\"Version\":\"2012-10-17\",\"Statement\":[{{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":[\"s3:GetObject\",\
             \"s3:ListBucket\"],\"Resource\":[\"arn:aws:s3:::{bucket}\",\"arn:aws:s3:::{bucket}/*\"]}}]}}"
        );
        self.curl(&["--request", "PUT", "--data-binary", &policy], &format!("{bucket}?policy="));
    }

    /// Puts a file.
    ///
    /// # Panics
    /// When it is refused.
    pub fn put(&self, file: &Path, key: &str) {
        let key = key.replace('%', "%25").replace(' ', "%20").replace('&', "%26");
        self.curl(&["--upload-file", file.to_str().expect("scratch paths are text")], &key);
    }

    /// Puts all files below a directory, but for what is hidden.
    ///
    /// # Panics
    /// When one is refused.
    pub fn put_all(&self, directory: &Path, prefix: &str) {
        for name in scratch::names(directory).iter().filter(|name| !name.starts_with('.')) {
            let (path, key) = (directory.join(name), format!("{prefix}/{name}"));
            if path.is_dir() { self.put_all(&path, &key) } else { self.put(&path, &key) }
        }
    }

    /// Another way to it, on which the bytes of its answers are counted: the endpoint, and the count.
    ///
    /// # Panics
    /// When there is no port.
    pub fn counted(&self) -> (String, Arc<AtomicU64>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it has an address"));
        let server = self.endpoint.trim_start_matches("http://").to_owned();
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (Ok(mut asked), Ok(mut asks)) = (server.try_clone(), client.try_clone()) else { continue };
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut asks, &mut asked);
                    let _ = asked.shutdown(Shutdown::Write);
                });
                let count = counted.clone();
                std::thread::spawn(move || pass_on(server, client, &count));
            }
        });
        (endpoint, count)
    }
}

/// Passes answers on, counting their bytes before anybody has them.
fn pass_on(mut server: TcpStream, mut client: TcpStream, count: &AtomicU64) {
    let mut space = [0; 1 << 14];
    while let Ok(bytes @ 1..) = server.read(&mut space) {
        count.fetch_add(bytes as u64, Ordering::SeqCst);
        if client.write_all(&space[..bytes]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address where nobody listens, a moment ago.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address").to_string()
}
