//! An sshd for tests with its own port and keys. It accepts only the current user.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::scratch;
use crate::tool::{Tool, run_checked};
use crate::wait::wait_for;

/// A running sshd. Dropping it kills the process and every connection.
pub struct SshServer {
    daemon: Child,
    directory: PathBuf,
}

/// Reports whether sshd can be started on this machine.
pub fn is_installed() -> bool {
    sshd_path().exists() && Tool::find("ssh").is_some() && Tool::find("ssh-keygen").is_some()
}

/// Returns the full path of sshd, because sshd refuses to start without it.
fn sshd_path() -> PathBuf {
    PathBuf::from("/usr/sbin/sshd")
}

impl SshServer {
    /// Starts a server, and writes a configuration for ssh in which the hosts `near` and `far` are both this server.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start() -> Self {
        // Try several times: another process may have taken the free port before sshd listens on it.
        (0..10).find_map(|_| Self::try_start()).expect("sshd starts and listens")
    }

    fn try_start() -> Option<Self> {
        let directory = scratch::directory("sshd");
        // If sshd runs as root, its unprivileged process uses this empty directory, which packages of sshd create at
        // boot.
        let _ = fs::DirBuilder::new().mode(0o755).create("/run/sshd");
        for key in ["host", "user"] {
            let path = directory.join(key);
            run_checked(Tool::require("ssh-keygen").command().args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path));
        }
        fs::copy(directory.join("user.pub"), directory.join("authorized")).expect("it can be copied");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it has an address").port();
        drop(listener);
        let shown = directory.display();
        let server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/authorized\n\
             PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\n"
        );
        fs::write(directory.join("sshd_config"), server).expect("it can be written");
        let client = format!(
            "Host near far\n HostName 127.0.0.1\n Port {port}\n IdentityFile {shown}/user\n IdentitiesOnly yes\n\
             \x20UserKnownHostsFile {shown}/known\n StrictHostKeyChecking accept-new\n LogLevel ERROR\n"
        );
        fs::write(directory.join("ssh_config"), client).expect("it can be written");
        let log = fs::File::create(directory.join("log")).expect("it can be made");
        let daemon = Command::new(sshd_path())
            .arg("-De")
            .arg("-f")
            .arg(directory.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("sshd can be started");
        let mut server = Self { daemon, directory };
        let listens = wait_for("sshd to listen", || match server.daemon.try_wait() {
            Ok(None) => TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(true),
            _ => Some(false),
        });
        listens.then_some(server)
    }

    /// Returns the configuration for ssh, to be passed with `-F`.
    pub fn client_configuration(&self) -> PathBuf {
        self.directory.join("ssh_config")
    }

    /// Returns a directory for the test's own files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        // Ignore errors: both calls fail only if the process has already exited.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
