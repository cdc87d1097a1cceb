//! Rows as the outcome of a verb: in a file that is there when it is whole, or on stdout.

use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use godwit_process::Temporary;
use godwit_query::{Printer, RemoteRows, RowFormat, Rows, ScoredRows};

use super::access::of_server;
use crate::failure::{Exit, Failure};

/// Rows on their way: computed here, by a server, or here and scored by a service.
pub(super) enum Answer {
    Here(Rows),
    There(Box<RemoteRows>),
    Scored(Box<ScoredRows>),
}

/// Writes all of them, to stdout where no file is named.
pub(super) async fn write_rows(rows: Answer, format: RowFormat, out: Option<&Path>) -> Result<(), Failure> {
    match out {
        Some(path) => to_file(rows, format, path).await,
        None => to_stdout(rows, format).await,
    }
}

/// A reader that has seen enough (`| head`) is no failure.
async fn to_stdout(rows: Answer, format: RowFormat) -> Result<(), Failure> {
    let out = Stdout { out: BufWriter::with_capacity(1 << 16, std::io::stdout()), closed: false };
    let mut out = write(rows, format, out).await?;
    out.flush().map_err(|error| Failure::new(Exit::Machine, format!("cannot write to stdout: {error}")))
}

async fn to_file(rows: Answer, format: RowFormat, path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(
            Exit::Machine,
            format!("cannot write {}: {error}; check the directory and its space", path.display()),
        )
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = Temporary::create(|| tempfile::NamedTempFile::new_in(directory)).map_err(failed)?;
    let mut written = write(rows, format, BufWriter::with_capacity(1 << 20, file)).await?;
    written.flush().map_err(failed)?;
    let file = written.into_inner().map_err(|error| failed(error.into_error()))?;
    file.as_file().sync_all().map_err(failed)?;
    let (file, _listed) = file.into_parts();
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

async fn write<W: Write + Send>(mut rows: Answer, format: RowFormat, out: W) -> Result<W, Failure> {
    let schema = match &rows {
        Answer::Here(rows) => rows.schema(),
        Answer::There(rows) => rows.schema(),
        Answer::Scored(rows) => rows.schema(),
    };
    let mut printer = Printer::new(format, schema, out)?;
    loop {
        let batch = match &mut rows {
            Answer::Here(rows) => rows.next().await?,
            Answer::There(rows) => rows.next().await.map_err(of_server)?,
            Answer::Scored(rows) => rows.next().await?,
        };
        let Some(batch) = batch else { break };
        printer.write(batch)?;
    }
    Ok(printer.finish()?)
}

/// Stdout, which swallows what comes when nobody reads it any more.
struct Stdout {
    out: BufWriter<std::io::Stdout>,
    closed: bool,
}

impl Stdout {
    fn tolerated<T>(&mut self, written: std::io::Result<T>, otherwise: T) -> std::io::Result<T> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(otherwise)
            }
            written => written,
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        let written = self.out.write(bytes);
        self.tolerated(written, bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.out.flush();
        self.tolerated(flushed, ())
    }
}
