//! Writes the rows that a verb returns to stdout, or to a file that is renamed to its final name when it is complete.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use godwit_cli::failure::Failure;
use godwit_files::AtomicFile;
use godwit_model::ErrorKind;
use godwit_query::{RemoteRows, RowFormat, RowWriter, Rows, ScoredRows};

use super::credentials::server_failure;

/// A stream of rows that this process or a server has computed, or that a scoring service has scored.
pub(super) enum OutputRows {
    Local(Rows),
    Remote(Box<RemoteRows>),
    Scored(Box<ScoredRows>),
}

impl OutputRows {
    /// Returns the schema of the rows.
    pub(super) fn schema(&self) -> &SchemaRef {
        match self {
            Self::Local(rows) => rows.schema(),
            Self::Remote(rows) => rows.schema(),
            Self::Scored(rows) => rows.schema(),
        }
    }

    /// Returns the next batch; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        Ok(match self {
            Self::Local(rows) => rows.next().await?,
            Self::Remote(rows) => rows.next().await.map_err(server_failure)?,
            Self::Scored(rows) => rows.next().await?,
        })
    }
}

/// Writes all rows in this format to the file `out`, or to stdout.
pub(super) async fn write_rows(rows: OutputRows, format: RowFormat, out: Option<&Path>) -> Result<(), Failure> {
    match out {
        Some(path) => write_to_file(rows, format, path).await,
        None => write_to_stdout(rows, format).await,
    }
}

/// Writes rows to stdout. It is not a failure if the process that reads the pipe exits early (`| head`).
async fn write_to_stdout(rows: OutputRows, format: RowFormat) -> Result<(), Failure> {
    let out = ClosableStdout { out: BufWriter::with_capacity(1 << 16, io::stdout()), is_closed: false };
    let mut out = write_batches(rows, format, out).await?;
    out.flush().map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot write to stdout: {error}")))
}

async fn write_to_file(rows: OutputRows, format: RowFormat, path: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(
            ErrorKind::Machine,
            format!("cannot write {}: {error}; check the directory and its space", path.display()),
        )
    };
    let file = AtomicFile::create_unique(path, 0o600).map_err(failed)?;
    let mut written = write_batches(rows, format, BufWriter::with_capacity(1 << 20, file)).await?;
    written.flush().map_err(failed)?;
    let file = written.into_inner().map_err(|error| failed(error.into_error()))?;
    file.commit().map_err(failed)
}

async fn write_batches<W: Write + Send>(mut rows: OutputRows, format: RowFormat, out: W) -> Result<W, Failure> {
    let mut printer = RowWriter::new(format, rows.schema(), out)?;
    while let Some(batch) = rows.next().await? {
        printer.write(batch)?;
    }
    Ok(printer.finish()?)
}

/// Stdout that discards all further output after the process that reads it has exited.
struct ClosableStdout {
    out: BufWriter<io::Stdout>,
    is_closed: bool,
}

impl ClosableStdout {
    fn ignore_broken_pipe<T>(&mut self, written: io::Result<T>, otherwise: T) -> io::Result<T> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(otherwise)
            }
            written => written,
        }
    }
}

impl Write for ClosableStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Ok(bytes.len());
        }
        let written = self.out.write(bytes);
        self.ignore_broken_pipe(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let flushed = self.out.flush();
        self.ignore_broken_pipe(flushed, ())
    }
}
