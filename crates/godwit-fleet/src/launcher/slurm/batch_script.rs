//! Renders the SLURM batch script of a job, which users can read before the job is submitted.

use std::time::Duration;

use super::profile::{MemoryRequest, SlurmProfile};
use crate::FleetError;
use crate::launcher::JobSpec;
use crate::shell_quoting::{quote_command_line, quote_word, utf8_word};

const MIB: u64 = 1 << 20;

/// The part of the batch script that claims an attempt number for this start of the job, and that writes an exit mark
/// when the script ends.
///
/// SLURM sends TERM to the script for two reasons. Before the time limit, the job is still `RUNNING` and requests to be
/// requeued. If the job was cancelled or its time is over, the job is `COMPLETING` and must not be requeued. A
/// preempted job also continues for a while, but then SLURM signals only the workers (observed with 22.05), which shows
/// in their exit status.
///
/// If only the head is killed, for example because the host is out of memory, the run ends, but the data on the workers
/// remains. The script then requeues the job, but at most three times, because a head that is killed in every attempt
/// has a permanent cause.
const ATTEMPT_SETUP_SCRIPT: &str = r#"attempt=${SLURM_RESTART_COUNT:-0}
# Each start takes a number of its own. Higher than SLURM's count where the job was submitted twice.
until mkdir -m 700 "$job/attempts/$attempt" 2>/dev/null; do
    [ -d "$job/attempts/$attempt" ] || { echo "godwit: cannot write into $job/attempts" >&2; exit 4; }
    attempt=$((attempt + 1))
done
mark=$job/attempts/$attempt
echo "$SLURM_JOB_ID" >"$mark/job"
export GODWIT_ATTEMPT=$attempt

# Writes a mark with the exit status: without a mark, the job does not count as successful.
stage=setup
stopping=no
is_running() {
    # A controller that is busy or starts again says nothing for a while.
    for pause in 1 2 4 8 0; do
        state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) && [ -n "$state" ] && break
        sleep "$pause"
    done
    [ "$state" = RUNNING ]
}
finish() {
    status=$?
    trap '' TERM
    # Workers that were told to stop keep what they have and end with 130, or with 143 before they listen.
    case $stage.$status in
        work.130 | work.143) ! is_running || stopping=yes ;;
        # Killed by KILL, ABRT, BUS or SEGV: another start goes on with what the nodes have, three times.
        work.13[4579]) [ -e "$mark/finished" ] || [ "${SLURM_RESTART_COUNT:-0}" -ge 3 ] || ! is_running || stopping=yes ;;
    esac
    if [ "$stopping" = yes ] && [ "$status" -ne 0 ]; then
        echo "godwit: attempt $attempt stopped with status $status; queueing again"
        scontrol requeue "$SLURM_JOB_ID" && exit "$status"
        stage=limit
    fi
    echo "$stage $status" >"$mark/end.new" && mv "$mark/end.new" "$mark/end"
}
trap finish EXIT

# SLURM sends TERM before the time limit. A job that is being cancelled gets it too, but is no longer running then.
stop() {
    is_running || return
    stopping=yes
    echo "godwit: attempt $attempt is asked to stop"
    scancel --signal=TERM "$SLURM_JOB_ID"
}
trap stop TERM
"#;

/// The part of the batch script that waits for the workers. A signal interrupts bash's `wait`, so the loop repeats it.
/// The last `wait` returns the exit status of the job step.
const WAIT_SCRIPT: &str = r#"step=$!
while kill -0 "$step" 2>/dev/null; do
    wait "$step"
done
wait "$step"
exit "$?"
"#;

/// The shell command of each task. A task writes its output directly to its own files, so that it does not depend on
/// the host of the batch script.
///
/// Task 0 is the head. The shell waits for it and marks its end, also if it was killed or did not start: the workers on
/// the other hosts would wait for it otherwise. SLURM sends signals to all processes of a task; the shell ignores those
/// that the head handles.
const TASK_SCRIPT: &str = r#"export GODWIT_NODE="$SLURM_PROCID"; logs="$GODWIT_JOB_DIRECTORY/logs/node-$GODWIT_NODE"
[ "$GODWIT_NODE" = 0 ] || exec "$@" >>"$logs.out" 2>>"$logs.err"
trap : TERM INT HUP
"$@" >>"$logs.out" 2>>"$logs.err"
status=$?
: >"$GODWIT_JOB_DIRECTORY/attempts/$GODWIT_ATTEMPT/head-ended"
exit "$status""#;

