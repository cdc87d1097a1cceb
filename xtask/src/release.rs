//! `cargo xtask release`: checks that the tree can be released, and builds what is shipped.
//!
//! In: a checkout, and programs that cargo builds or has built. Out: a directory with a tarball, a Debian package, a wheel,
//! a container image, the book of the documentation, a bill of materials and checksums. With the same programs and the same date, two runs write the same
//! bytes. The date is `SOURCE_DATE_EPOCH`, or that of the last commit.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

mod container_image;
mod debian_package;
mod dependencies;
mod versions;

const USAGE: &str =
    "usage: cargo xtask release [--out DIR] [--profile NAME] [--no-build] [--unreleased] [--skip STEP]..
       cargo xtask release --cut VERSION

Checks versions, changelog, licenses and advisories, and writes what is shipped to DIR (target/release-files).
  --profile NAME  the profile of cargo that the programs are built with (release)
  --no-build      package programs that are built already
  --unreleased    accept a version whose section of the changelog has no date yet
  --skip STEP     do not perform a step: licenses, advisories, tarball, deb, wheel, book, image
  --cut VERSION   write a new version, with the date of today, to all files that contain it";

/// The names that `--skip` accepts.
const STEPS: [&str; 7] = ["licenses", "advisories", "tarball", "deb", "wheel", "book", "image"];

/// A parsed command line.
struct Options {
    out: PathBuf,
    profile: String,
    builds: bool,
    unreleased: bool,
    skipped: Vec<String>,
}

impl Options {
    /// Parses the arguments after `release`.
    fn parse(root: &Path, arguments: &[&str]) -> Result<Self> {
        let mut options = Self {
            out: root.join("target/release-files"),
            profile: "release".to_owned(),
            builds: true,
            unreleased: false,
            skipped: Vec::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
            match *word {
                "--out" => options.out = env::current_dir()?.join(value()?),
                "--profile" => options.profile = (*value()?).to_owned(),
                "--no-build" => options.builds = false,
                "--unreleased" => options.unreleased = true,
                "--skip" => options.skipped.push((*value()?).to_owned()),
                other => bail!("there is no option {other}\n\n{USAGE}"),
            }
        }
        if let Some(step) = options.skipped.iter().find(|step| !STEPS.contains(&step.as_str())) {
            bail!("there is no step {step}\n\n{USAGE}");
        }
        Ok(options)
    }

    fn performs(&self, step: &str) -> bool {
        let performs = !self.skipped.iter().any(|skipped| skipped == step);
        println!("release: {step}{}", if performs { "" } else { " is skipped" });
        performs
    }
}

/// A release that is written: its version, its date and its directories.
struct Release {
    root: PathBuf,
    version: String,
    /// Seconds since 1970, for all files.
    date: String,
    out: PathBuf,
    /// A directory of this run, which is removed at the end.
    scratch: PathBuf,
}

impl Release {
    /// Returns a command that runs in the root of the workspace with the date of the release.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("SOURCE_DATE_EPOCH", &self.date);
        // The order of names and the text of tools must not depend on the user's language.
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command
    }

    /// Returns the path of an output file.
    fn file(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }
}

