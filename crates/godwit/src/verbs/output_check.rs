//! Check that the output of a verb does not replace one of its inputs.

use std::path::{Path, PathBuf};

use godwit_cli::failure::Failure;
use godwit_files::is_same_file;
use godwit_model::ErrorKind;

/// An input of a verb: its option or argument, as the command line names it, and its path.
pub(super) type NamedInput = (&'static str, PathBuf);

/// Rejects an output that is the same file as one of the inputs, also through a symbolic or hard link.
///
/// # Errors
/// Wrong usage; the message names `option`, which is the option or argument of the output, and that of the input.
pub(super) fn check_output(option: &str, out: &Path, inputs: &[NamedInput]) -> Result<(), Failure> {
    if !out.exists() {
        return Ok(());
    }
    let Some((input, path)) = inputs.iter().find(|(_, path)| is_same_file(out, path)) else { return Ok(()) };
    let (out, path) = (out.display(), path.display());
    let problem = format!(
        "{option} {out} is the same file as {input} {path}, which would be replaced; choose another name for the output"
    );
    Err(Failure::new(ErrorKind::Usage, problem))
}

/// Returns the files of the reference of `--reference`: the FASTA file and its indexes.
pub(super) fn reference_files(reference: &Path) -> Vec<NamedInput> {
    let index = |extension| ("the index of --reference", reference.with_added_extension(extension));
    vec![("--reference", reference.to_owned()), index("fai"), index("gzi")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_both_options() {
        let directory = tempfile::tempdir().expect("scratch");
        let (reference, link) = (directory.path().join("ref.fa"), directory.path().join("out.fa"));
        std::fs::write(&reference, ">c\nA\n").expect("scratch can be written");
        let inputs = reference_files(&reference);
        assert!(check_output("OUT", &link, &inputs).is_ok());
        std::fs::hard_link(&reference, &link).expect("scratch can be written");
        let failure = check_output("OUT", &link, &inputs).expect_err("it is the reference");
        assert_eq!(failure.kind, ErrorKind::Usage);
        let names = ["OUT ", "out.fa", "--reference ", "ref.fa"];
        assert!(names.iter().all(|name| failure.message.contains(name)), "{}", failure.message);
    }
}
