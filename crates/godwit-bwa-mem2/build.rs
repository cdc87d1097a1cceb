//! Compiles bwa-mem2 once for each instruction set and seals each in one object with a single name to the outside.
//!
//! bwa-mem2 chooses its instructions when it is compiled and ships a program for each. Here all are in one program, which
//! chooses when it starts: the objects of a set are linked into one (`ld -r`) whose symbols but one are made local
//! (`objcopy`), so that no function compiled for newer processors can be taken for an older one's.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names as in `src/mem2.rs`, and the compiler's switches, as in bwa-mem2's Makefile.
const SETS: [(&str, &[&str]); 3] = [
    ("sse41", &["-msse", "-msse2", "-msse3", "-mssse3", "-msse4.1"]),
    ("avx2", &["-mavx2"]),
    ("avx512bw", &["-mavx512bw"]),
];

fn main() {
    for watched in ["shim", "vendor"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut archive = cc::Build::new();
    // All at once: cc compiles one file after the other.
    let sealed = std::thread::scope(|scope| {
        let folder = &out;
        let started = SETS.map(|(set, switches)| scope.spawn(move || sealed(&folder.join(set), set, switches)));
        started.map(|work| work.join().unwrap_or_else(|_| Err("the build script panicked".into())))
    });
    for ((set, _), sealed) in SETS.iter().zip(sealed) {
        match sealed {
            Ok(object) => archive.object(object),
            Err(problem) => {
                println!("cargo::error=cannot build bwa-mem2 for {set}: {problem}");
                return;
            }
        };
    }
    archive.compile("godwit_bwa_mem2");
    for library in ["stdc++", "z", "m", "pthread"] {
        println!("cargo::rustc-link-lib={library}");
    }
}

/// One object with all of bwa-mem2 for an instruction set.
fn sealed(folder: &Path, set: &str, switches: &[&str]) -> Result<PathBuf, String> {
    let mut sources: Vec<PathBuf> = std::fs::read_dir("vendor/src")
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| format!("vendor/src: {error}"))?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    sources.sort();
    sources.push("shim/shim.cpp".into());
    let table = format!("godwit_mem2_{set}");
    let mut build = cc::Build::new();
    build.cpp(true).cargo_metadata(false).out_dir(folder).files(&sources).opt_level(3).debug(false).warnings(false);
    build.include("shim").include("vendor/src").flag("-include").flag("shim/quiet.h");
    for flag in ["-std=c++14", "-fpermissive", "-w", "-fno-gnu-unique", "-fvisibility=hidden"].iter().chain(switches) {
        build.flag(flag);
    }
    // As in bwa-mem2's Makefile.
    for (name, value) in [("ENABLE_PREFETCH", None), ("V17", Some("1")), ("MATE_SORT", Some("0")), ("SAIS", Some("1"))]
    {
        build.define(name, value);
    }
    build.define("GODWIT_TABLE", table.as_str());
    let objects = build.try_compile_intermediates().map_err(|error| error.to_string())?;
    let (joined, sealed) = (folder.join("joined.o"), folder.join(format!("{table}.o")));
    run(Command::new("ld").args(["-r", "--force-group-allocation", "-o"]).arg(&joined).args(&objects))?;
    run(Command::new("objcopy").arg(format!("--keep-global-symbol={table}")).arg(&joined).arg(&sealed))?;
    Ok(sealed)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}; install binutils"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}
