//! The Debian package: the files of `./install --prefix /usr` in Debian's places, with dependencies that dpkg-shlibdeps determines.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{Release, output_text, run_command};

/// Writes the package from the directory that stands for `/usr`, and returns its file name.
pub(super) fn write(release: &Release, installed: &Path) -> Result<String> {
    let tree = installed.parent().context("the prefix has a parent directory")?.to_owned();
    move_to_debian_places(release, &tree)?;
    let dependencies = library_dependencies(release, &tree)?;
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control)?;
    let size =
        output_text(release.command("du").args(["--summarize", "--apparent-size", "--block-size=1024"]).arg(&tree))?;
    let template =
        fs::read_to_string(release.root.join("packaging/debian/control.in")).context("cannot read control.in")?;
    let description = template
        .replace("@VERSION@", &release.version)
        .replace("@SHLIBS@", &dependencies)
        .replace("@INSTALLED_SIZE@", size.split_whitespace().next().unwrap_or_default());
    fs::write(control.join("control"), description)?;
    fs::write(control.join("conffiles"), "/etc/default/godwit\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&release.root.join("packaging/debian").join(script), &control.join(script), 0o755)?;
    }
    let sums = "find lib usr -type f | sort | xargs -d '\\n' md5sum";
    let sums = output_text(release.command("sh").current_dir(&tree).args(["-ec", sums]))?;
    fs::write(control.join("md5sums"), format!("{sums}\n"))?;
    run_command(release.command("chmod").args(["--recursive", "u+rwX,go+rX,go-w"]).arg(&tree))?;
    let name = format!("godwit_{}_amd64.deb", release.version);
    // gzip: xz takes minutes, and its blocks depend on the number of threads.
    let mut dpkg = release.command("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zgzip", "--build"]).arg(&tree).arg(release.file(&name));
    output_text(&mut dpkg)?;
    Ok(name)
}

/// Moves and adds files as Debian's policy requires: chapters 10.7 and 12, and the places of zsh and systemd.
fn move_to_debian_places(release: &Release, tree: &Path) -> Result<()> {
    let share = tree.join("usr/share");
    let documents = share.join("doc/godwit");
    fs::create_dir_all(tree.join("lib/systemd"))?;
    fs::rename(tree.join("usr/lib/systemd/system"), tree.join("lib/systemd/system"))?;
    fs::remove_dir_all(tree.join("usr/lib"))?;
    fs::rename(share.join("zsh/site-functions"), share.join("zsh/vendor-completions"))?;
    // The programs are on the PATH already, and `copyright` contains the licenses.
    fs::remove_dir_all(share.join("modulefiles"))?;
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::remove_file(documents.join(license))?;
    }
    copy(&release.root.join("packaging/debian/copyright"), &documents.join("copyright"), 0o644)?;
    copy(&release.root.join("CHANGELOG.md"), &documents.join("changelog"), 0o644)?;
    copy(&release.root.join("packaging/debian/default"), &tree.join("etc/default/godwit"), 0o644)?;
    let mut compressed = vec![documents.join("changelog"), documents.join("third-party-licenses.txt")];
    for page in share.join("man/man1").read_dir()? {
        compressed.push(page?.path());
    }
    run_command(release.command("gzip").args(["-9", "--no-name"]).args(compressed))
}

/// Returns the packages of the shared libraries that the programs link, with the versions that their symbols require.
fn library_dependencies(release: &Release, tree: &Path) -> Result<String> {
    // dpkg-shlibdeps requires the source package's control file in the working directory.
    let source = release.scratch.join("source");
    fs::create_dir_all(source.join("debian"))?;
    fs::write(source.join("debian/control"), "Source: godwit\n\nPackage: godwit\nArchitecture: any\n")?;
    let mut command = release.command("dpkg-shlibdeps");
    command.current_dir(&source).arg("-O");
    for program in tree.join("usr/bin").read_dir()? {
        command.arg(program?.path());
    }
    let output = output_text(&mut command)?;
    match output.strip_prefix("shlibs:Depends=") {
        Some(dependencies) => Ok(dependencies.to_owned()),
        None => bail!("dpkg-shlibdeps printed {output:?}"),
    }
}

/// Copies a file, creates its directory, and sets its permissions.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}
