//! What a run leaves beside its outputs, and what it goes on with.

use std::fs;
use std::sync::atomic::AtomicBool;

use godwit_pipeline::outside_bytes::take_over;
use godwit_pipeline::verify;

use crate::file::{Scratch, bgzf, parts};

/// A manifest, and the file `x.bam` that it may name; the other names that it may know are `y` and `d/z`.
pub(crate) fn manifest(bytes: &[u8]) {
    let [manifest, file] = parts(bytes);
    let scratch = Scratch::get();
    scratch.write("x.manifest.json", manifest);
    scratch.write("x.bam", &bgzf(file));
    scratch.write("y", file);
    fs::create_dir_all(scratch.path("d")).expect("a directory can be made");
    scratch.write("d/z", file);
    for name in ["", "x.bam", "x.manifest.json"] {
        let _ = verify(&scratch.path(name), 1, &AtomicBool::new(false));
    }
}

/// The journal of a run without its checksums, its blocks, its parts and its windows.
pub(crate) fn journal(bytes: &[u8]) {
    let [lines, blocks, kept, windows] = parts(bytes);
    let scratch = Scratch::get();
    let before = "what lies beside it stays";
    scratch.write("beside", before.as_bytes());
    let out = scratch.path("out");
    let _ = take_over(&out, lines, blocks, kept, windows);
    let _ = fs::remove_dir_all(&out);
    let after = fs::read(scratch.path("beside"));
    assert!(after.is_ok_and(|after| after == before.as_bytes()), "something outside of the run was touched");
}
