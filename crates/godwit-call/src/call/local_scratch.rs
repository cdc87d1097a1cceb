//! The directory of callers' scratch files: a local one for callers whose databases are slow or fail on network file
//! systems.

use std::env;
use std::path::{Path, PathBuf};

use godwit_engines::caller::Capabilities;

/// Types of network file systems, as statfs(2) reports them (`linux/magic.h` and the sources of the file systems): NFS, SMB, CIFS, SMB2,
/// Lustre, GPFS, BeeGFS, Ceph, AFS, 9P, PanFS, OCFS2, GFS2, and FUSE, on which sshfs, GlusterFS and object stores are mounted.
const NETWORK_FILE_SYSTEMS: [u32; 14] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x0BD0_0BD0,
    0x4750_4653,
    0x1983_0326,
    0x00C3_6400,
    0x5346_414F,
    0x0102_1997,
    0xAAD7_AAEA,
    0x7461_636F,
    0x0116_1970,
    0x6573_5546,
];

/// Returns the directory in which scratch files of a caller are created; `None` for the job directory, which is on the file
/// system of `shared`. `temp` is the directory that the user gave.
pub(super) fn scratch_parent(temp: Option<&Path>, shared: &Path, capabilities: &Capabilities) -> Option<PathBuf> {
    match temp {
        Some(temp) => Some(temp.to_owned()),
        None if capabilities.needs_local_scratch => local_replacement(shared, env::temp_dir(), is_on_network),
        None => None,
    }
}

/// Returns `local` if only `shared` is on a network file system.
fn local_replacement(shared: &Path, local: PathBuf, is_on_network: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    (is_on_network(shared) && !is_on_network(&local)).then_some(local)
}

/// Returns whether a path is on a network file system; false if the type of the file system is unknown.
fn is_on_network(path: &Path) -> bool {
    // The type has 32 bits in all file systems of the list; the sign of the platform's integer is not part of it.
    let is_listed = |found: rustix::fs::StatFs| NETWORK_FILE_SYSTEMS.contains(&(found.f_type as u32));
    rustix::fs::statfs(path).is_ok_and(is_listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_network_directory_is_replaced_and_only_by_a_local_one() {
        let (shared, local) = (Path::new("/shared/out"), Path::new("/tmp"));
        let on = |network: &'static [&'static str]| {
            local_replacement(shared, local.to_owned(), |path| network.iter().any(|root| path.starts_with(root)))
        };
        assert_eq!(on(&["/shared"]), Some(local.to_owned()));
        assert_eq!(on(&["/shared", "/tmp"]), None);
        assert_eq!(on(&[]), None);
    }

    #[test]
    fn file_systems_of_the_kernel_are_not_network_file_systems() {
        assert!(!is_on_network(Path::new("/proc")));
        assert!(!is_on_network(Path::new("/no/such/directory")));
    }
}
