//! `godwit man`: generates manual pages and the reference of all verbs from clap's definition of the command line.

use std::path::Path;

use clap::{Command, CommandFactory};
use godwit_pipeline::PipelineError;

mod reference_pages;

use crate::cli::{Cli, ManArgs};
use crate::failure::{Failure, print};
use godwit_model::ErrorKind;
use reference_pages::reference_pages;

/// Prints the requested pages on stdout, or writes them into a directory.
pub fn run(args: &ManArgs) -> Result<(), Failure> {
    let mut root = Cli::command();
    root.build();
    match &args.out {
        None if args.markdown => {
            let texts = reference_pages(&root).into_iter().map(|page| page.text);
            print(&texts.collect::<Vec<_>>().join("\n"))
        }
        None => print(&manual_page(&root)?),
        Some(directory) if args.markdown => {
            write_pages(reference_pages(&root).into_iter().map(|page| (page.file_name, page.text)).collect(), directory)
        }
        Some(directory) => write_pages(manual_pages(&root)?, directory),
    }
}

fn manual_page(command: &Command) -> Result<String, Failure> {
    let mut text = Vec::new();
    let manual =
        clap_mangen::Man::new(command.clone()).manual("godwit").source(concat!("godwit ", env!("CARGO_PKG_VERSION")));
    let written = manual.render(&mut text);
    written.map_err(|error| Failure::new(ErrorKind::Bug, format!("the manual page cannot be made: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the command of the program and those of all visible verbs; each verb is followed by its subcommands.
fn visible_commands(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    [command].into_iter().chain(below.flat_map(visible_commands)).collect()
}

/// Returns the manual page of each verb with its file name.
fn manual_pages(root: &Command) -> Result<Vec<(String, String)>, Failure> {
    let name = |command: &Command| format!("{}.1", command.get_display_name().unwrap_or(command.get_name()));
    visible_commands(root).into_iter().map(|command| Ok((name(command), manual_page(command)?))).collect()
}

/// Writes pages, each with its file name, into a directory, which is created if it does not exist.
fn write_pages(pages: Vec<(String, String)>, directory: &Path) -> Result<(), Failure> {
    let failed = |action: &'static str, path: &Path, source| -> Failure {
        PipelineError::File { action, path: path.to_owned(), source }.into()
    };
    std::fs::create_dir_all(directory).map_err(|source| failed("create", directory, source))?;
    for (name, text) in pages {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|source| failed("write", &path, source))?;
    }
    Ok(())
}
