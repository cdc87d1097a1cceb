//! The reference of a CRAM file: a FASTA file, which is read once to build its indexes and the MD5 of each contig.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::CramError;
use crate::htslib::Md5;
use godwit_formats::fasta::{self, FaiEvent, FaiRecord};
use godwit_formats::sam::Header;
use godwit_process::TemporaryItem;

/// A FASTA file that serves as the reference of CRAM files.
pub struct Reference {
    path: PathBuf,
    /// Absolute path of the directory for temporary files.
    scratch_directory: PathBuf,
    /// Content of the `.fai`. It is computed from the FASTA file, because an existing `.fai` may belong to another
    /// file.
    fai: Vec<u8>,
    /// Content of the `.gzi`, also computed from the FASTA file; `None` if the file is not BGZF.
    gzi: Option<Vec<u8>>,
    checksums: ReferenceChecksums,
}

/// The length and the MD5 of each contig of a FASTA file.
#[derive(Debug)]
pub struct ReferenceChecksums {
    path: PathBuf,
    contigs: HashMap<String, ContigChecksum>,
}

#[derive(Debug)]
struct ContigChecksum {
    bases: u64,
    /// MD5 of the bases in upper case, as in the `M5` field of a header (SAMv1 §1.3.2).
    md5: String,
}

/// Computes the MD5 of each contig of a FASTA file from the events of [`fasta::build_fai_with`].
pub struct ChecksumScan {
    md5: Md5,
    upper_case_bases: Vec<u8>,
    contig_md5s: Vec<String>,
}

impl ChecksumScan {
    /// Creates a scan that has not received any events.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] if htslib cannot allocate the state of the MD5.
    pub fn new() -> io::Result<Self> {
        Ok(Self { md5: Md5::new()?, upper_case_bases: Vec::new(), contig_md5s: Vec::new() })
    }

    /// Updates the MD5 of the current contig with the next event.
    pub fn add_event(&mut self, event: FaiEvent) {
        match event {
            FaiEvent::ContigStart => {}
            FaiEvent::Bases(bases) => {
                self.upper_case_bases.clear();
                self.upper_case_bases.extend(bases.iter().map(u8::to_ascii_uppercase));
                self.md5.update(&self.upper_case_bases);
            }
            FaiEvent::ContigEnd => self.contig_md5s.push(self.md5.finish_hex()),
        }
    }

    /// Returns the lengths and MD5s of the contigs of the file at `path`; `contigs` must have the order of the file.
    pub fn finish(self, path: &Path, contigs: &[FaiRecord]) -> ReferenceChecksums {
        let contig_checksum =
            |(record, md5): (&FaiRecord, String)| (record.name.clone(), ContigChecksum { bases: record.bases, md5 });
        ReferenceChecksums {
            path: path.to_owned(),
            contigs: contigs.iter().zip(self.contig_md5s).map(contig_checksum).collect(),
        }
    }
}

impl ReferenceChecksums {
    /// Compares each `M5` field of the header with the MD5 of the contig. Contigs that the FASTA file does not have are
    /// skipped.
    ///
    /// # Errors
    /// [`CramError::ContigMismatch`] if an `M5` differs.
    pub fn check_listed_checksums(&self, header: &Header) -> Result<(), CramError> {
        header.clone().try_fill_checksums(|name, _, md5| {
            if let (Some(contig), Some(_)) = (self.contigs.get(name), md5) {
                self.check_md5(name, contig, md5)?;
            }
            Ok(String::new())
        })
    }

    fn mismatch_error(&self, contig: &str, field: &str, found: &str, expected: &str) -> CramError {
        CramError::ContigMismatch {
            reference: self.path.clone(),
            contig: contig.to_owned(),
            difference: format!("{field} is {found}, not {expected}"),
        }
    }

    fn check_md5(&self, name: &str, contig: &ContigChecksum, md5: Option<&str>) -> Result<(), CramError> {
        match md5 {
            Some(md5) if !md5.eq_ignore_ascii_case(&contig.md5) => {
                Err(self.mismatch_error(name, "M5", &contig.md5, md5))
            }
            _ => Ok(()),
        }
    }

    /// Compares all contigs of a header with the FASTA file, and returns the header with an `M5` field for each contig.
    fn check_all_contigs(&self, header: &Header) -> Result<Header, CramError> {
        let mut checked = header.clone();
        checked.try_fill_checksums(|name, bases, md5| {
            let Some(contig) = self.contigs.get(name) else {
                return Err(CramError::MissingContig { reference: self.path.clone(), contig: name.to_owned() });
            };
            if bases != contig.bases.to_string() {
                return Err(self.mismatch_error(name, "LN", &contig.bases.to_string(), bases));
            }
            self.check_md5(name, contig, md5)?;
            Ok(contig.md5.clone())
        })?;
        Ok(checked)
    }
}

impl Reference {
    /// Reads a whole FASTA file, uncompressed or BGZF, to index it. `scratch` is a directory for temporary files.
    ///
    /// # Errors
    /// [`CramError::ReadReference`] if the file cannot be read, or is compressed with gzip but not BGZF.
    /// [`CramError::Scratch`] if the scratch directory cannot be used.
    pub fn open(path: &Path, scratch: &Path) -> Result<Self, CramError> {
        let failed = |source| CramError::ReadReference { path: path.to_owned(), source };
        let unusable = |source| CramError::Scratch { path: scratch.to_owned(), source };
        let mut scan = ChecksumScan::new().map_err(unusable)?;
        let blocks = fasta::read_block_table(path).map_err(failed)?;
        let records = fasta::build_fai_with(path, |event| {
            scan.add_event(event);
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
        let scratch_directory = std::path::absolute(scratch).map_err(unusable)?;
        let checksums = scan.finish(path, &records);
        Ok(Self { path: path.to_owned(), scratch_directory, fai, gzi, checksums })
    }

    /// Returns the number of bases of the longest contig.
    pub(super) fn longest_contig(&self) -> u64 {
        self.checksums.contigs.values().map(|contig| contig.bases).max().unwrap_or_default()
    }

    /// Calls `open` with the path of a symbolic link to the FASTA file, in a temporary directory with the `.fai` and
    /// the `.gzi`. Without this directory, htslib would write a `.fai` beside the FASTA file (1.19, `bgzf_open_ref`),
    /// which godwit must not do. The directory is removed afterwards; files that htslib has opened remain usable.
    pub(super) fn with_linked_path<T>(&self, open: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let directory = TemporaryItem::create(|| {
            tempfile::Builder::new().prefix(".godwit-reference-").tempdir_in(&self.scratch_directory)
        })?;
        let path = directory.path().join("reference.fa");
        let original = std::path::absolute(&self.path)?;
        symlink(&original, &path)?;
        if let Some(gzi) = &self.gzi {
            std::fs::write(path.with_added_extension("gzi"), gzi)?;
        }
        std::fs::write(path.with_added_extension("fai"), &self.fai)?;
        open(&path)
    }

    /// Compares the contigs of a header with the reference, and returns the header with an `M5` field for each contig.
    ///
    /// # Errors
    /// [`CramError::MissingContig`] or [`CramError::ContigMismatch`] if they differ.
    pub(super) fn check_header(&self, header: &Header) -> Result<Header, CramError> {
        self.checksums.check_all_contigs(header)
    }
}
