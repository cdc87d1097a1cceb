//! Inputs of `godwit run` that are on servers: mounts them below the scratch directory of this host, so that all programs of
//! the workflow read them by path.
//!
//! Each server has a process that mounts it (`godwit mount --foreground`). It is another process than the one that reads the
//! files, because a process that waits for its own mount cannot be killed. The mounts are read-only. Reads of samples are
//! not mounted but fetched (`remote_file_transfer`), because they are read once, from the beginning to the end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use godwit_cli::cli::{AccessArgs, CommonArgs, RunArgs};
use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use godwit_pipeline::scratch::create_private_directory;
use godwit_transfer::location::{Location, RemoteLocation};
use godwit_transfer::path_text::text_to_path;

use super::mount::MountProcess;
use super::scratch_directory;

/// Prefix of the name of a directory with mounts.
const DIRECTORY_PREFIX: &str = ".godwit-inputs-";

/// The mounted servers of a run, or of the job of one sample. Dropping this value unmounts them.
pub struct MountedInputs {
    /// The directory of the mount points; `None` if no input is on a server.
    directory: Option<MountDirectory>,
    mounts: Vec<ServerMount>,
    /// Addresses of the inputs, by their paths on this host.
    addresses: BTreeMap<PathBuf, String>,
}

/// A mounted server or pool.
struct ServerMount {
    server_uri: String,
    mount_point: PathBuf,
    process: MountProcess,
}

/// The private directory of the mount points of one run or sample. Its path is always the same on a host, because some
/// programs write the path of the reference to the headers of their outputs.
struct MountDirectory {
    path: PathBuf,
    /// The open directory, whose lock shows other processes that the directory is in use.
    _lock: File,
}

/// The options of the run that concern mounts.
struct MountSettings<'a> {
    out: &'a Path,
    sample: Option<&'a str>,
    access: &'a AccessArgs,
    common: &'a CommonArgs,
}

impl MountedInputs {
    /// Mounts the servers of all inputs that are addresses, and replaces the addresses by paths.
    pub fn start(args: &mut RunArgs) -> Result<Self, Failure> {
        let mut inputs = Self { directory: None, mounts: Vec::new(), addresses: BTreeMap::new() };
        let RunArgs { reference, known_sites, resources, metrics, out, one_sample, access, common, .. } = args;
        let settings = MountSettings { out, sample: one_sample.as_deref(), access, common };
        let lists = &mut metrics.lists;
        let lists = [&mut lists.targets, &mut lists.baits, &mut lists.amplicons].into_iter().flatten();
        let resources = resources.snp_resource.iter_mut().chain(&mut resources.indel_resource);
        let resources = resources.map(|resource| &mut resource.path);
        for path in [reference].into_iter().chain(known_sites).chain(resources).chain(lists) {
            let Some(address) = path.to_str() else { continue };
            if let Location::Remote(remote) = Location::parse(address)? {
                let mounted = inputs.mount_file(address, &remote, &settings)?;
                inputs.addresses.insert(mounted.clone(), address.to_owned());
                *path = mounted;
            }
        }
        Ok(inputs)
    }

    /// Returns the addresses of the mounted inputs, by their paths on this host.
    pub fn addresses(&self) -> &BTreeMap<PathBuf, String> {
        &self.addresses
    }

    /// Returns the path of a file of a server, which is mounted unless it already is.
    fn mount_file(
        &mut self,
        address: &str,
        remote: &RemoteLocation,
        settings: &MountSettings<'_>,
    ) -> Result<PathBuf, Failure> {
        let is_file = |path: &PathBuf| {
            path.components().all(|component| matches!(component, Component::Normal(_))) && path.file_name().is_some()
        };
        let Some(file) = text_to_path(remote.path.trim_matches('/')).filter(is_file) else {
            let problem = "does not name a file; write godwit+pool://NAME/PATH or grpc+tls://HOST:PORT/PATH";
            return Err(Failure::new(ErrorKind::Usage, format!("{address} {problem}")));
        };
        let server_uri = remote.server_uri();
        if let Some(mount) = self.mounts.iter().find(|mount| mount.server_uri == server_uri) {
            return Ok(mount.mount_point.join(file));
        }
        let mount_point = self.create_mount_point(remote, settings)?;
        let process =
            MountProcess::start(&mount_arguments(&server_uri, &mount_point, settings)).map_err(|failure| {
                let Failure { kind, message } = failure;
                let _ = fs::remove_dir(&mount_point);
                let remedy = match kind {
                    ErrorKind::Machine => {
                        "; where files cannot be mounted, download them with `godwit copy` and pass their paths"
                    }
                    _ => "",
                };
                Failure::new(kind, format!("cannot mount {server_uri} to read {address}: {message}{remedy}"))
            })?;
        let path = mount_point.join(file);
        self.mounts.push(ServerMount { server_uri, mount_point, process });
        Ok(path)
    }

