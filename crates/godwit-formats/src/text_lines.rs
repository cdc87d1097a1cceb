//! A reader of the numbered lines of a text file, and the errors that name a line. Readers of BED, GFF and chain files
//! parse these lines.

use std::path::{Path, PathBuf};

use godwit_io::bgzf::{BgzfError, LineStatus, Reader, next_line};

/// Maximum bytes of a line.
const MAX_LINE_BYTES: usize = 16 << 20;

/// A reason why a line of a text file cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
pub enum TextLineError {
    /// The file cannot be read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// A line is not a valid line of its format.
    #[error("{}, line {line}: {problem}", .path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// Description of the problem.
        problem: String,
    },
}

/// A reader of lines, which keeps the last one and its number.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::text_lines::TextLineReader;
/// use godwit_io::bgzf;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("contigs.txt");
/// std::fs::write(&path, "chr20\nchr21\n")?;
/// let mut lines = TextLineReader::new(bgzf::open_text(&path, 1)?);
/// while lines.read_line()? {
///     assert!(lines.text()?.starts_with("chr"));
/// }
/// assert!(lines.error("it has no end").to_string().ends_with("contigs.txt, line 3: it has no end"));
/// # Ok(())
/// # }
/// ```
pub struct TextLineReader {
    input: Reader,
    line: Vec<u8>,
    line_number: u64,
}

impl TextLineReader {
    /// Creates a reader of an open file from which nothing has been consumed.
    pub fn new(input: Reader) -> Self {
        Self { input, line: Vec::new(), line_number: 0 }
    }

    /// Reads the next line, without its line feed. Returns false at the end of the file.
    ///
    /// # Errors
    /// [`TextLineError::Bgzf`] if the file cannot be read, [`TextLineError::Line`] if the line is longer than 16 MiB.
    pub fn read_line(&mut self) -> Result<bool, TextLineError> {
        let status = next_line(&mut self.input, &mut self.line, MAX_LINE_BYTES)?;
        self.line_number += 1;
        match status {
            LineStatus::Line => Ok(true),
            LineStatus::End => Ok(false),
            LineStatus::TooLong => Err(self.error("it is longer than 16 MiB; is the file of this format?")),
        }
    }

    /// Returns the line that was read last.
    ///
    /// # Errors
    /// [`TextLineError::Line`] if it is not UTF-8.
    pub fn text(&self) -> Result<&str, TextLineError> {
        std::str::from_utf8(&self.line).map_err(|_| self.error("it is not UTF-8 text"))
    }

    /// Returns the bytes of the line that was read last.
    pub fn bytes(&self) -> &[u8] {
        &self.line
    }

    /// Returns the 1-based number of the line that was read last; at the end of the file, that of the line after it.
    pub fn line_number(&self) -> u64 {
        self.line_number
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.input.path()
    }

    /// Returns an error that names the line that was read last.
    pub fn error(&self, problem: &str) -> TextLineError {
        TextLineError::Line { path: self.path().to_owned(), line: self.line_number, problem: problem.to_owned() }
    }
}
