//! Fuzz target for the calls of clients of NFSv3.

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use godwit_dataset::Principal;
use godwit_nfs::{ClientAccess, Export, ExportOptions};

use crate::input_files::ScratchDirectory;

/// Size of the header of a record, bytes (RFC 5531, section 11).
const HEADER_BYTES: usize = 4;

/// Answers the calls in the bytes of a TCP connection, each a record of one fragment, by a server that is not writable.
/// Arguments are decoded before a change is rejected. Checks that each reply is complete and belongs to its call, and that
/// nothing is changed.
pub(crate) fn nfs(mut bytes: &[u8]) {
    let scratch = ScratchDirectory::for_this_thread();
    let root = scratch.path("nfs");
    fs::create_dir_all(root.join("d")).expect("a directory can be made");
    scratch.write("nfs/f", b"content");
    let access = ClientAccess::new(Box::new(|_| Some(Principal::default())), None, false);
    let options = ExportOptions { access, access_log: None, log: Arc::new(|_| ()) };
    let export = Export::open(&root, options).expect("the directory can be opened");
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        // The highest bit marks the last fragment of a record.
        let size = (u32::from_be_bytes(*header) & (u32::MAX >> 1)) as usize;
        let (record, rest) = rest.split_at(size.min(rest.len()));
        bytes = rest;
        if let Some(reply) = export.answer_record(IpAddr::from([127, 0, 0, 1]), record) {
            let (header, reply) = reply.split_at(HEADER_BYTES);
            assert_eq!(header, (reply.len() as u32 | 1 << 31).to_be_bytes());
            assert_eq!(reply[..4], record[..4], "the number of the transaction");
        }
    }
    let entries = fs::read_dir(&root).map(Iterator::count);
    let content = fs::read(root.join("f"));
    assert!(matches!(entries, Ok(2)) && content.is_ok_and(|content| content == b"content"), "a call changed files");
}