/// Returns the batch script of a job for the settings of a site.
pub(super) fn render_script(job: &JobSpec, profile: &SlurmProfile) -> Result<String, FleetError> {
    let checked = job.validate()?;
    let mut script = format!(
        "#!/bin/bash\n# Job {} of godwit {} on {} hosts. Submit it with sbatch; godwit did so with sbatch \
         --parsable.\n",
        job.name,
        crate::VERSION,
        job.workers
    );
    for argument in sbatch_arguments(job, profile, checked.job_directory, checked.working_directory)? {
        script += &format!("#SBATCH {}\n", directive_word(&argument)?);
    }
    script += &format!("\njob={}\n", quote_word(checked.job_directory));
    script += "export GODWIT_JOB_DIRECTORY=\"$job\"\n";
    script += &format!("export GODWIT_NODES={} GODWIT_VERSION={}\n", job.workers, quote_word(crate::VERSION));
    script += ATTEMPT_SETUP_SCRIPT;
    if !profile.setup.is_empty() {
        script += "\n# The site's setup.\n";
        for line in &profile.setup {
            script += line;
            script.push('\n');
        }
    }
    script += "\n# The workers, one on each host. The loss of one does not end the others.\n";
    for (name, value) in &job.environment {
        script += &format!("export {name}={}\n", quote_word(value));
    }
    script += "[ \"$stopping\" = no ] || exit 130\nstage=work\n";
    script += &format!("{} \\\n    {} &\n", srun_command_line(job, profile), quote_command_line(checked.command));
    script += WAIT_SCRIPT;
    Ok(script)
}

fn srun_command_line(job: &JobSpec, profile: &SlurmProfile) -> String {
    let mut words = vec![
        "srun".to_owned(),
        format!("--nodes={}", job.workers),
        format!("--ntasks={}", job.workers),
        "--ntasks-per-node=1".to_owned(),
        // Since SLURM 22.05, srun does not inherit this option from sbatch (according to the release notes).
        format!("--cpus-per-task={}", job.cpus_per_worker),
        "--export=ALL".to_owned(),
        "--input=none".to_owned(),
        "--mpi=none".to_owned(),
        "--no-kill".to_owned(),
        "--kill-on-bad-exit=0".to_owned(),
        "--wait=0".to_owned(),
    ];
    words.extend(profile.step_arguments.iter().cloned());
    words.extend(["bash", "-c", TASK_SCRIPT, "worker"].map(str::to_owned));
    quote_command_line(words.iter().map(String::as_str))
}

/// Returns the arguments that `#SBATCH` lines pass to sbatch.
fn sbatch_arguments(
    job: &JobSpec,
    profile: &SlurmProfile,
    job_directory: &str,
    working_directory: &str,
) -> Result<Vec<String>, FleetError> {
    let mut arguments = vec![
        format!("--job-name={}", job.name),
        format!("--nodes={}", job.workers),
        "--ntasks-per-node=1".to_owned(),
        format!("--cpus-per-task={}", job.cpus_per_worker),
    ];
    let mib = |bytes: u64| bytes.div_ceil(MIB).max(1);
    match (profile.memory, job.memory_bytes_per_worker) {
        (MemoryRequest::PerNode, Some(bytes)) => arguments.push(format!("--mem={}M", mib(bytes))),
        (MemoryRequest::PerCpu, Some(bytes)) => {
            let per_cpu = mib(bytes.div_ceil(u64::from(job.cpus_per_worker)));
            arguments.push(format!("--mem-per-cpu={per_cpu}M"));
        }
        (MemoryRequest::None, _) | (_, None) => {}
    }
    let time = job.time_limit.map(format_slurm_time).or_else(|| profile.time.clone());
    let optional = [
        ("account", &profile.account),
        ("partition", &profile.partition),
        ("qos", &profile.qos),
        ("constraint", &profile.constraint),
        ("time", &time),
    ];
    arguments.extend(optional.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))));
    arguments.extend([
        format!("--signal=B:TERM@{}", profile.stop_before_limit_s),
        "--requeue".to_owned(),
        "--no-kill".to_owned(),
        "--open-mode=append".to_owned(),
        "--export=ALL".to_owned(),
        "--input=none".to_owned(),
        format!("--chdir={working_directory}"),
        // sbatch replaces patterns such as %j in the path of a log, so escape the percent signs.
        format!("--output={}/job.log", job_directory.replace('%', "%%")),
    ]);
    for argument in &profile.extra_arguments {
        if !argument.starts_with('-') {
            return Err(FleetError::invalid_value(
                "an extra argument of sbatch",
                argument,
                "it does not start with '-'",
            ));
        }
        arguments.push(argument.clone());
    }
    Ok(arguments)
}

