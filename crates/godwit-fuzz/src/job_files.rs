//! Fuzz targets for the manifest that a job writes beside its outputs, and for the journal from which a job resumes.

use std::fs;
use std::sync::atomic::AtomicBool;

use godwit_pipeline::fuzz_targets::resume_job_directory;
use godwit_pipeline::verify;

use crate::input_files::{ScratchDirectory, compress_bgzf, split_parts};

/// Verifies a manifest, which may list the files `x.bam`, `y` and `d/z`; the second part of the input is their content.
pub(crate) fn manifest(bytes: &[u8]) {
    let [manifest, file] = split_parts(bytes);
    let scratch = ScratchDirectory::for_this_thread();
    scratch.write("x.manifest.json", manifest);
    scratch.write("x.bam", &compress_bgzf(file));
    scratch.write("y", file);
    fs::create_dir_all(scratch.path("d")).expect("a directory can be made");
    scratch.write("d/z", file);
    for name in ["", "x.bam", "x.manifest.json"] {
        let _ = verify(&scratch.path(name), 1, &AtomicBool::new(false));
    }
}

/// Resumes from a job directory. The four parts of the input are the journal (without checksums), the blocks, the parts
/// and the windows. Checks that files outside of the directory are unchanged.
pub(crate) fn journal(bytes: &[u8]) {
    let [lines, blocks, kept, windows] = split_parts(bytes);
    let scratch = ScratchDirectory::for_this_thread();
    let before = "what lies beside it stays";
    scratch.write("beside", before.as_bytes());
    let out = scratch.path("out");
    let _ = resume_job_directory(&out, lines, blocks, kept, windows);
    let _ = fs::remove_dir_all(&out);
    let after = fs::read(scratch.path("beside"));
    assert!(after.is_ok_and(|after| after == before.as_bytes()), "something outside of the run was touched");
}
