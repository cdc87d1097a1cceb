//! Pages of directories: `READDIR` and `READDIRPLUS`.

use std::os::unix::ffi::OsStrExt as _;

use nfs3_types::nfs3::{
    Nfs3Option, READDIR3res, READDIR3resfail, READDIR3resok, READDIRPLUS3res, READDIRPLUS3resfail, READDIRPLUS3resok,
    cookieverf3, dirlist3, dirlistplus3, entry3, entryplus3, filename3, nfsstat3,
};
use nfs3_types::xdr_codec::{BoundedList, List, Opaque, Pack};

use crate::arguments::{Arguments, MalformedArguments};
use crate::attributes::{attributes, optional_attributes};
use crate::client_access::Client;
use crate::export::{Export, reply};
use crate::export_root::Node;
use crate::listings::DOT_COOKIES;
use crate::rpc_message::MAX_TRANSFER_BYTES;

/// Bytes of a reply besides its entries, at most.
const PAGE_OVERHEAD_BYTES: u32 = 128;
/// The position and size of a page that a client requests.
#[derive(Clone, Copy)]
struct PageRequest {
    /// Cookie of the last entry of the previous page; 0 for the first page.
    cookie: u64,
    max_bytes: u32,
}

/// An entry of a page.
struct PageEntry<'a> {
    name: &'a [u8],
    cookie: u64,
    inode: u64,
    /// `None` for the directory itself and for the directory that contains it.
    node: Option<&'a Node>,
}

impl Export {
    pub(crate) fn read_directory(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<READDIR3res<'static>, MalformedArguments> {
        let (handle, cookie, _verifier) = (arguments.handle()?, arguments.u64()?, arguments.array::<8>()?);
        let request = PageRequest { cookie, max_bytes: arguments.u32()? };
        arguments.end()?;
        let page = self.directory(client, handle).and_then(|directory| {
            let (entries, eof) = self.page(client, &directory, request, |entry| entry3 {
                fileid: entry.inode,
                name: filename3(Opaque::owned(entry.name.to_vec())),
                cookie: entry.cookie,
            })?;
            let dir_attributes = optional_attributes(Some(&directory.found));
            Ok(READDIR3resok { dir_attributes, cookieverf: cookieverf3::default(), reply: dirlist3 { entries, eof } })
        });
        Ok(reply(page, READDIR3resfail::default()))
    }

    pub(crate) fn read_directory_with_attributes(
        &self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<READDIRPLUS3res<'static>, MalformedArguments> {
        let (handle, cookie, _verifier) = (arguments.handle()?, arguments.u64()?, arguments.array::<8>()?);
        let (_name_bytes, max_bytes) = (arguments.u32()?, arguments.u32()?);
        arguments.end()?;
        let page = self.directory(client, handle).and_then(|directory| {
            let request = PageRequest { cookie, max_bytes };
            let (entries, eof) = self.page(client, &directory, request, |entry| entryplus3 {
                fileid: entry.inode,
                name: filename3(Opaque::owned(entry.name.to_vec())),
                cookie: entry.cookie,
                name_attributes: entry.node.map_or(Nfs3Option::None, |node| Nfs3Option::Some(attributes(&node.found))),
                name_handle: entry.node.map_or(Nfs3Option::None, |node| Nfs3Option::Some(node.handle.to_nfs())),
            })?;
            let (dir_attributes, reply) = (optional_attributes(Some(&directory.found)), dirlistplus3 { entries, eof });
            Ok(READDIRPLUS3resok { dir_attributes, cookieverf: cookieverf3::default(), reply })
        });
        Ok(reply(page, READDIRPLUS3resfail::default()))
    }

    /// Returns the entries of a page, and whether it is the last page.
    fn page<T: Pack>(
        &self,
        client: &Client,
        directory: &Node,
        request: PageRequest,
        to_entry: impl Fn(&PageEntry<'_>) -> T,
    ) -> Result<(List<T>, bool), nfsstat3> {
        let room = request.max_bytes.min(MAX_TRANSFER_BYTES).saturating_sub(PAGE_OVERHEAD_BYTES);
        let (mut entries, mut count) = (BoundedList::new(room as usize), 0);
        let mut push = |entry: &PageEntry<'_>| {
            let is_pushed = entries.try_push(to_entry(entry)).is_ok();
            count += usize::from(is_pushed);
            is_pushed
        };
        let mut is_complete = true;
        for (name, cookie) in DOT_COOKIES.into_iter().filter(|(_, cookie)| *cookie > request.cookie) {
            let inode = if cookie == 1 { directory.found.stx_ino } else { self.parent(directory)?.found.stx_ino };
            is_complete = is_complete && push(&PageEntry { name: name.as_bytes(), cookie, inode, node: None });
        }
        let mut after = request.cookie;
        while is_complete {
            let listing = self.listings.listing(&self.root, directory, after, client.address)?;
            for (cookie, name) in listing.entries_after(after) {
                // An entry that was removed at this moment, or that the client may not see, is omitted.
                let Ok(node) = self.entry(client, directory, name.as_bytes()) else { continue };
                let inode = node.found.stx_ino;
                is_complete = push(&PageEntry { name: name.as_bytes(), cookie: *cookie, inode, node: Some(&node) });
                if !is_complete {
                    break;
                }
            }
            if listing.is_end {
                break;
            }
            after = listing.last_cookie();
        }
        match is_complete || count > 0 {
            true => Ok((entries.into_inner(), is_complete)),
            false => Err(nfsstat3::NFS3ERR_TOOSMALL),
        }
    }

    /// Returns the directory that contains a directory; the root is in itself.
    pub(crate) fn parent(&self, directory: &Node) -> Result<Node, nfsstat3> {
        self.root.node_at(directory.path.parent().unwrap_or(&directory.path))
    }
}
