//! `bwa mem` for godwit: loads an index once, takes blocks of reads on stdin, answers with aligned records and duplicate
//! signatures on stdout, both as Arrow streams (`godwit_engines::aligner::protocol`). Started by `godwit align`.

mod align;
mod bwa;
mod encode;
mod error;
mod index;
mod options;
mod sequences;

use std::path::PathBuf;
use std::process::ExitCode;

use error::Error;

const HELP: &str = "\
bwa mem as a program that takes blocks of reads and returns Arrow batches; godwit starts it by itself

usage:
  godwit-bwa index REF.fa
      writes the index beside the reference, the same bytes as bwa index
  godwit-bwa align --reference REF.fa --threads N [--share-index] [-- BWA-MEM-OPTIONS]
      blocks of reads on stdin, aligned blocks on stdout, until stdin ends
      --share-index  map the index files, so that processes on one machine share the memory
  godwit-bwa check -- BWA-MEM-OPTIONS
      whether align would take these options
  godwit-bwa --version

example:
  godwit-bwa index ref.fa";

fn main() -> ExitCode {
    let arguments: Vec<String> = match std::env::args_os().skip(1).map(|word| word.into_string()).collect() {
        Ok(arguments) => arguments,
        Err(word) => return usage(format!("the argument {word:?} is not UTF-8")).exit_code(),
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.exit_code(),
    }
}

fn run(arguments: &[String]) -> Result<(), Error> {
    bwa::print_warnings_only();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--version" | "-V"] => {
            println!("godwit-bwa {} (bwa {})", env!("CARGO_PKG_VERSION"), align::BWA_VERSION);
            Ok(())
        }
        ["--help" | "-h" | "help"] => {
            println!("{HELP}");
            Ok(())
        }
        ["index", reference] => index::build(reference.as_ref()),
        [index::PART, reference, prefix] => index::build_part(reference.as_ref(), prefix.as_ref()),
        ["check", "--", ..] => options::AlignmentOptions::parse(&arguments[2..], 1).map(drop),
        ["align", ..] => align::run(&align_arguments(&arguments[1..])?),
        _ => Err(usage("expected index, align, --version or --help; see godwit-bwa --help".into())),
    }
}

fn align_arguments(arguments: &[String]) -> Result<align::Arguments, Error> {
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
    Ok(align::Arguments { reference, share_index, options })
}

fn usage(message: String) -> Error {
    Error::Usage { message }
}
