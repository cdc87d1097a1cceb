//! Starts the processes of `godwit-sql`, which run SQL statements.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use godwit_cli::cli::KeyArgs;
use godwit_engines::{EngineError, sql_program};
use godwit_query::StatementProcessOptions;

/// The program `godwit-sql`. It is kept open, so that all processes of a server are of one version, even if the file is
/// removed or replaced.
static PROGRAM: OnceLock<File> = OnceLock::new();

/// Finds and opens `godwit-sql`.
///
/// # Errors
/// [`EngineError::NotInstalled`] if the program does not exist or cannot be opened.
pub(super) fn open_program() -> Result<&'static File, EngineError> {
    if let Some(program) = PROGRAM.get() {
        return Ok(program);
    }
    let path = sql_program::find_program()?;
    let failed = |error| EngineError::NotInstalled {
        program: format!("{} ({error})", path.display()),
        remedy: sql_program::REMEDY.to_owned(),
    };
    let program = File::open(&path).map_err(failed)?;
    Ok(PROGRAM.get_or_init(|| program))
}

/// Returns the command that starts a statement process with these options on a socket. Its scratch files are beside the
/// socket, in a directory that this process removes after the exit of the statement process, even if that was killed.
///
/// # Errors
/// [`std::io::ErrorKind::Unsupported`] if `godwit-sql` is missing, or if there is no `/proc`, as in some change-root
/// environments.
pub(super) fn process_command(options: &StatementProcessOptions, socket: &Path) -> std::io::Result<Command> {
    let no_proc = |error: std::io::Error| {
        let problem = format!("statements need /proc ({error}): `mount -t proc proc /proc`");
        std::io::Error::new(std::io::ErrorKind::Unsupported, problem)
    };
    std::fs::metadata("/proc/self/fd").map_err(no_proc)?;
    let program = open_program().map_err(|error| std::io::Error::new(std::io::ErrorKind::Unsupported, error))?;
    let parent = std::process::id();
    let options = StatementProcessOptions {
        socket: socket.to_owned(),
        temp: socket.parent().unwrap_or(socket).to_owned(),
        // This path also works if the executable was removed or replaced by another version.
        godwit_program: format!("/proc/{parent}/exe").into(),
        ..options.clone()
    };
    let mut command = Command::new(format!("/proc/{parent}/fd/{}", program.as_raw_fd()));
    command.arg0(sql_program::PROGRAM).args(options.arguments());
    Ok(command)
}

/// Adds the files of the secret keys to the options of a statement process.
pub(super) fn with_keys(options: StatementProcessOptions, keys: &KeyArgs) -> StatementProcessOptions {
    let (files, passphrase) = (keys.c4gh_key.clone(), keys.c4gh_passphrase.clone());
    StatementProcessOptions { keys: files, passphrase, ..options }
}
