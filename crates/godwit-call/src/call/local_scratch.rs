//! The directory of callers' scratch files: a local one for callers whose databases are slow or fail on network file
//! systems.

use std::env;
use std::path::{Path, PathBuf};

use godwit_engines::caller::Capabilities;

/// Type of a file system in memory, as statfs(2) reports it: databases in it would count as used memory.
const TMPFS: u32 = 0x0102_1994;

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
        None if capabilities.needs_local_scratch => {
            let local = env::temp_dir();
            is_better_scratch(file_system_type(&local), file_system_type(shared)).then_some(local)
        }
        None => None,
    }
}

/// Returns whether a local disk can replace a network file system. `None` is the type of a directory that is missing.
fn is_better_scratch(local: Option<u32>, shared: Option<u32>) -> bool {
    let is_network = |kind: u32| NETWORK_FILE_SYSTEMS.contains(&kind);
    shared.is_some_and(is_network) && local.is_some_and(|kind| !is_network(kind) && kind != TMPFS)
}

fn file_system_type(path: &Path) -> Option<u32> {
    // The type has 32 bits in all file systems of the list; the sign of the platform's integer is not part of it.
    rustix::fs::statfs(path).ok().map(|found| found.f_type as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_network_directory_is_replaced_and_only_by_a_local_disk() {
        let (nfs, ext4, procfs) = (Some(0x6969), Some(0xEF53), file_system_type(Path::new("/proc")));
        assert!(is_better_scratch(ext4, nfs));
        for (local, shared) in [(nfs, nfs), (Some(TMPFS), nfs), (None, nfs), (ext4, ext4), (ext4, procfs), (ext4, None)]
        {
            assert!(!is_better_scratch(local, shared), "{local:?} in place of {shared:?}");
        }
        assert_eq!(file_system_type(Path::new("/no/such/directory")), None);
    }
}
