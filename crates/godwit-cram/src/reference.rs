//! The reference that CRAM is a difference to: read once, with the checksum of each contig.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::CramError;
use crate::htslib::Md5;
use godwit_formats::fasta::{self, IndexEvent};
use godwit_formats::sam::Header;

/// The path with more behind it.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

/// A FASTA file whose contigs are known by length and MD5.
pub struct Reference {
    path: PathBuf,
    /// Absolute.
    scratch: PathBuf,
    /// The `.fai`, made from the file itself: one that lies beside it may be of another.
    fai: Vec<u8>,
    contigs: HashMap<String, Contig>,
}

struct Contig {
    bases: u64,
    /// `M5` (SAMv1 §1.3.2): the MD5 of the bases in upper case.
    md5: String,
}

impl Reference {
    /// Reads a whole FASTA file: plain, or BGZF with a `.gzi` beside it. `scratch` is a directory for files of a moment.
    ///
    /// # Errors
    /// [`CramError::Fasta`], [`CramError::CompressedReference`], [`CramError::Scratch`].
    pub fn open(path: &Path, scratch: &Path) -> Result<Self, CramError> {
        let failed = |source| CramError::Fasta { path: path.to_owned(), source };
        let unusable = |source| CramError::Scratch { path: scratch.to_owned(), source };
        let mut md5 = Md5::new().map_err(unusable)?;
        let mut checksums = Vec::new();
        let mut upper = Vec::new();
        let mut is_plain = true;
        let records = fasta::index_with(path, |event| {
            match event {
                IndexEvent::Start { compressed } => is_plain = !compressed,
                IndexEvent::Bases(bases) => {
                    upper.clear();
                    upper.extend(bases.iter().map(u8::to_ascii_uppercase));
                    md5.update(&upper);
                }
                IndexEvent::End => checksums.push(md5.take_hex()),
            }
            true
        })
        .map_err(failed)?;
        if !is_plain && !beside(path, ".gzi").exists() {
            return Err(CramError::CompressedReference { path: path.to_owned() });
        }
        let mut fai = Vec::new();
        fasta::write_fai(&records, &mut fai).map_err(unusable)?;
        let scratch = std::path::absolute(scratch).map_err(unusable)?;
        let contigs = records.into_iter().zip(checksums);
        let contigs = contigs.map(|(record, md5)| (record.name, Contig { bases: record.bases, md5 })).collect();
        Ok(Self { path: path.to_owned(), scratch, fai, contigs })
    }

    /// Bases of the longest contig.
    pub(super) fn longest_contig(&self) -> u64 {
        self.contigs.values().map(|contig| contig.bases).max().unwrap_or_default()
    }

    /// Calls `open` with a path under which htslib finds the file and its `.fai` side by side. htslib would else write one
    /// beside the reference (1.19 `bgzf_open_ref`), which is not ours to write to. The path is gone afterwards; what
    /// htslib opened stays open.
    pub(super) fn with_path<T>(&self, open: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let directory = tempfile::Builder::new().prefix(".godwit-reference-").tempdir_in(&self.scratch)?;
        let path = directory.path().join("reference.fa");
        let original = std::path::absolute(&self.path)?;
        symlink(&original, &path)?;
        symlink(beside(&original, ".gzi"), beside(&path, ".gzi"))?;
        std::fs::write(beside(&path, ".fai"), &self.fai)?;
        open(&path)
    }

    /// Compares the contigs of a header with the reference, and returns the header with an `M5` for each.
    ///
    /// # Errors
    /// [`CramError::MissingContig`], [`CramError::OtherContig`].
    pub(super) fn check(&self, header: &Header) -> Result<Header, CramError> {
        let mut checked = header.clone();
        checked.try_fill_checksums(|name, bases, md5| {
            let Some(contig) = self.contigs.get(name) else {
                return Err(CramError::MissingContig { reference: self.path.clone(), contig: name.to_owned() });
            };
            let other = |field, found: &str, expected: &str| CramError::OtherContig {
                reference: self.path.clone(),
                contig: name.to_owned(),
                difference: format!("{field} is {found}, not {expected}"),
            };
            if bases != contig.bases.to_string() {
                return Err(other("LN", &contig.bases.to_string(), bases));
            }
            match md5 {
                Some(md5) if !md5.eq_ignore_ascii_case(&contig.md5) => Err(other("M5", &contig.md5, md5)),
                _ => Ok(contig.md5.clone()),
            }
        })?;
        Ok(checked)
    }
}
