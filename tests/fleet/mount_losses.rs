//! Pools mounted as files: samtools, bcftools and other programs read and write them, and do not fail when pool members are
//! killed, suspended or cut off from the network. For losses of the network, each member is in a network namespace of its own, and
//! the mount is in that of the clients; the programs use the mount only.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_tests::binary::{self, godwit, godwit_by};
use godwit_tests::gatk::gatk_command;
use godwit_tests::host_network::{HostLoss, HostNetwork};
use godwit_tests::random::Random;
use godwit_tests::wait::{wait_for, wait_until};
use godwit_tests::{needs, scratch, skip};

use super::mount_balance::MEMBERS;
use super::mounted_files::{MountedFiles, is_mounted, shell, skip_without_mounts};
use super::server_pool::{ServerPool, path_text};
use crate::transfer::copies::pseudorandom_bytes;

/// Rate of the link of each host in each direction, bytes a second: 200 Mbit/s.
const LINK_BYTES_PER_S: u64 = 25_000_000;
/// The losses of the long tests, one after another.
const LOSSES: [HostLoss; 3] = [HostLoss::Killed, HostLoss::CutOff, HostLoss::Suspended];
/// Time between the end of a loss and the next one in the long tests.
const LOSS_INTERVAL: Duration = Duration::from_secs(20);
/// Longest delay of a read or of another operation that a program may notice.
const MAX_STALL: Duration = Duration::from_secs(3);
/// Longest delay while the other tests use the same processors.
const MAX_STALL_ON_BUSY_MACHINE: Duration = Duration::from_secs(60);

/// Sets a flag when it is dropped, also if a test fails, so that the other threads of the test end.
struct EndOnDrop<'f>(&'f AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes reads in random order, their sorted and indexed BAM, and the reference, below a directory.
fn write_reads(directory: &Path, reads: usize) {
    let mut random = Random::new(45);
    let bases = 400_000;
    let reference = String::from_utf8(random.bases(bases)).expect("bases are letters");
    let lines: Vec<&str> = (0..bases).step_by(80).map(|start| &reference[start..(start + 80).min(bases)]).collect();
    fs::write(directory.join("ref.fa"), format!(">chr1\n{}\n", lines.join("\n"))).expect("it can be written");
    let mut sam = format!("@HD\tVN:1.6\n@SQ\tSN:chr1\tLN:{bases}\n@RG\tID:a\tSM:a\tPL:ILLUMINA\n");
    for number in 0..reads {
        let start = random.below(bases - 100);
        let quality = "F".repeat(100);
        let read = &reference[start..start + 100];
        sam += &format!("r{number}\t0\tchr1\t{}\t60\t100M\t*\t0\t0\t{read}\t{quality}\tRG:Z:a\n", start + 1);
    }
    fs::write(directory.join("unsorted.sam"), sam).expect("it can be written");
    let script = "samtools view -b -o unsorted.bam unsorted.sam && samtools sort -o s.bam unsorted.bam &&
        samtools index s.bam && samtools faidx ref.fa && samtools dict -o ref.dict ref.fa &&
        samtools fastq s.bam 2>/dev/null | gzip -1 >r.fastq.gz && rm unsorted.sam";
    shell(script, directory);
}

/// Scripts that read through the mount; the output must be that of the same script in the directory of the servers.
const READING_SCRIPTS: [&str; 5] = [
    "md5sum big",
    "samtools view s.bam chr1:100,000-120,000 | md5sum",
    "samtools view s.bam | md5sum",
    "bcftools mpileup -f ref.fa -r chr1:50000-60000 s.bam 2>/dev/null | grep -v '^##' | md5sum",
    "cp big /dev/stdout | cksum",
];

/// Scripts that write through the mount, and the scripts that describe what they have written.
const WRITING_SCRIPTS: [(&str, &str); 3] = [
    ("samtools sort -o out/sorted.bam unsorted.bam", "samtools view out/sorted.bam | md5sum"),
    ("cp big out/copy", "md5sum out/copy"),
    (
        "samtools view -b -o out/part.bam s.bam chr1:1-200,000 && samtools index out/part.bam",
        "samtools view out/part.bam chr1:7,000-9,000 | md5sum",
    ),
];

/// Further reading scripts, of programs that not every machine has or that take several seconds. The threads of fastp
/// write reads in any order.
const MORE_READING_SCRIPTS: [&str; 3] = [
    "fastp -i r.fastq.gz --stdout --json /dev/null --html /dev/null 2>/dev/null | paste - - - - | sort | md5sum",
    "pigz -d -c r.fastq.gz | md5sum",
    "pigz -c big | gzip -d | md5sum",
];

