//! The container image: Debian 12 by mmdebstrap, with the Debian package, by `packaging/Containerfile`.

use std::fs;

use anyhow::{Context, Result};

use super::{Release, output_text, pack_directory, run_command};

/// Writes the image as an archive of the Open Container Initiative, and returns its file name.
///
/// Needs root, mmdebstrap and buildah. The image contains the packages that the mirror has on that day.
pub(super) fn write(release: &Release) -> Result<String> {
    let base = release.scratch.join("base.tar");
    let mut debian = release.command("mmdebstrap");
    run_command(debian.args(["--quiet", "--variant=minbase", "--include=ca-certificates", "bookworm"]).arg(&base))?;
    // Images of the user are not touched.
    let store = release.scratch.join("containers");
    let buildah = || {
        let mut command = release.command("buildah");
        command.arg("--root").arg(store.join("root")).arg("--runroot").arg(store.join("run"));
        command
    };
    let context = release.scratch.join("context");
    fs::create_dir_all(&context)?;
    let package = format!("godwit_{}_amd64.deb", release.version);
    fs::copy(release.file(&package), context.join(&package)).with_context(|| format!("the image needs {package}"))?;
    let layer = output_text(buildah().args(["from", "scratch"]))?;
    output_text(buildah().args(["add", &layer]).arg(&base).arg("/"))?;
    output_text(buildah().args(["commit", "--quiet", "--timestamp", &release.date, &layer, "localhost/debian-base"]))?;
    let mut build = buildah();
    build.args(["build", "--quiet", "--isolation", "chroot", "--network", "host", "--timestamp", &release.date]);
    build.args([
        "--build-arg",
        "BASE=localhost/debian-base",
        "--tag",
        "localhost/godwit",
        "--file",
        "packaging/Containerfile",
    ]);
    output_text(build.arg(&context))?;
    let image = release.scratch.join("image");
    // `podman load` names the image as this reference does.
    let target = format!("oci:{}:localhost/godwit:{}", image.display(), release.version);
    output_text(buildah().args(["push", "--quiet", "localhost/godwit", &target]))?;
    let name = format!("godwit-{}-oci.tar", release.version);
    pack_directory(release, &image, &["blobs", "index.json", "oci-layout"], &release.file(&name))?;
    Ok(name)
}
