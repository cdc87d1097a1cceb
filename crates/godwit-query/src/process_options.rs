//! The options of a statement process, as arguments of the program `godwit-sql`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The options of a statement process.
///
/// # Examples
///
/// ```
/// use godwit_query::StatementProcessOptions;
///
/// let options = StatementProcessOptions {
///     root: "genomes".into(),
///     socket: "/tmp/x/s".into(),
///     temp: "/tmp/x".into(),
///     memory_bytes: 1 << 30,
///     threads: 2,
///     godwit_program: "/usr/bin/godwit".into(),
///     ..StatementProcessOptions::default()
/// };
/// assert_eq!(StatementProcessOptions::from_arguments(options.arguments()), Ok(options));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementProcessOptions {
    /// Statements read the datasets below this directory, or below `s3://BUCKET/PREFIX`.
    pub root: PathBuf,
    /// The reference of CRAM files.
    pub reference: Option<PathBuf>,
    /// The directory of temporary datasets, which statements also read.
    pub temporary: Option<PathBuf>,
    /// The Unix socket on which the process listens.
    pub socket: PathBuf,
    /// Directory for scratch files.
    pub temp: PathBuf,
    /// Memory limit of a statement, bytes.
    pub memory_bytes: u64,
    /// Number of threads that compute rows.
    pub threads: usize,
    /// True for statements of a server: the system limits the memory of the process, and rows have the schema that
    /// clients received before. False for statements of the user who started the process.
    pub is_for_server: bool,
    /// True if requests carry the grants of their principal.
    pub has_grants: bool,
    /// Files with the secret keys of encrypted files.
    pub keys: Vec<PathBuf>,
    /// File with the passphrase of the keys.
    pub passphrase: Option<PathBuf>,
    /// The program `godwit`, which decodes CRAM files.
    pub godwit_program: PathBuf,
}

impl StatementProcessOptions {
    /// Returns the arguments of `godwit-sql` for these options.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: &OsStr| arguments.extend([OsString::from(name), value.to_owned()]);
        let optional = [("--reference", &self.reference), ("--temporary", &self.temporary)];
        let optional = optional.into_iter().chain([("--c4gh-passphrase", &self.passphrase)]);
        for (name, value) in optional.filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            add(name, value.as_os_str());
        }
        for key in &self.keys {
            add("--c4gh-key", key.as_os_str());
        }
        add("--root", self.root.as_os_str());
        add("--socket", self.socket.as_os_str());
        add("--temp", self.temp.as_os_str());
        add("--memory-bytes", self.memory_bytes.to_string().as_ref());
        add("--threads", self.threads.to_string().as_ref());
        add("--godwit", self.godwit_program.as_os_str());
        arguments.extend(self.is_for_server.then(|| "--server".into()));
        arguments.extend(self.has_grants.then(|| "--grants".into()));
        arguments
    }

    /// Parses the arguments that [`Self::arguments`] returned.
    ///
    /// # Errors
    /// The problem, if an argument is unknown or invalid.
    pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let (mut options, mut arguments) = (Self::default(), arguments.into_iter());
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{} needs a value", name.display()));
            match name.to_str().unwrap_or_default() {
                "--root" => options.root = value()?.into(),
                "--reference" => options.reference = Some(value()?.into()),
                "--temporary" => options.temporary = Some(value()?.into()),
                "--socket" => options.socket = value()?.into(),
                "--temp" => options.temp = value()?.into(),
                "--memory-bytes" => options.memory_bytes = parse_number(&value()?)?,
                "--threads" => options.threads = parse_number(&value()?)?,
                "--c4gh-key" => options.keys.push(value()?.into()),
                "--c4gh-passphrase" => options.passphrase = Some(value()?.into()),
                "--godwit" => options.godwit_program = value()?.into(),
                "--server" => options.is_for_server = true,
                "--grants" => options.has_grants = true,
                _ => return Err(format!("unknown argument {}", name.display())),
            }
        }
        Ok(options)
    }
}

fn parse_number<N: std::str::FromStr>(text: &OsStr) -> Result<N, String> {
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{} is not a number", text.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn all_options_pass_through_arguments_even_if_paths_are_not_valid_utf_8() {
        let path = |name: &[u8]| PathBuf::from(OsString::from_vec(name.to_vec()));
        let options = StatementProcessOptions {
            root: path(b"a\xFF b"),
            reference: Some(path(b"--root")),
            temporary: Some(path(b"t")),
            socket: path(b"s"),
            temp: path(b""),
            memory_bytes: u64::MAX,
            threads: 7,
            is_for_server: true,
            has_grants: true,
            keys: vec![path(b"k1"), path(b"k2")],
            passphrase: Some(path(b"p")),
            godwit_program: path(b"/proc/1/exe"),
        };
        assert_eq!(StatementProcessOptions::from_arguments(options.arguments()), Ok(options));
    }

    #[test]
    fn unknown_and_incomplete_arguments_are_rejected() {
        for arguments in [&["--data", "x"][..], &["--root"], &["--threads", "many"], &["SELECT 1"]] {
            let arguments = arguments.iter().map(OsString::from);
            assert!(StatementProcessOptions::from_arguments(arguments).is_err());
        }
    }
}
