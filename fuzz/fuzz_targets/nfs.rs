#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit_fuzz::run_target("nfs", bytes));
