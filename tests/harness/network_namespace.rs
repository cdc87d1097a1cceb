//! Network namespaces, in which a test emulates several hosts on one machine.

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::processes::end_with_this_thread;
use crate::tool::{Tool, run_checked};

/// A network namespace with a loopback interface. Dropping it removes the namespace and its interfaces.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
}

impl NetworkNamespace {
    /// Reports whether this process may create network namespaces.
    pub fn are_permitted() -> bool {
        let name = next_name("probe");
        let run = |words: &[&str]| {
            let output = Tool::require("ip").command().arg("netns").args(words).output();
            output.is_ok_and(|output| output.status.success())
        };
        let is_created = run(&["add", &name]) && run(&["exec", &name, "true"]);
        run(&["del", &name]);
        is_created
    }

    /// Creates a namespace whose name contains `label`.
    ///
    /// # Panics
    /// When that fails.
    pub fn create(label: &str) -> Self {
        let name = next_name(label);
        Tool::require("ip").run(["netns", "add", &name]);
        let created = Self { name };
        created.ip("link set lo up");
        created
    }

    /// Returns the name, for `netns NAME` in command lines of ip(8).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command line that runs a program in the namespace. The process id is that of the program, which has mounts
    /// of its own: `/sys` shows the interfaces of the namespace. The program ends with the thread that starts it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Tool::require("ip").command();
        command.args(["netns", "exec", &self.name]).arg(program);
        end_with_this_thread(&mut command);
        command
    }

    /// Returns a command line as [`Self::command`] does, but the program has the mounts of this process, which sees the files
    /// that the program mounts.
    pub fn command_with_shared_mounts(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Tool::require("nsenter").command();
        command.arg(format!("--net=/run/netns/{}", self.name)).arg(program);
        command
    }

    /// Runs ip(8) on the namespace, with the words of `text`.
    ///
    /// # Panics
    /// When it fails.
    pub fn ip(&self, text: &str) -> Output {
        let mut command = Tool::require("ip").command();
        run_checked(command.args(["-n", &self.name]).args(text.split_whitespace()))
    }

    /// Limits the rate at which an interface sends, bytes a second; with `None`, ends the limit. Needs tc(8).
    ///
    /// # Panics
    /// When that fails.
    pub fn limit_rate(&self, interface: &str, bytes_per_s: Option<u64>) {
        let change = if bytes_per_s.is_some() { "add" } else { "del" };
        let mut command = self.command("tc");
        command.args(["qdisc", change, "dev", interface, "root"]);
        if let Some(rate) = bytes_per_s {
            command.args(["tbf", "rate", &format!("{rate}bps"), "burst", "256k", "latency", "100ms"]);
        }
        run_checked(&mut command);
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        // A namespace that cannot be removed disturbs no other test.
        let _ = Tool::require("ip").command().args(["netns", "del", &self.name]).output();
    }
}

/// Returns a name that no other namespace has.
fn next_name(label: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}-{label}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::wait_until_exited;

    #[test]
    fn programs_in_a_namespace_end_with_the_thread_that_started_them() {
        if Tool::find("ip").is_none() || !NetworkNamespace::are_permitted() {
            crate::skip!("network-namespaces", "network namespaces may not be made");
        }
        let namespace = NetworkNamespace::create("ended");
        let mut command = namespace.command("sleep");
        command.arg("1000");
        let mut program = std::thread::scope(|scope| {
            scope.spawn(|| command.spawn().expect("it starts")).join().expect("it does not panic")
        });
        wait_until_exited(&[program.id()]);
        program.wait().expect("it can be waited for");
    }
}