    fn create_mount_point(
        &mut self,
        remote: &RemoteLocation,
        settings: &MountSettings<'_>,
    ) -> Result<PathBuf, Failure> {
        let directory = match self.directory.take() {
            Some(directory) => directory,
            None => MountDirectory::create(settings)?,
        };
        // The colons of addresses separate paths in the options of some programs.
        let name = if remote.is_pool { remote.host.clone() } else { format!("{}-{}", remote.host, remote.port) };
        let mount_point = directory.path.join(name.replace(':', "_"));
        self.directory = Some(directory);
        create_private(&mount_point).map_err(|error| directory_failure(&mount_point, &error))?;
        Ok(mount_point)
    }
}

impl Drop for MountedInputs {
    fn drop(&mut self) {
        for ServerMount { mount_point, process, .. } in self.mounts.drain(..) {
            drop(process);
            // Only empty directories are removed, so that no file of a server can be.
            let _ = fs::remove_dir(mount_point);
        }
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir(&directory.path);
        }
    }
}

impl MountDirectory {
    fn create(settings: &MountSettings<'_>) -> Result<Self, Failure> {
        let scratch = scratch_directory(settings.common);
        let create = || -> io::Result<PathBuf> {
            create_private_directory(&scratch)?;
            let job = std::path::absolute(settings.out.join(settings.sample.unwrap_or_default()))?;
            let name = &blake3::hash(job.as_os_str().as_bytes()).to_hex()[..16];
            Ok(scratch.canonicalize()?.join(format!("{DIRECTORY_PREFIX}{name}")))
        };
        let path = create().map_err(|error| directory_failure(&scratch, &error))?;
        let lock = create_private(&path).and_then(|()| File::open(&path));
        let lock = lock.map_err(|error| directory_failure(&path, &error))?;
        // File systems without locks are accepted: two runs with the same output directory are rare.
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            let (path, out) = (path.display(), settings.out.display());
            let problem = format!("another godwit run with --out {out} uses {path}; wait until it has ended");
            return Err(Failure::new(ErrorKind::Machine, problem));
        }
        Ok(Self { path, _lock: lock })
    }
}

/// Creates a directory that only this user may access, unless it exists. In a directory that all users may change, another
/// user may have created it.
fn create_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Nothing can be called on a mount that an earlier process has left. Its removal is up to the next mount.
            let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
            match found.is_dir() && found.uid() == fs::metadata("/proc/self")?.uid() && found.mode() & 0o077 == 0 {
                true => Ok(()),
                false => {
                    Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a private directory of this user"))
                }
            }
        }
        created => created,
    }
}

fn directory_failure(path: &Path, error: &io::Error) -> Failure {
    let problem = format!("cannot create {}: {error}; pass another --temp", path.display());
    Failure::new(ErrorKind::Machine, problem)
}

/// Returns the arguments of `godwit mount` for a server.
fn mount_arguments(server_uri: &str, mount_point: &Path, settings: &MountSettings<'_>) -> Vec<OsString> {
    let MountSettings { access, common, .. } = settings;
    let mut arguments: Vec<OsString> = ["--read-only", "--no-config", "--temp"].map(OsString::from).to_vec();
    arguments.push(scratch_directory(common).into());
    arguments.extend(["--threads".into(), common.thread_count().to_string().into()]);
    arguments.extend(["--wait".into(), format!("{}s", access.wait.as_secs()).into()]);
    let files = [
        ("--pool", &access.pool),
        ("--token-file", &access.token_file),
        ("--ca", &access.ca),
        ("--client-cert", &access.client_cert),
        ("--client-key", &access.client_key),
    ];
    for (option, path) in files {
        arguments.extend(path.iter().flat_map(|path| [option.into(), path.into()]));
    }
    arguments.extend(common.json.then(|| "--json".into()));
    arguments.extend(common.quiet.then(|| "--quiet".into()));
    arguments.extend(["--".into(), server_uri.into(), mount_point.into()]);
    arguments
}
