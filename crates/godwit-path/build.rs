//! Compiles the emulator.

fn main() {
    println!("cargo::rerun-if-changed=src/emulator.c");
    cc::Build::new().file("src/emulator.c").opt_level(2).warnings(false).compile("godwit_path_emulator");
}
