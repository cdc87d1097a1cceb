//! The reference that CRAM is a difference to: read once, with the checksum of each contig.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::CramError;
use crate::htslib::Md5;
use godwit_formats::fasta::{self, FaiRecord, IndexEvent};
use godwit_formats::sam::Header;
use godwit_process::Temporary;

/// A FASTA file that CRAM can be a difference to.
pub struct Reference {
    path: PathBuf,
    /// Absolute.
    scratch: PathBuf,
    /// The `.fai`, made from the file itself: one that lies beside it may be of another.
    fai: Vec<u8>,
    /// The `.gzi` of a BGZF file, made likewise.
    gzi: Option<Vec<u8>>,
    checksums: Checksums,
}

/// The contigs of a FASTA file, known by length and MD5.
#[derive(Debug)]
pub struct Checksums {
    path: PathBuf,
    contigs: HashMap<String, Contig>,
}

#[derive(Debug)]
struct Contig {
    bases: u64,
    /// `M5` (SAMv1 §1.3.2): the MD5 of the bases in upper case.
    md5: String,
}

/// Takes the MD5 of each contig while somebody reads them by [`fasta::index_with`].
pub struct ChecksumScan {
    md5: Md5,
    upper: Vec<u8>,
    done: Vec<String>,
}

impl ChecksumScan {
    /// One that has seen nothing.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`].
    pub fn new() -> io::Result<Self> {
        Ok(Self { md5: Md5::new()?, upper: Vec::new(), done: Vec::new() })
    }

    /// Takes what is met next.
    pub fn see(&mut self, event: IndexEvent) {
        match event {
            IndexEvent::Start => {}
            IndexEvent::Bases(bases) => {
                self.upper.clear();
                self.upper.extend(bases.iter().map(u8::to_ascii_uppercase));
                self.md5.update(&self.upper);
            }
            IndexEvent::End => self.done.push(self.md5.take_hex()),
        }
    }

    /// The checksums of the contigs that were seen, in their order, of the file at `path`.
    pub fn finish(self, path: &Path, contigs: &[FaiRecord]) -> Checksums {
        let known = |(record, md5): (&FaiRecord, String)| (record.name.clone(), Contig { bases: record.bases, md5 });
        Checksums { path: path.to_owned(), contigs: contigs.iter().zip(self.done).map(known).collect() }
    }
}

impl Checksums {
    /// Compares the contigs of a header that the file has too and of which the header has an `M5` with the file.
    ///
    /// # Errors
    /// [`CramError::OtherContig`].
    pub fn compare(&self, header: &Header) -> Result<(), CramError> {
        header.clone().try_fill_checksums(|name, _, md5| {
            if let (Some(contig), Some(_)) = (self.contigs.get(name), md5) {
                self.same_bases(name, contig, md5)?;
            }
            Ok(String::new())
        })
    }

    fn other(&self, contig: &str, field: &str, found: &str, expected: &str) -> CramError {
        CramError::OtherContig {
            reference: self.path.clone(),
            contig: contig.to_owned(),
            difference: format!("{field} is {found}, not {expected}"),
        }
    }

    fn same_bases(&self, name: &str, contig: &Contig, md5: Option<&str>) -> Result<(), CramError> {
        match md5 {
            Some(md5) if !md5.eq_ignore_ascii_case(&contig.md5) => Err(self.other(name, "M5", &contig.md5, md5)),
            _ => Ok(()),
        }
    }

    /// Compares all contigs of a header with the file, and returns the header with an `M5` for each.
    fn check(&self, header: &Header) -> Result<Header, CramError> {
        let mut checked = header.clone();
        checked.try_fill_checksums(|name, bases, md5| {
            let Some(contig) = self.contigs.get(name) else {
                return Err(CramError::MissingContig { reference: self.path.clone(), contig: name.to_owned() });
            };
            if bases != contig.bases.to_string() {
                return Err(self.other(name, "LN", &contig.bases.to_string(), bases));
            }
            self.same_bases(name, contig, md5)?;
            Ok(contig.md5.clone())
        })?;
        Ok(checked)
    }
}

impl Reference {
    /// Reads a whole FASTA file, plain or BGZF. `scratch` is a directory for temporary files.
    ///
    /// # Errors
    /// [`CramError::Fasta`], also for gzip that is not BGZF; [`CramError::Scratch`].
    pub fn open(path: &Path, scratch: &Path) -> Result<Self, CramError> {
        let failed = |source| CramError::Fasta { path: path.to_owned(), source };
        let unusable = |source| CramError::Scratch { path: scratch.to_owned(), source };
        let mut scan = ChecksumScan::new().map_err(unusable)?;
        let blocks = fasta::block_table(path).map_err(failed)?;
        let records = fasta::index_with(path, |event| {
            scan.see(event);
            true
        })
        .map_err(failed)?;
        let gzi = blocks.map(|blocks| {
            let mut gzi = Vec::new();
            blocks.write_gzi(&mut gzi).map(|()| gzi)
        });
        let gzi = gzi.transpose().map_err(unusable)?;
        let mut fai = Vec::new();
        fasta::write_fai(&records, &mut fai).map_err(unusable)?;
        let scratch = std::path::absolute(scratch).map_err(unusable)?;
        let checksums = scan.finish(path, &records);
        Ok(Self { path: path.to_owned(), scratch, fai, gzi, checksums })
    }

    /// Bases of the longest contig.
    pub(super) fn longest_contig(&self) -> u64 {
        self.checksums.contigs.values().map(|contig| contig.bases).max().unwrap_or_default()
    }

    /// Calls `open` with a path under which htslib finds the file, its `.fai` and its `.gzi` side by side. htslib would else
    /// write a `.fai` beside the reference (1.19 `bgzf_open_ref`), which is not ours to write to. The path is gone afterwards; what
    /// htslib opened stays open.
    pub(super) fn with_path<T>(&self, open: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let directory =
            Temporary::create(|| tempfile::Builder::new().prefix(".godwit-reference-").tempdir_in(&self.scratch))?;
        let path = directory.path().join("reference.fa");
        let original = std::path::absolute(&self.path)?;
        symlink(&original, &path)?;
        if let Some(gzi) = &self.gzi {
            std::fs::write(path.with_added_extension("gzi"), gzi)?;
        }
        std::fs::write(path.with_added_extension("fai"), &self.fai)?;
        open(&path)
    }

    /// Compares the contigs of a header with the reference, and returns the header with an `M5` for each.
    ///
    /// # Errors
    /// [`CramError::MissingContig`], [`CramError::OtherContig`].
    pub(super) fn check(&self, header: &Header) -> Result<Header, CramError> {
        self.checksums.check(header)
    }
}
