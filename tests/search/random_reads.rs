//! Advice to the kernel about reads of a database that exceeds the memory: a worker that reports reads only the pages that
//! it uses, also if it has not searched before.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use godwit_tests::{binary, needs};

use super::test_databases::databases;

/// Sends a frame to a worker, and returns the kind of its response.
fn exchange(worker: &mut Child, kind: u8, fields: &[&[u8]]) -> u8 {
    let body = fields.concat();
    let frame = [&[kind][..], &(body.len() as u64).to_le_bytes(), &body].concat();
    worker.stdin.as_mut().expect("it is piped").write_all(&frame).expect("the worker reads");
    let (output, mut head) = (worker.stdout.as_mut().expect("it is piped"), [0; 9]);
    output.read_exact(&mut head).expect("the worker responds");
    let length = u64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
    std::io::copy(&mut output.take(length), &mut std::io::sink()).expect("the worker responds");
    head[0]
}

/// Returns the endings of the files that a process has mapped for reads in random order: `rr` in proc_pid_smaps(5).
fn random_read_files(process: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/smaps")).expect("the worker runs");
    let (mut file, mut found) = ("", Vec::new());
    for line in maps.lines() {
        match line.strip_prefix("VmFlags:") {
            Some(flags) if flags.split_whitespace().any(|flag| flag == "rr") => found.push(file.to_owned()),
            Some(_) => {}
            None if !line.split_whitespace().next().is_some_and(|word| word.ends_with(':')) => {
                file = line.rsplit('.').next().unwrap_or_default();
            }
            None => {}
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_worker_that_only_reports_reads_a_large_database_in_random_order() {
    needs!("makeblastdb");
    let mut command = Command::new(binary::path().with_file_name("godwit-blast"));
    command.args("blastp -db both -outfmt 6 -query far.fa".split(' ')).current_dir(&databases().directory);
    command.env("BLAST_USAGE_REPORT", "false").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut worker = command.spawn().expect("the worker is built");
    let empty_text = 0_u64.to_le_bytes();
    let numbers = [3_u32.to_le_bytes().to_vec(), [0_u64, 1 << 20].map(u64::to_le_bytes).concat()].concat();
    let opened = exchange(&mut worker, b'I', &[&numbers, &empty_text, &empty_text, &empty_text]);
    let batch = exchange(&mut worker, b'B', &[&0_u32.to_le_bytes(), &10_000_u32.to_le_bytes()]);
    assert_eq!([opened, batch], *b"IB");
    for (exceeds_memory, expected) in [(0, Vec::new()), (1, vec!["phr", "phr", "psq", "psq"])] {
        // A report on the first query without hits.
        let item = [0_u64.to_le_bytes().to_vec(), [0_u32, 1].map(u32::to_le_bytes).concat()].concat();
        assert_eq!(exchange(&mut worker, b'O', &[&item, &[0, exceeds_memory]]), b'O');
        assert_eq!(random_read_files(worker.id()), expected);
    }
    drop(worker.stdin.take());
    worker.wait().expect("it was started");
}
