//! The command line of such a program.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::Error;
use crate::{MemLibrary, align, c_path, options};

/// The program: `index`, `align`, `check`, `--version`, `--help`. All of `main`.
pub fn run_program<L: MemLibrary>() -> ExitCode {
    let arguments: Vec<String> = match std::env::args_os().skip(1).map(|word| word.into_string()).collect() {
        Ok(arguments) => arguments,
        Err(word) => return usage(format!("the argument {word:?} is not UTF-8")).exit_code(L::PROGRAM),
    };
    match run::<L>(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.exit_code(L::PROGRAM),
    }
}

fn help<L: MemLibrary>() -> String {
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
{engine} mem as a program that takes blocks of reads and returns Arrow batches; godwit starts it by itself

usage:
{index}  {program} align --reference REF.fa --threads N [--share-index] [-- BWA-MEM-OPTIONS]
      blocks of reads on stdin, aligned blocks on stdout, until stdin ends
      --share-index  map the index files where the engine can, so that processes on one machine share the memory
  {program} check -- BWA-MEM-OPTIONS
      whether align would take these options
  {program} --version

example:
  {program} check -- -M -Y"
    )
}

fn run<L: MemLibrary>(arguments: &[String]) -> Result<(), Error> {
    L::prepare().map_err(|problem| Error::Machine { problem })?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--version" | "-V"] => {
            println!("{} {} ({} {})", L::PROGRAM, env!("CARGO_PKG_VERSION"), L::ENGINE, L::VERSION);
            Ok(())
        }
        ["--help" | "-h" | "help"] => {
            println!("{}", help::<L>());
            Ok(())
        }
        ["index", reference, prefix] => build_index::<L>(reference.as_ref(), prefix.as_ref()),
        ["check", "--", ..] => check::<L>(&arguments[2..]),
        ["align", ..] => align::run::<L>(&align_arguments::<L>(&arguments[1..])?),
        _ => Err(usage(format!("expected a command that {} --help lists", L::PROGRAM))),
    }
}

fn build_index<L: MemLibrary>(reference: &Path, prefix: &Path) -> Result<(), Error> {
    let build = L::BUILD_INDEX.ok_or_else(|| usage(format!("{} makes no index; run godwit index", L::PROGRAM)))?;
    File::open(reference).map_err(|source| Error::Reference { path: reference.to_owned(), source })?;
    let problem = |status| Error::Index { engine: L::ENGINE, reference: reference.to_owned(), status };
    build(&c_path(reference)?, &c_path(prefix)?).map_err(problem)
}

fn align_arguments<L: MemLibrary>(arguments: &[String]) -> Result<align::Arguments, Error> {
    let (mut reference, mut threads, mut share_index, mut mem_options) = (None, 1, false, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| usage(format!("{word} needs a value")));
        match word.as_str() {
            "--reference" => reference = Some(PathBuf::from(value()?)),
            "--threads" => {
                let count = value()?;
                let parsed = count.parse().ok().filter(|threads| *threads > 0);
                threads = parsed.ok_or_else(|| usage(format!("--threads is {count:?}, not a positive number")))?;
            }
            "--share-index" => share_index = true,
            "--" => {
                mem_options = words.as_slice().to_vec();
                break;
            }
            other => return Err(usage(format!("unexpected argument {other:?}; options of bwa mem come after --"))),
        }
    }
    let reference = reference.ok_or_else(|| usage("align needs --reference".into()))?;
    let options = options::AlignmentOptions::parse(&mem_options, threads)?;
    L::check(&options).map_err(usage)?;
    Ok(align::Arguments { reference, share_index, options })
}

fn check<L: MemLibrary>(mem_options: &[String]) -> Result<(), Error> {
    let options = options::AlignmentOptions::parse(mem_options, 1)?;
    L::check(&options).map_err(usage)
}

fn usage(message: String) -> Error {
    Error::Usage { message }
}
