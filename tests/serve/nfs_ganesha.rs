//! nfs-ganesha, another server of NFS, with which the failover of clients is compared. It serves file systems that have file handles
//! (open_by_handle_at(2)), so the target directory must not be on an overlay.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use godwit_tests::network_namespace::NetworkNamespace;

/// Port at which nfs-ganesha answers the procedures of MOUNT. It cannot be the port of NFS.
pub(super) const MOUNT_PORT: u16 = 20_048;

/// A running nfs-ganesha, and the rpcbind that it needs to start. Dropping it kills both.
pub(super) struct Ganesha {
    server: Child,
    rpcbind: Child,
}

impl Ganesha {
    /// Starts a server of a directory, which clients mount as `/run7`, at the port 2049 of a host. `state` is a directory for its
    /// files. The server may not be ready yet.
    ///
    /// # Panics
    /// When it cannot be started.
    pub(super) fn start(host: &NetworkNamespace, served: &Path, state: &Path) -> Self {
        fs::create_dir_all(state).expect("it can be made");
        let configuration = format!(
            "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = 2049; MNT_Port = {MOUNT_PORT}; Mount_Path_Pseudo = true;\n\
             Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;\n\
             Plugins_Dir = \"/usr/lib/x86_64-linux-gnu/ganesha\"; }}\n\
             NFSV4 {{ Graceless = true; }}\n\
             EXPORT {{ Export_Id = 1; Path = \"{}\"; Pseudo = \"/run7\"; Protocols = 3; Transports = TCP;\n\
             Access_Type = RW; Squash = None; FSAL {{ Name = VFS; }} }}\n",
            served.display()
        );
        let file = state.join("ganesha.conf");
        fs::write(&file, configuration).expect("it can be written");
        // It accepts registrations over the loopback interface, because the programs do not share its socket below /run.
        let rpcbind = with_own_run_directory(host, "rpcbind -f -i");
        let mut server = with_own_run_directory(host, "ganesha.nfsd -F -f \"$1\" -L \"$2\" -p \"$3\"");
        server.arg("ganesha").arg(&file).args([state.join("log"), state.join("pid")]);
        let [rpcbind, server] = [rpcbind, server].map(|mut command| command.spawn().expect("it can be started"));
        Self { server, rpcbind }
    }

    /// Returns the process id of the server.
    pub(super) fn process_id(&self) -> u32 {
        self.server.id()
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        for process in [&mut self.server, &mut self.rpcbind] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Returns a command that runs a line of the shell, its last program, on a host, with an empty `/run`: the processes of the hosts
/// use the same names there.
fn with_own_run_directory(host: &NetworkNamespace, line: &str) -> Command {
    let mut command = host.command("sh");
    command.arg("-c").arg(format!("mount -t tmpfs tmpfs /run && exec {line}"));
    command
}
