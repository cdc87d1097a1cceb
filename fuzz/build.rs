//! Links the functions that C libraries call because of `CFLAGS` in `run.sh`.

fn main() {
    println!("cargo:rerun-if-changed=c_coverage.c");
    println!("cargo:rustc-link-arg-bins=-Wl,--wrap=__sanitizer_cov_trace_pc");
    for object in cc::Build::new().file("c_coverage.c").compile_intermediates() {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