/// Returns a script by which HaplotypeCaller reads the reference and the reads of the current directory.
fn haplotype_caller_script() -> String {
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_str().expect("it is UTF-8"));
    let command = gatk_command("HaplotypeCaller");
    let settings =
        command.get_envs().filter_map(|(name, value)| Some(format!("{}={}", name.to_str()?, quoted(value?))));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    let words: Vec<String> = std::iter::once("env".to_owned()).chain(settings).chain(words).collect();
    let output = "-O /dev/stdout --create-output-variant-index false 2>/dev/null | grep -v '^##' | md5sum";
    format!("{} -R ref.fa -I s.bam -L chr1:100001-130000 {output}", words.join(" "))
}

/// Runs the scripts through a mount until `ended`; returns the number of runs.
fn run_programs(mount: &Path, root: &Path, reading_scripts: &[String], ended: &AtomicBool) -> usize {
    let expected: Vec<Vec<u8>> = reading_scripts.iter().map(|script| shell(script, root)).collect();
    let reference = scratch::directory("mount-expected");
    for name in ["big", "s.bam", "s.bam.bai", "unsorted.bam"] {
        fs::copy(root.join(name), reference.join(name)).expect("it can be copied");
    }
    fs::create_dir(reference.join("out")).expect("it can be made");
    let written: Vec<Vec<u8>> = WRITING_SCRIPTS
        .iter()
        .map(|(write, describe)| [shell(write, &reference), shell(describe, &reference)].concat())
        .collect();
    let mut runs = 0;
    while !ended.load(Ordering::Relaxed) {
        for (script, expected) in reading_scripts.iter().zip(&expected) {
            assert_eq!(shell(script, mount), *expected, "{script}");
            runs += 1;
        }
        for ((write, describe), expected) in WRITING_SCRIPTS.iter().zip(&written) {
            shell(write, mount);
            // The servers have the complete file when the program has closed it.
            assert_eq!(shell(describe, root), *expected, "{write}");
            assert_eq!(shell(describe, mount), *expected, "{write}");
            runs += 1;
        }
    }
    runs
}

/// Reads pieces of a file in random order until `ended`; returns the times of the reads in ascending order.
fn read_times(path: &Path, ended: &AtomicBool) -> Vec<Duration> {
    let (file, content) = (File::open(path).expect("it can be opened"), fs::read(path).expect("it can be read"));
    let (mut random, mut times, mut piece) = (Random::new(7), Vec::new(), vec![0; 4096]);
    while !ended.load(Ordering::Relaxed) || times.is_empty() {
        // SAFETY: the call has numbers only; it drops the pages, so that the next read reaches the server.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let offset = random.below(content.len() - piece.len());
        let started = Instant::now();
        file.read_exact_at(&mut piece, offset as u64).expect("it can be read");
        times.push(started.elapsed());
        assert!(piece == content[offset..offset + piece.len()], "other bytes at {offset}");
        std::thread::sleep(Duration::from_millis(5));
    }
    times.sort_unstable();
    times
}

