//! The actions for mounted servers: one directory, one entry, parts of blocks, changes of names and attributes, and free
//! space.
//!
//! Names of directories have no rules of their own: a principal sees a directory if it may read or write files in it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use bytes::Bytes;
use godwit_dataset::{ANY_FILE, FileAccess, FileAuthorization, Principal};
use godwit_files::{parent_directory, set_attributes, sync_directory};
use godwit_transfer_session::blake3_tree::BLOCK_BYTES;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::FileServiceState;
use super::list_action::{is_hidden_path, join_paths};
use crate::block_reader::read_unchanged_bytes;
use crate::copy_protocol::{
    BYTES_ACTION, BytesRequest, CHANGE_ACTION, DIRECTORY_ACTION, ENTRY_ACTION, FileChange, MAX_ENTRIES_PER_MESSAGE,
    PathRequest, ReadRange, SPACE_ACTION, StorageSpace, action_name, from_json, to_json,
};
use crate::delegation_tokens::{authorize_read, authorize_unrestricted};
use crate::error::TransferError;
use crate::file_listing::{Entry, LinkPolicy, WalkItem, resolve_below_root, walk_entries};
use crate::path_text::path_to_text;
use crate::unix_time::time_from_unix;

impl FileServiceState {
    /// Runs an action of this module; returns `None` for any other action.
    pub(super) fn run_file_operation(
        &self,
        principal: &Principal,
        kind: &str,
        body: &[u8],
    ) -> Option<Result<Vec<Bytes>, TransferError>> {
        let is = |name: &str| kind == action_name(name);
        let answer = match () {
            () if is(DIRECTORY_ACTION) => from_json(body).and_then(|request| self.list_directory(principal, &request)),
            () if is(ENTRY_ACTION) => from_json(body).and_then(|request| self.entry(principal, &request)),
            () if is(BYTES_ACTION) => from_json(body).and_then(|request| self.read_bytes(principal, request)),
            () if is(SPACE_ACTION) => from_json(body).and_then(|request| self.storage_space(principal, &request)),
            () if is(CHANGE_ACTION) => from_json(body).and_then(|change| self.change_files(principal, &change)),
            () => return None,
        };
        Some(answer)
    }

    fn list_directory(&self, principal: &Principal, request: &PathRequest) -> Result<Vec<Bytes>, TransferError> {
        authorize_read(principal, &request.path)?;
        let directory = resolve_below_root(&self.root, &request.path)?;
        let read = fs::read_dir(&directory).map_err(self.entry_error(principal, "list", &directory, &request.path))?;
        let mut entries = Vec::new();
        for found in read {
            let found = found.map_err(TransferError::io_error("list", &directory))?;
            let name = path_to_text(Path::new(&found.file_name()));
            if is_hidden_path(&name) {
                continue;
            }
            // An entry without metadata was removed at this moment, or is a link without a target.
            let Ok(metadata) = fs::metadata(found.path()) else { continue };
            let is_shown = metadata.is_file() || metadata.is_dir();
            if is_shown && self.is_visible(principal, &join_paths(&request.path, &name), metadata.is_dir()) {
                entries.push(Entry::from_metadata(name, &metadata));
            }
        }
        if entries.is_empty() && !self.is_visible(principal, &request.path, true) {
            return Err(TransferError::NotFound { location: request.path.clone() });
        }
        entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let mut messages: Vec<Bytes> = Vec::new();
        for some in entries.chunks(MAX_ENTRIES_PER_MESSAGE) {
            messages.push(to_json(&some)?.into());
        }
        Ok(messages)
    }

    fn entry(&self, principal: &Principal, request: &PathRequest) -> Result<Vec<Bytes>, TransferError> {
        authorize_read(principal, &request.path)?;
        let path = resolve_below_root(&self.root, &request.path)?;
        let found = fs::metadata(&path);
        let metadata = found.map_err(self.entry_error(principal, "inspect", &path, &request.path))?;
        let is_shown = metadata.is_file() || metadata.is_dir();
        if !is_shown || !self.is_visible(principal, &request.path, metadata.is_dir()) {
            return Err(TransferError::NotFound { location: request.path.clone() });
        }
        Ok(vec![to_json(&Entry::from_metadata(String::new(), &metadata))?.into()])
    }

    fn read_bytes(&self, principal: &Principal, request: BytesRequest) -> Result<Vec<Bytes>, TransferError> {
        let BytesRequest { path, version, offset, size_bytes } = request;
        if size_bytes > BLOCK_BYTES {
            return Err(TransferError::rejected(format!("at most {BLOCK_BYTES} bytes are read by one call")));
        }
        let range = ReadRange { file: 0, path, version, start: 0, end: 0, bypass_cache: false };
        let source = self.resolve_range(principal, range)?;
        let end = offset.saturating_add(size_bytes);
        let data = read_unchanged_bytes(&source.path, source.version, offset..end)?;
        Ok(vec![Bytes::copy_from_slice(blake3::hash(&data).as_bytes()), data.into()])
    }

