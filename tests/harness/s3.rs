//! An S3 server for tests: versitygw, an independent program that stores objects as files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::scratch;
use crate::tool::run_checked;
use crate::wait::wait_for;

/// The access key of the user who is authorized to do everything.
const ACCESS_KEY_ID: &str = "AKIDTEST";
/// The secret key, which must not appear in any output.
pub const SECRET_ACCESS_KEY: &str = "a-secret-that-is-not-told";
/// The number of attempts to find a free port: another process may take the port before the server listens on it.
const MAX_PORT_ATTEMPTS: usize = 20;

/// Returns the path at which `tests/tools/s3/fetch.sh` puts the server.
pub fn server_path() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"));
    cache.join("godwit/versitygw-1.8.0/versitygw")
}

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub struct S3Server {
    child: Child,
    /// The endpoint, as `http://127.0.0.1:PORT`.
    pub endpoint: String,
}

impl S3Server {
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
        for _ in 0..MAX_PORT_ATTEMPTS {
            let address = unused_address();
            let mut command = Command::new(server_path());
            command.env("ROOT_ACCESS_KEY", ACCESS_KEY_ID).env("ROOT_SECRET_KEY", SECRET_ACCESS_KEY);
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

    /// Returns the environment variables by which godwit finds and uses the server.
    pub fn environment(&self) -> [(&str, &str); 5] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY),
        ]
    }

    fn curl(&self, words: &[&str], path: &str) {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail-with-body", "--aws-sigv4", "aws:amz:us-east-1:s3"]);
        command.args([
            "--user",
            &format!("{ACCESS_KEY_ID}:{SECRET_ACCESS_KEY}"),
            "--header",
            "x-amz-content-sha256:UNSIGNED-PAYLOAD",
        ]);
        run_checked(command.args(words).arg(format!("{}/{path}", self.endpoint)));
    }

    /// Creates a bucket.
    ///
    /// # Panics
    /// When the server rejects the request.
    pub fn make_bucket(&self, bucket: &str) {
        self.curl(&["--request", "PUT"], bucket);
    }

    /// Permits all clients to list and read a bucket.
    ///
    /// # Panics
    /// When the server rejects the request.
    pub fn make_public(&self, bucket: &str) {
        let policy = format!(
            "{{\"Version\":\"2012-10-17\",\"Statement\":[{{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":[\"s3:GetObject\",\
             \"s3:ListBucket\"],\"Resource\":[\"arn:aws:s3:::{bucket}\",\"arn:aws:s3:::{bucket}/*\"]}}]}}"
        );
        self.curl(&["--request", "PUT", "--data-binary", &policy], &format!("{bucket}?policy="));
    }

    /// Uploads a file.
    ///
    /// # Panics
    /// When the server rejects it.
    pub fn upload(&self, file: &Path, key: &str) {
        let key = key.replace('%', "%25").replace(' ', "%20").replace('&', "%26");
        self.curl(&["--upload-file", file.to_str().expect("scratch paths are text")], &key);
    }

    /// Uploads all files below a directory, except hidden ones.
    ///
    /// # Panics
    /// When the server rejects one.
    pub fn upload_directory(&self, directory: &Path, prefix: &str) {
        for name in scratch::entry_names(directory).iter().filter(|name| !name.starts_with('.')) {
            let (path, key) = (directory.join(name), format!("{prefix}/{name}"));
            if path.is_dir() { self.upload_directory(&path, &key) } else { self.upload(&path, &key) }
        }
    }

    /// Starts a proxy of the server that counts the bytes of responses, and returns its endpoint and the count.
    ///
    /// # Panics
    /// When no port is free.
    pub fn counting_proxy(&self) -> (String, Arc<AtomicU64>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it has an address"));
        let server = self.endpoint.trim_start_matches("http://").to_owned();
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        // The thread of the test server runs until the process of the tests exits.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (Ok(mut asked), Ok(mut asks)) = (server.try_clone(), client.try_clone()) else { continue };
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut asks, &mut asked);
                    let _ = asked.shutdown(Shutdown::Write);
                });
                let count = counted.clone();
                std::thread::spawn(move || forward_counted(server, client, &count));
            }
        });
        (endpoint, count)
    }
}

/// Forwards responses, and counts their bytes before the client receives them.
fn forward_counted(mut server: TcpStream, mut client: TcpStream, count: &AtomicU64) {
    let mut space = [0; 1 << 14];
    while let Ok(bytes @ 1..) = server.read(&mut space) {
        count.fetch_add(bytes as u64, Ordering::SeqCst);
        if client.write_all(&space[..bytes]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address on which no process listens. Another process may take it before the caller does.
pub fn unused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address").to_string()
}