/// Formats a duration for SLURM as days, hours, minutes and seconds, rounded up to whole seconds.
fn format_slurm_time(limit: Duration) -> String {
    let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Quotes a word of an `#SBATCH` line. The word is put between double quotes, in which a backslash escapes the next
/// character (SLURM 22.05, `src/sbatch/opt.c`, `_get_argument`).
fn directive_word(word: &str) -> Result<String, FleetError> {
    utf8_word("an argument of sbatch", word.as_ref())?;
    if word.contains(['\n', '\r']) {
        return Err(FleetError::invalid_value(
            "an argument of sbatch",
            word,
            "an argument in the job script cannot contain a line break",
        ));
    }
    // In the path of a log, sbatch interprets a backslash as the request to replace no patterns.
    if word.contains('\\') {
        return Err(FleetError::invalid_value(
            "an argument of sbatch",
            word,
            "it contains a backslash, which sbatch removes",
        ));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-[]*|&()".contains(&byte);
    if word.bytes().all(plain) {
        return Ok(word.to_owned());
    }
    Ok(format!("\"{}\"", word.replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::launcher::job_spec::tests::job;

    fn profile() -> SlurmProfile {
        SlurmProfile { account: Some("lab".into()), setup: vec!["module load bwa".into()], ..SlurmProfile::default() }
    }

    fn directives(job: &JobSpec, profile: &SlurmProfile) -> Vec<String> {
        let script = render_script(job, profile).unwrap();
        script.lines().filter_map(|line| line.strip_prefix("#SBATCH ")).map(str::to_owned).collect()
    }

    #[test]
    fn options_of_the_site_and_of_the_job_are_passed_to_sbatch() {
        let mut job = job(Path::new("/work"), &["godwit", "node"], 4);
        job.time_limit = Some(Duration::from_millis(90_061_001));
        job.memory_bytes_per_worker = Some(3 * MIB + 1);
        job.cpus_per_worker = 2;
        let lines = directives(&job, &profile());
        for line in ["--nodes=4", "--account=lab", "--mem=4M", "--time=1-01:01:02", "--signal=B:TERM@300", "--requeue"]
        {
            assert!(lines.contains(&line.to_owned()), "{line}: {lines:?}");
        }
        let per_cpu = directives(&job, &SlurmProfile { memory: MemoryRequest::PerCpu, ..profile() });
        assert!(per_cpu.contains(&"--mem-per-cpu=2M".to_owned()), "{per_cpu:?}");
        let silent = directives(&job, &SlurmProfile { memory: MemoryRequest::None, ..profile() });
        assert!(!silent.iter().any(|line| line.starts_with("--mem")), "{silent:?}");
    }

    #[test]
    fn the_jobs_own_time_limit_goes_before_the_sites() {
        let mut job = job(Path::new("/work"), &["true"], 1);
        let site = SlurmProfile { time: Some("4:00:00".into()), ..profile() };
        assert!(directives(&job, &site).contains(&"--time=4:00:00".to_owned()));
        job.time_limit = Some(Duration::from_secs(60));
        assert!(directives(&job, &site).contains(&"--time=0-00:01:00".to_owned()));
    }

    #[test]
    fn no_argument_becomes_a_second_line_or_a_second_argument() {
        let good = job(Path::new("/work"), &["true"], 1);
        let extra = |word: &str| SlurmProfile { extra_arguments: vec![word.into()], ..profile() };
        assert_eq!(directives(&good, &extra("--comment=a b \"c\" #d")).last().unwrap(), r#""--comment=a b \"c\" #d""#);
        for bad in ["--comment=a\nrm", "rm", "--comment=\\"] {
            assert!(render_script(&good, &extra(bad)).is_err(), "{bad:?}");
        }
        assert!(render_script(&job(Path::new("/a\nb"), &["true"], 1), &profile()).is_err());
    }

    #[test]
    fn the_script_is_one_bash_reads() {
        let mut odd = job(Path::new("/it's odd $HOME"), &["echo", "it's", "a b\nc"], 2);
        odd.environment = vec![("ODD".into(), "'\"`$x`\n".into())];
        let script = render_script(&odd, &profile()).unwrap();
        let checked = std::process::Command::new("bash").args(["-n", "-c", &script]).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        assert!(script.contains(crate::VERSION));
        let at = |text: &str| script.find(text).unwrap_or_else(|| panic!("{text} is in the script:\n{script}"));
        assert!(at("module load bwa") < at("export ODD=") && at("export ODD=") < at("srun "));
    }
}