    fn storage_space(&self, principal: &Principal, request: &PathRequest) -> Result<Vec<Bytes>, TransferError> {
        authorize_read(principal, &request.path)?;
        let space = StorageSpace::of_directory(&self.root).map_err(TransferError::io_error("inspect", &self.root))?;
        Ok(vec![to_json(&space)?.into()])
    }

    /// Returns a function that converts an I/O error as [`access_error`] does, but hides the error from a principal that
    /// may not know that the path exists.
    fn entry_error<'p>(
        &self,
        principal: &Principal,
        operation: &'static str,
        place: &'p Path,
        path: &'p str,
    ) -> impl FnOnce(io::Error) -> TransferError + use<'p> {
        let is_visible = self.is_visible(principal, path, false);
        move |error| match is_visible {
            true => access_error(operation, place, path)(error),
            false => TransferError::NotFound { location: path.to_owned() },
        }
    }

    /// Reports whether a principal may know that a path exists. A file of which only some rows may be read is visible,
    /// but cannot be opened.
    fn is_visible(&self, principal: &Principal, path: &str, is_directory: bool) -> bool {
        let Some(rules) = self.options.rules.as_ref() else { return true };
        let may = |path: &str, access| rules.authorize_file(principal, path, access) != FileAuthorization::Hidden;
        if !is_directory {
            return may(path, FileAccess::Read);
        }
        let any = join_paths(path, ANY_FILE);
        if path.trim_matches('/').is_empty() || may(&any, FileAccess::Read) || may(&any, FileAccess::Write) {
            return true;
        }
        let Ok(place) = resolve_below_root(&self.root, path) else { return false };
        walk_entries(&place, LinkPolicy::Follow).flatten().any(|item| match item {
            WalkItem::Entry(entry) => entry.is_file() && may(&join_paths(path, &entry.path), FileAccess::Read),
            WalkItem::Failure(_) | WalkItem::SkippedLink(_) => false,
        })
    }

    fn change_files(&self, principal: &Principal, change: &FileChange) -> Result<Vec<Bytes>, TransferError> {
        authorize_unrestricted(principal)?;
        self.check_writable()?;
        match change {
            FileChange::CreateDirectory { path, mode } => {
                self.authorize_by_rules(principal, &join_paths(path, ANY_FILE), FileAccess::Write)?;
                let directory = self.resolve_changed(path)?;
                let made = DirBuilder::new().mode(mode & 0o777).create(&directory);
                made.map_err(access_error("create", &directory, path))?;
                sync_parent(&directory)?;
            }
            FileChange::RemoveFile { path, version } => {
                self.authorize_by_rules(principal, path, FileAccess::Write)?;
                let file = self.resolve_changed(path)?;
                check_version(&file, path, *version)?;
                fs::remove_file(&file).map_err(access_error("remove", &file, path))?;
                sync_parent(&file)?;
            }
            FileChange::RemoveDirectory { path, version } => {
                self.authorize_by_rules(principal, &join_paths(path, ANY_FILE), FileAccess::Write)?;
                let directory = self.resolve_changed(path)?;
                check_version(&directory, path, *version)?;
                fs::remove_dir(&directory).map_err(access_error("remove", &directory, path))?;
                sync_parent(&directory)?;
            }
            FileChange::Rename { path, version, destination, replace } => {
                let (from, to) = (self.resolve_changed(path)?, self.resolve_changed(destination)?);
                self.authorize_rename(principal, (path, &from), destination)?;
                check_version(&from, path, *version)?;
                let flags = if *replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
                renameat_with(CWD, &from, CWD, &to, flags)
                    .map_err(|error| access_error("rename", &from, path)(error.into()))?;
                sync_parent(&to)?;
                sync_parent(&from)?;
            }
            FileChange::SetAttributes { path, version, mode, modified } => {
                let file = self.resolve_changed(path)?;
                let is_directory = fs::metadata(&file).map_err(access_error("inspect", &file, path))?.is_dir();
                let written = if is_directory { join_paths(path, ANY_FILE) } else { path.clone() };
                self.authorize_by_rules(principal, &written, FileAccess::Write)?;
                check_version(&file, path, *version)?;
                let modified = modified.map(|(seconds, nanoseconds)| time_from_unix(seconds, nanoseconds));
                set_attributes(&file, *mode, modified).map_err(access_error("change", &file, path))?;
            }
        }
        Ok(Vec::new())
    }

    /// Resolves the path of an entry that is changed; the root itself is not changed.
    pub(super) fn resolve_changed(&self, path: &str) -> Result<std::path::PathBuf, TransferError> {
        match path.trim_matches('/') {
            "" => Err(TransferError::rejected("the root of a server can be neither renamed nor removed nor changed")),
            path => resolve_below_root(&self.root, path),
        }
    }

    /// Authorizes a rename. With rules, every file that gets another path must be readable and writable at its present
    /// path, and writable at its new path.
    fn authorize_rename(
        &self,
        principal: &Principal,
        (path, from): (&str, &Path),
        destination: &str,
    ) -> Result<(), TransferError> {
        if self.options.rules.is_none() {
            return Ok(());
        }
        let authorize = |below: &str| {
            self.authorize_by_rules(principal, &join_paths(path, below), FileAccess::Read)?;
            self.authorize_by_rules(principal, &join_paths(path, below), FileAccess::Write)?;
            self.authorize_by_rules(principal, &join_paths(destination, below), FileAccess::Write)
        };
        for item in walk_entries(from, LinkPolicy::Preserve) {
            match item? {
                WalkItem::Entry(entry) if entry.is_directory => authorize(&join_paths(&entry.path, ANY_FILE))?,
                WalkItem::Entry(entry) => authorize(&entry.path)?,
                WalkItem::Failure(failure) => return Err(failure.error),
                WalkItem::SkippedLink(below) => authorize(&below)?,
            }
        }
        Ok(())
    }
}

