//! The command line of the alignment programs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::Error;
use crate::{MemLibrary, align_command, options, path_to_c_string};

/// Parses the command line, runs the subcommand (`index`, `align`, `check`, `--version` or `--help`), and returns the
/// exit code for `main`.
pub fn run_program<L: MemLibrary>() -> ExitCode {
    let arguments: Vec<String> = match std::env::args_os().skip(1).map(|word| word.into_string()).collect() {
        Ok(arguments) => arguments,
        Err(word) => return usage_error(format!("the argument {word:?} is not UTF-8")).exit_code(L::PROGRAM),
    };
    match run_subcommand::<L>(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.exit_code(L::PROGRAM),
    }
}

fn help_text<L: MemLibrary>() -> String {
    let (program, engine) = (L::PROGRAM, L::ENGINE);
    let index = if L::BUILD_INDEX.is_some() {
        format!(
            "  {program} index REF.fa PREFIX\n      writes the index to PREFIX.*, the same bytes as {engine} index\n"
        )
    } else {
        String::new()
    };
    format!(
        "\
{engine} mem as a program that reads blocks of reads and writes Arrow batches; godwit starts it

usage:
{index}  {program} align --reference REF.fa --threads N [--share-index] [-- BWA-MEM-OPTIONS]
      blocks of reads on stdin, aligned blocks on stdout, until stdin ends
      --share-index  map the index files where the engine can, so that processes on one machine share the memory
  {program} check -- BWA-MEM-OPTIONS
      reports whether align accepts these options
  {program} --version

example:
  {program} check -- -M -Y"
    )
}

fn run_subcommand<L: MemLibrary>(arguments: &[String]) -> Result<(), Error> {
    L::prepare_process().map_err(|problem| Error::UnsupportedProcessor { problem })?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--version" | "-V"] => {
            println!("{} {} ({} {})", L::PROGRAM, env!("CARGO_PKG_VERSION"), L::ENGINE, L::VERSION);
            Ok(())
        }
        ["--help" | "-h" | "help"] => {
            println!("{}", help_text::<L>());
            Ok(())
        }
        ["index", reference, prefix] => build_index::<L>(reference.as_ref(), prefix.as_ref()),
        ["check", "--", ..] => check_options::<L>(&arguments[2..]),
        ["align", ..] => align_command::run_align::<L>(&parse_align_arguments::<L>(&arguments[1..])?),
        _ => Err(usage_error(format!("unknown command; {} --help lists the commands", L::PROGRAM))),
    }
}

fn build_index<L: MemLibrary>(reference: &Path, prefix: &Path) -> Result<(), Error> {
    let build =
        L::BUILD_INDEX.ok_or_else(|| usage_error(format!("{} builds no index; run godwit index", L::PROGRAM)))?;
    File::open(reference).map_err(|source| Error::Reference { path: reference.to_owned(), source })?;
    let problem = |status| Error::BuildIndex { engine: L::ENGINE, reference: reference.to_owned(), status };
    build(&path_to_c_string(reference)?, &path_to_c_string(prefix)?).map_err(problem)
}

fn parse_align_arguments<L: MemLibrary>(arguments: &[String]) -> Result<align_command::AlignArguments, Error> {
    let (mut reference, mut threads, mut share_index, mut mem_options) = (None, 1, false, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| usage_error(format!("{word} needs a value")));
        match word.as_str() {
            "--reference" => reference = Some(PathBuf::from(value()?)),
            "--threads" => {
                let count = value()?;
                let parsed = count.parse().ok().filter(|threads| *threads > 0);
                threads =
                    parsed.ok_or_else(|| usage_error(format!("--threads is {count:?}, not a positive number")))?;
            }
            "--share-index" => share_index = true,
            "--" => {
                mem_options = words.as_slice().to_vec();
                break;
            }
            other => {
                return Err(usage_error(format!("unexpected argument {other:?}; options of bwa mem come after --")));
            }
        }
    }
    let reference = reference.ok_or_else(|| usage_error("align needs --reference".into()))?;
    let options = options::AlignmentOptions::parse(&mem_options, threads)?;
    L::check_options(&options).map_err(usage_error)?;
    Ok(align_command::AlignArguments { reference, share_index, options })
}

fn check_options<L: MemLibrary>(mem_options: &[String]) -> Result<(), Error> {
    let options = options::AlignmentOptions::parse(mem_options, 1)?;
    L::check_options(&options).map_err(usage_error)
}

fn usage_error(message: String) -> Error {
    Error::Usage { message }
}