/// Runs the chore with the arguments after `release`.
///
/// # Errors
/// When a check fails, or something cannot be built; the directory of outputs may then be incomplete and has no `SHA256SUMS`.
pub fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    match arguments {
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return Ok(());
        }
        ["--cut", version] => return versions::cut(root, version),
        _ => {}
    }
    let options = Options::parse(root, arguments)?;
    let version = versions::check(root, options.unreleased)?;
    let deny = ["--locked", "--log-level", "error", "--all-features", "check", "--allow", "duplicate"];
    let run_cargo_deny = |checks: &[&str]| {
        run_command(Command::new(root.join("tools/cargo-deny.sh")).current_dir(root).args(deny).args(checks))
    };
    if options.performs("licenses") {
        run_cargo_deny(&["licenses", "bans", "sources"])?;
    }
    if options.performs("advisories") {
        run_cargo_deny(&["advisories"])?;
    }
    let programs = shipped_programs(root)?;
    if options.builds {
        let packages = programs.iter().map(|name| format!("--package={name}"));
        run_command(
            crate::cargo::command()
                .current_dir(root)
                .args(["build", "--locked", "--profile", &options.profile])
                .args(packages),
        )?;
    }
    let date = env::var("SOURCE_DATE_EPOCH")
        .or_else(|_| output_text(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"])))?;
    let scratch = options.out.join(format!("unfinished-{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let release = Release { root: root.to_owned(), version, date, out: options.out.clone(), scratch };
    let outcome = write_files(&release, &options, &programs);
    fs::remove_dir_all(&release.scratch).with_context(|| format!("cannot remove {}", release.scratch.display()))?;
    outcome
}

/// Writes all outputs of a release, and their checksums last.
fn write_files(release: &Release, options: &Options, programs: &[String]) -> Result<()> {
    let dependencies = dependencies::shipped_dependencies(release, programs)?;
    let bill = format!("godwit-{}-sbom.cdx.json", release.version);
    fs::write(release.file(&bill), dependencies::bill_of_materials(release, programs, &dependencies))?;
    let licenses = dependencies::license_texts(&dependencies)?;
    // /usr/local and /usr: the unit for systemd contains the path.
    let local = install(release, options, programs, "/usr/local", &licenses)?;
    let mut files = vec![bill];
    if options.performs("tarball") {
        files.push(write_tarball(release, &local)?);
    }
    if options.performs("wheel") {
        let mut python = release.command("python3");
        python.arg("python/build_backend/godwit_wheel.py").arg(&release.out).env("GODWIT_INSTALLED_PREFIX", &local);
        files.push(output_text(&mut python)?);
    }
    if options.performs("deb") {
        let prefix = install(release, options, programs, "/usr", &licenses)?;
        files.push(debian_package::write(release, &prefix)?);
    }
    if options.performs("book") {
        files.push(write_book(release)?);
    }
    if options.performs("image") {
        files.push(container_image::write(release)?);
    }
    files.sort();
    let sums = output_text(release.command("sha256sum").current_dir(&release.out).args(&files))?;
    fs::write(release.file("SHA256SUMS"), format!("{sums}\n"))?;
    for name in &files {
        println!("release: {} bytes  {name}", release.file(name).metadata()?.len());
    }
    println!("release: {} is complete", release.out.display());
    Ok(())
}

/// Returns the names of the shipped programs, which are also those of their crates.
fn shipped_programs(root: &Path) -> Result<Vec<String>> {
    let path = root.join("packaging/programs.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
}

/// Runs `./install` for a prefix, strips the programs, and adds the license texts; returns the directory that stands for the prefix.
fn install(release: &Release, options: &Options, programs: &[String], prefix: &str, licenses: &str) -> Result<PathBuf> {
    let destination = release.scratch.join(format!("root{}", prefix.replace('/', "-")));
    let mut install = release.command(release.root.join("install"));
    install.args(["--no-build", "--profile", &options.profile, "--prefix", prefix]).env("DESTDIR", &destination);
    output_text(&mut install)?;
    let installed = destination.join(prefix.trim_start_matches('/'));
    let reported = output_text(release.command(installed.join("bin/godwit")).arg("--version"))?;
    if reported != format!("godwit {}", release.version) {
        bail!("the built program is {reported}, but the version is {}; build it, without --no-build", release.version);
    }
    let binaries = programs.iter().map(|name| installed.join("bin").join(name));
    run_command(release.command("strip").arg("--strip-unneeded").args(binaries))?;
    fs::write(installed.join("share/doc/godwit/third-party-licenses.txt"), licenses)?;
    Ok(installed)
}

/// Packs a prefix as `godwit-VERSION-linux-x86_64.tar.gz`, below a directory of that name.
fn write_tarball(release: &Release, installed: &Path) -> Result<String> {
    write_archive(release, installed, &format!("godwit-{}-linux-x86_64", release.version))
}

/// Packs the documentation as a book, with that of the library crates, as `godwit-VERSION-book.tar.gz`.
fn write_book(release: &Release) -> Result<String> {
    run_command(release.command(release.root.join("tools/build-book.sh")).arg("--rustdoc"))?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| release.root.join("target"), PathBuf::from);
    write_archive(release, &target.join("book"), &format!("godwit-{}-book", release.version))
}

/// Packs a directory as `NAME.tar.gz`, below a directory `NAME`; returns the name of the file.
fn write_archive(release: &Release, directory: &Path, name: &str) -> Result<String> {
    let unpacked = release.scratch.join("unpacked");
    copy_directory(directory, &unpacked.join(name))?;
    let packed = release.scratch.join("packed.tar");
    pack_directory(release, &unpacked, &[name], &packed)?;
    run_command(release.command("gzip").args(["-9", "--no-name"]).arg(&packed))?;
    fs::rename(release.scratch.join("packed.tar.gz"), release.file(&format!("{name}.tar.gz")))?;
    Ok(format!("{name}.tar.gz"))
}

/// Packs entries of a directory as a tar archive, sorted and with the date of the release.
fn pack_directory(release: &Release, directory: &Path, entries: &[&str], archive: &Path) -> Result<()> {
    let mut tar = release.command("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg("--mode=u+rw,go=rX").arg(format!("--mtime=@{}", release.date));
    run_command(tar.arg("--file").arg(archive).arg("--directory").arg(directory).args(entries))
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    run_command(Command::new("cp").args(["--archive", "--no-target-directory"]).args([from, to]))
}

/// Runs a command to its end.
fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if status.success() { Ok(()) } else { bail!("{command:?} ended with {status}") }
}

/// Runs a command and returns its standard output without the last line end.
fn output_text(command: &mut Command) -> Result<String> {
    let output =
        command.stderr(std::process::Stdio::inherit()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    Ok(String::from_utf8(output.stdout).context("the output is not text")?.trim_end().to_owned())
}