/// Runs random operations on a file, compared with a vector, until `ended` or until there were `count`; returns the times of the
/// operations in ascending order.
fn random_operations(seed: u64, path: &Path, stored: &Path, count: usize, ended: &AtomicBool) -> Vec<Duration> {
    let (mut random, mut model, mut times) = (Random::new(seed), Vec::new(), Vec::new());
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it opens");
    let mut file = open();
    while times.len() < count && (!ended.load(Ordering::Relaxed) || times.len() < 50) {
        // Half of the files have one block.
        let end = if random.below(2) == 0 { 3_000 } else { 500_000 };
        let offset = random.below(end);
        let case = format!("seed {seed}, operation {}", times.len());
        let started = Instant::now();
        match random.below(9) {
            0..=2 => {
                let data = vec![random.below(256) as u8; 1 + random.below(60_000)];
                file.write_all_at(&data, offset as u64).expect("it can be written");
                model.resize(model.len().max(offset + data.len()), 0);
                model[offset..offset + data.len()].copy_from_slice(&data);
            }
            3 => {
                file.set_len(offset as u64).expect("its size can be set");
                model.resize(offset, 0);
            }
            4 => {
                file.sync_all().expect("it can be synced");
                assert!(fs::read(stored).expect("it is stored") == model, "{case}");
            }
            5 => {
                drop(file);
                assert!(fs::read(stored).expect("it is stored") == model, "{case}");
                file = open();
            }
            6 => {
                let other = path.with_extension("renamed");
                fs::rename(path, &other).expect("it can be renamed");
                assert!(fs::read(&other).expect("it can be read") == model, "{case}");
                fs::rename(&other, path).expect("it can be renamed");
            }
            _ => {
                let mut found = vec![0; random.below(90_000)];
                let read = file.read_at(&mut found, offset as u64).expect("it can be read");
                let expected = &model[offset.min(model.len())..(offset + found.len()).min(model.len())];
                assert!(found[..read] == expected[..read] && read == expected.len(), "{case}");
            }
        }
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times
}

/// The programs and their inputs, and the losses while they run.
struct LossScenario {
    reading_scripts: Vec<String>,
    /// Number of reads of the BAM files.
    reads: usize,
    /// Size of the file `big`.
    big_bytes: usize,
    losses: Vec<HostLoss>,
    /// Time between the end of a loss and the next one.
    interval: Duration,
    /// Longest delay of a read or of another operation.
    max_stall: Duration,
}

impl LossScenario {
    /// Returns a scenario for each run of the tests, in which only a defect delays a read for long.
    fn short(losses: &[HostLoss]) -> Self {
        Self {
            reading_scripts: READING_SCRIPTS.map(str::to_owned).to_vec(),
            reads: 5_000,
            big_bytes: 4_000_000,
            losses: losses.to_vec(),
            interval: Duration::ZERO,
            max_stall: MAX_STALL_ON_BUSY_MACHINE,
        }
    }
}

/// Loses the member that a mount uses most. Returns when the mount has noticed the loss and the member is back.
fn lose_a_member(pool: &mut ServerPool, mounted: &MountedFiles, loss: HostLoss) {
    let member = wait_for("the mount uses a member", || pool.member_of_process(mounted.process_id()));
    let process = pool.member_process_id(member);
    loss.cause(process, pool.network.as_ref(), member);
    wait_until("the mount uses other members", || pool.connections_of_process(mounted.process_id())[member] == 0);
    loss.end(process, pool.network.as_ref(), member);
    if loss == HostLoss::Killed {
        pool.start_member(member);
    }
    pool.wait_until_health_is(&[true; MEMBERS]);
}

/// Runs programs, reads and random operations through a mount of a pool while its members are lost and return, one at a time. No
/// program may fail.
fn check_programs_during_losses(mut pool: ServerPool, scenario: &LossScenario) {
    let &LossScenario { ref reading_scripts, reads, big_bytes, ref losses, interval, max_stall } = scenario;
    write_reads(&pool.root, reads);
    fs::write(pool.root.join("big"), pseudorandom_bytes(big_bytes)).expect("it can be written");
    fs::create_dir(pool.root.join("out")).expect("it can be made");
    let Some(mounted) = mount_pool(&pool) else { skip_without_mounts!() };
    let (point, root, ended) = (mounted.point.clone(), pool.root.clone(), AtomicBool::new(false));
    let (runs, reads, operations) = std::thread::scope(|scope| {
        let end = EndOnDrop(&ended);
        let programs = scope.spawn(|| run_programs(&point, &root, reading_scripts, &ended));
        let reads = scope.spawn(|| read_times(&point.join("big"), &ended));
        let random = scope
            .spawn(|| random_operations(2026, &point.join("out/random"), &root.join("out/random"), usize::MAX, &ended));
        let is_over = || programs.is_finished() || reads.is_finished() || random.is_finished();
        for (number, loss) in losses.iter().enumerate() {
            std::thread::sleep(interval);
            if is_over() {
                break;
            }
            lose_a_member(&mut pool, &mounted, *loss);
            eprintln!("loss {} of {}: {loss:?}", number + 1, losses.len());
        }
        drop(end);
        let (runs, times) = (programs.join().expect("no program failed"), reads.join().expect("no read failed"));
        (runs, times, random.join().expect("no operation failed"))
    });
    eprintln!("{} losses, {runs} programs, {} reads, {} operations", losses.len(), reads.len(), operations.len());
    check_stalls("read", &reads, max_stall);
    check_stalls("operation", &operations, max_stall);
    end_mount(mounted);
}

/// Prints how long the slowest operations took, and fails if one took `max_stall`.
fn check_stalls(what: &str, sorted_times: &[Duration], max_stall: Duration) {
    let (p99, longest) = (sorted_times[sorted_times.len() * 99 / 100], sorted_times[sorted_times.len() - 1]);
    eprintln!("{what}: p99 {p99:.3?}, longest {longest:.3?}");
    assert!(longest < max_stall, "a {what} took {longest:?}");
}

/// Mounts a pool, where the clients are; returns `None` where no mount is permitted.
fn mount_pool(pool: &ServerPool) -> Option<MountedFiles> {
    let command = match &pool.network {
        Some(network) => godwit_by(network.clients.command_with_shared_mounts(binary::path())),
        None => godwit(),
    };
    let words = [&ServerPool::url(""), "--pool", path_text(&pool.description), "--cache", "4M", "--wait", "1m"];
    MountedFiles::start_by(command, "mount-point", &words)
}

/// Unmounts a pool that lost members.
fn end_mount(mounted: MountedFiles) {
    let point = mounted.point.clone();
    let (code, said) = mounted.stop(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is lost; continuing at another member"), "{said}");
    assert!(!is_mounted(&point));
}

/// Starts a pool whose members are on hosts with links of the given rate; returns `None` where that is not permitted.
fn start_pool_on_hosts(label: &str, link_bytes_per_s: Option<u64>) -> Option<ServerPool> {
    if !HostNetwork::is_permitted() {
        return None;
    }
    let network = HostNetwork::create(MEMBERS);
    if let Some(rate) = link_bytes_per_s {
        network.limit_links(rate);
    }
    Some(ServerPool::start_on_hosts(network, label, "connections", &["--writable"]))
}

/// Starts a pool whose members are on hosts with links of the given rate. Skips the calling test where that is not permitted.
macro_rules! pool_on_hosts_or_skip {
    ($label:expr, $link_bytes_per_s:expr) => {
        match start_pool_on_hosts($label, $link_bytes_per_s) {
            Some(pool) => pool,
            None => skip!("network-namespaces", "network namespaces with slow links may not be made"),
        }
    };
}

#[test]
fn programs_do_not_notice_that_pool_members_are_killed_and_suspended() {
    needs!("python3", "samtools", "bcftools");
    let pool = ServerPool::start("mount-pool", "connections", MEMBERS, &["--writable"]);
    check_programs_during_losses(pool, &LossScenario::short(&[HostLoss::Killed, HostLoss::Suspended]));
}

#[test]
fn programs_do_not_notice_that_hosts_of_a_pool_are_cut_off() {
    needs!("python3", "samtools", "bcftools", "ip", "tc");
    let pool = pool_on_hosts_or_skip!("mount-hosts", Some(LINK_BYTES_PER_S));
    check_programs_during_losses(pool, &LossScenario::short(&[HostLoss::CutOff]));
}

#[test]
#[ignore = "a loss every 20 s, on a machine with nothing else to do; run it by name, with GODWIT_MOUNT_LOSSES and GODWIT_TEST_TIME_LIMIT"]
fn programs_do_not_notice_many_losses_and_no_read_takes_three_seconds() {
    needs!("python3", "samtools", "bcftools", "fastp", "pigz", "ip", "tc");
    godwit_tests::needs_gatk!();
    let losses = std::env::var("GODWIT_MOUNT_LOSSES").map_or(21, |text| text.parse().expect("it is a number"));
    let mut reading_scripts = READING_SCRIPTS.map(str::to_owned).to_vec();
    reading_scripts.extend(MORE_READING_SCRIPTS.map(str::to_owned));
    reading_scripts.push(haplotype_caller_script());
    let pool = pool_on_hosts_or_skip!("mount-many-losses", Some(LINK_BYTES_PER_S));
    let scenario = LossScenario {
        reading_scripts,
        reads: 60_000,
        big_bytes: 20_000_000,
        losses: LOSSES.into_iter().cycle().take(losses).collect(),
        interval: LOSS_INTERVAL,
        max_stall: MAX_STALL,
    };
    check_programs_during_losses(pool, &scenario);
}

#[test]
#[ignore = "half an hour of random operations, on a machine with nothing else to do; run it by name, with GODWIT_TEST_TIME_LIMIT"]
fn a_million_random_operations_do_not_notice_losses() {
    needs!("ip", "tc");
    let (files, operations_per_file) = (4, 250_000);
    let mut pool = pool_on_hosts_or_skip!("mount-operations", None);
    let Some(mounted) = mount_pool(&pool) else { skip_without_mounts!() };
    let (point, root, ended) = (mounted.point.clone(), pool.root.clone(), AtomicBool::new(false));
    let (mut times, losses) = std::thread::scope(|scope| {
        let _end = EndOnDrop(&ended);
        let start = |seed: u64| {
            let (name, ended) = (format!("random{seed}"), &ended);
            let (path, stored) = (point.join(&name), root.join(&name));
            scope.spawn(move || random_operations(seed, &path, &stored, operations_per_file, ended))
        };
        let threads: Vec<_> = (0..files).map(start).collect();
        let mut losses = 0;
        while !threads.iter().any(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(LOSS_INTERVAL);
            lose_a_member(&mut pool, &mounted, LOSSES[losses % LOSSES.len()]);
            losses += 1;
        }
        let times: Vec<Duration> = threads.into_iter().flat_map(|thread| thread.join().expect("none failed")).collect();
        (times, losses)
    });
    times.sort_unstable();
    eprintln!("{losses} losses, {} operations", times.len());
    check_stalls("operation", &times, MAX_STALL);
    end_mount(mounted);
}