/// Returns a function that converts an I/O error: a path that does not exist is [`TransferError::NotFound`].
pub(super) fn access_error<'p>(
    operation: &'static str,
    place: &'p Path,
    path: &'p str,
) -> impl FnOnce(io::Error) -> TransferError + use<'p> {
    move |source| match source.kind() {
        io::ErrorKind::NotFound => TransferError::NotFound { location: path.to_owned() },
        _ => TransferError::Io { operation, path: place.to_owned(), source },
    }
}

/// Returns an error if the entry at a path has another version.
fn check_version(place: &Path, path: &str, version: u64) -> Result<(), TransferError> {
    let found = fs::metadata(place).map_err(access_error("inspect", place, path))?;
    match Entry::from_metadata(String::new(), &found).version == version {
        true => Ok(()),
        false => Err(TransferError::SourceChanged { location: path.to_owned() }),
    }
}

pub(super) fn sync_parent(place: &Path) -> Result<(), TransferError> {
    let directory = parent_directory(place);
    match sync_directory(directory) {
        // Another client has removed the directory since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        synced => synced.map_err(TransferError::io_error("write", directory)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use godwit_dataset::{Authorizer, Catalog};

    use super::*;
    use crate::copy_protocol::FileVersion;
    use crate::file_service::{DirectoryFileService, FileServiceOptions};

    /// Rules by which files in `open` may be read and written, and all others are hidden.
    #[derive(Debug)]
    struct OnlyOpen;

    impl Authorizer for OnlyOpen {
        fn authorized_catalog(&self, _: &Principal, catalog: &Arc<dyn Catalog>) -> Arc<dyn Catalog> {
            catalog.clone()
        }

        fn authorize_file(&self, _: &Principal, path: &str, _: FileAccess) -> FileAuthorization {
            match path.starts_with("open/") {
                true => FileAuthorization::Allowed("open".to_owned()),
                false => FileAuthorization::Hidden,
            }
        }
    }

    fn service(root: &Path, options: FileServiceOptions) -> DirectoryFileService {
        DirectoryFileService::new(root.to_owned(), options)
    }

    fn run<T: serde::Serialize>(
        service: &DirectoryFileService,
        kind: &str,
        request: &T,
    ) -> Result<Vec<Bytes>, TransferError> {
        let body = to_json(request).expect("it succeeds");
        service.inner.run_file_operation(&Principal::default(), &action_name(kind), &body).expect("it succeeds")
    }

    fn names(service: &DirectoryFileService, path: &str) -> Vec<String> {
        let messages = run(service, DIRECTORY_ACTION, &PathRequest { path: path.to_owned() }).expect("it succeeds");
        let entries = messages.iter().flat_map(|message| from_json::<Vec<Entry>>(message).expect("it succeeds"));
        entries.map(|entry| entry.path).collect()
    }

    fn version(service: &DirectoryFileService, path: &str) -> u64 {
        let messages = run(service, ENTRY_ACTION, &PathRequest { path: path.to_owned() }).expect("it succeeds");
        from_json::<Entry>(&messages[0]).expect("it succeeds").version
    }

    #[test]
    fn names_change_only_for_the_version_that_the_client_has_seen() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        let service = service(root.path(), FileServiceOptions { writable: true, ..FileServiceOptions::default() });
        let create = FileChange::CreateDirectory { path: "d".to_owned(), mode: 0o755 };
        run(&service, CHANGE_ACTION, &create).unwrap();
        assert!(matches!(run(&service, CHANGE_ACTION, &create), Err(TransferError::Io { .. })));
        let rename = |version| FileChange::Rename {
            path: "a".to_owned(),
            version,
            destination: "d/b".to_owned(),
            replace: false,
        };
        let seen = version(&service, "a");
        let other = run(&service, CHANGE_ACTION, &rename(seen + 1));
        assert!(matches!(other, Err(TransferError::SourceChanged { .. })));
        run(&service, CHANGE_ACTION, &rename(seen)).unwrap();
        assert_eq!((names(&service, ""), names(&service, "d")), (vec!["d".to_owned()], vec!["b".to_owned()]));
        let full = FileChange::RemoveDirectory { path: "d".to_owned(), version: version(&service, "d") };
        assert!(matches!(run(&service, CHANGE_ACTION, &full), Err(TransferError::Io { .. })));
        let root_itself = FileChange::RemoveDirectory { path: "/".to_owned(), version: 0 };
        assert!(matches!(run(&service, CHANGE_ACTION, &root_itself), Err(TransferError::Rejected { .. })));
    }

    #[test]
    fn parts_of_blocks_are_those_of_the_version_that_the_client_has_seen() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "0123456789").unwrap();
        let service = service(root.path(), FileServiceOptions::default());
        let found = run(&service, ENTRY_ACTION, &PathRequest { path: "a".to_owned() }).unwrap();
        let Entry { modified_s, modified_ns, .. } = from_json(&found[0]).unwrap();
        let read = |file_bytes, size_bytes| {
            let version = FileVersion::SizeAndTime { size_bytes: file_bytes, modified_s, modified_ns };
            run(&service, BYTES_ACTION, &BytesRequest { path: "a".to_owned(), version, offset: 3, size_bytes })
        };
        let messages = read(10, 4).unwrap();
        assert_eq!((&messages[0][..], &messages[1][..]), (&blake3::hash(b"3456").as_bytes()[..], &b"3456"[..]));
        assert!(matches!(read(11, 4), Err(TransferError::SourceChanged { .. })));
        assert!(matches!(read(10, 8), Err(TransferError::SourceChanged { .. })));
        assert!(matches!(read(10, BLOCK_BYTES + 1), Err(TransferError::Rejected { .. })));
    }

    #[test]
    fn a_principal_sees_and_changes_only_what_the_rules_permit() {
        let root = tempfile::tempdir().unwrap();
        for name in ["open", "closed", "closed/deep"] {
            fs::create_dir(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("f"), "f").unwrap();
        }
        let rules: Option<Arc<dyn Authorizer>> = Some(Arc::new(OnlyOpen));
        let service =
            service(root.path(), FileServiceOptions { writable: true, rules, ..FileServiceOptions::default() });
        assert_eq!((names(&service, ""), names(&service, "open")), (vec!["open".to_owned()], vec!["f".to_owned()]));
        for path in ["closed", "closed/f", "absent"] {
            for kind in [DIRECTORY_ACTION, ENTRY_ACTION] {
                let answer = run(&service, kind, &PathRequest { path: path.to_owned() });
                assert!(matches!(answer, Err(TransferError::NotFound { .. })), "{kind} {path}: {answer:?}");
            }
        }
        let rename = |path: &str, destination: &str| FileChange::Rename {
            path: path.to_owned(),
            version: 0,
            destination: destination.to_owned(),
            replace: true,
        };
        for change in [
            rename("closed/f", "open/g"),
            rename("open/f", "closed/g"),
            rename("closed", "open/closed"),
            FileChange::RemoveFile { path: "closed/f".to_owned(), version: 0 },
            FileChange::CreateDirectory { path: "closed/new".to_owned(), mode: 0o700 },
            FileChange::SetAttributes { path: "closed/f".to_owned(), version: 0, mode: Some(0), modified: None },
        ] {
            let answer = run(&service, CHANGE_ACTION, &change);
            let is_refused = matches!(answer, Err(TransferError::NotFound { .. } | TransferError::Rejected { .. }));
            assert!(is_refused, "{change:?}: {answer:?}");
        }
    }

    #[test]
    fn a_server_that_is_not_writable_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let service = service(root.path(), FileServiceOptions::default());
        let change = FileChange::CreateDirectory { path: "d".to_owned(), mode: 0o755 };
        assert!(matches!(run(&service, CHANGE_ACTION, &change), Err(TransferError::Rejected { .. })));
    }
}
