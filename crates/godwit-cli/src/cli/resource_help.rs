//! Help of `--threads`, `--memory` and `--temp`. All verbs with [`CommonArgs`](super::CommonArgs) accept these options;
//! each function here states the defaults of a verb, or that an option has no effect on it.

use clap::Arg;

/// Ids of the options that each verb describes by itself.
pub(crate) const RESOURCE_OPTIONS: [&str; 3] = ["threads", "memory", "temp"];

const CORES: &str = "Threads [default: all cores]";
const CORES_OF_WORKER: &str = "Threads [default: all cores; with --on local, an equal share for each worker]";
const BESIDE_OUTPUT: &str = "Directory for scratch files [default: beside the output]";
const OF_SYSTEM: &str = "Directory for scratch files [default: TMPDIR or /tmp]";
const NO_EFFECT: &str = "Has no effect on this verb; every verb accepts this option";
const MEMORY_OF_ALIGN: &str =
    "Memory of godwit itself, without the aligner (512M, 8G) [default: 512M, or what the block size needs]";
const MEMORY_OF_STATEMENT: &str = "Memory of a statement on local data (512M, 8G) [default: 2G]";

fn describe(arg: Arg, threads: &'static str, memory: &'static str, temp: &'static str) -> Arg {
    let help = match arg.get_id().as_str() {
        "threads" => threads,
        "memory" => memory,
        "temp" => temp,
        _ => return arg,
    };
    arg.help(help)
}

/// Describes the options of a verb that uses no resource but threads.
pub(super) fn threads_only(arg: Arg) -> Arg {
    describe(arg, CORES, NO_EFFECT, NO_EFFECT)
}

/// Describes the options of a verb whose work is that of other programs.
pub(super) fn none(arg: Arg) -> Arg {
    describe(arg, NO_EFFECT, NO_EFFECT, NO_EFFECT)
}

pub(super) fn align(arg: Arg) -> Arg {
    describe(arg, CORES_OF_WORKER, MEMORY_OF_ALIGN, BESIDE_OUTPUT)
}

pub(super) fn demo(arg: Arg) -> Arg {
    describe(arg, CORES, MEMORY_OF_ALIGN, BESIDE_OUTPUT)
}

pub(super) fn run(arg: Arg) -> Arg {
    let threads = "Threads of each sample [default: all cores; with --on, an equal share for each sample on a host]";
    describe(arg, threads, MEMORY_OF_ALIGN, BESIDE_OUTPUT)
}

pub(super) fn markdup(arg: Arg) -> Arg {
    let memory = "Memory (512M, 8G) [default: 8G, or half of the host's memory if that is less]";
    describe(arg, CORES, memory, BESIDE_OUTPUT)
}

pub(super) fn call(arg: Arg) -> Arg {
    let memory = "Memory of all callers together (512M, 8G) [default: half of the host's memory]";
    describe(arg, CORES_OF_WORKER, memory, BESIDE_OUTPUT)
}

pub(super) fn recalibrate(arg: Arg) -> Arg {
    let memory =
        "Memory of all GATK processes together, with --engine gatk (512M, 8G) [default: half of the host's memory]";
    describe(arg, CORES, memory, BESIDE_OUTPUT)
}

pub(super) fn compare(arg: Arg) -> Arg {
    describe(arg, CORES, NO_EFFECT, OF_SYSTEM)
}

pub(super) fn query(arg: Arg) -> Arg {
    describe(arg, CORES, MEMORY_OF_STATEMENT, OF_SYSTEM)
}

pub(super) fn search(arg: Arg) -> Arg {
    let memory = "Memory of reports; further reports wait in scratch files (512M, 8G) [default: 1G]";
    describe(arg, CORES_OF_WORKER, memory, OF_SYSTEM)
}

pub(super) fn mount(arg: Arg) -> Arg {
    let temp = "Directory for files that are being written, until they are closed [default: TMPDIR or /tmp]";
    describe(arg, CORES, "Has no effect on this verb; use --cache", temp)
}

pub(super) fn serve(arg: Arg) -> Arg {
    let memory = "Has no effect on this verb; use --statement-memory and --put-memory";
    describe(arg, CORES, memory, OF_SYSTEM)
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::RESOURCE_OPTIONS;
    use crate::cli::Cli;

    fn verbs(command: &Command) -> Vec<&Command> {
        [command].into_iter().chain(command.get_subcommands().flat_map(verbs)).collect()
    }

    #[test]
    fn every_verb_states_its_own_defaults() {
        let root = Cli::command();
        let mut described = 0;
        // Only verbs with the common options have all three of these.
        let has_common_options = |verb: &&Command| {
            RESOURCE_OPTIONS.iter().chain(&["quiet"]).all(|id| verb.get_arguments().any(|arg| arg.get_id() == *id))
        };
        for verb in verbs(&root).into_iter().filter(has_common_options) {
            for id in RESOURCE_OPTIONS {
                let arg = verb.get_arguments().find(|arg| arg.get_id() == id).unwrap();
                let help = arg.get_help().unwrap().to_string();
                assert!(
                    help.contains(" [default: ") || help.starts_with("Has no effect"),
                    "{}: {help}",
                    verb.get_name()
                );
                described += 1;
            }
        }
        assert!(described >= 3 * 19, "{described}");
    }
}
