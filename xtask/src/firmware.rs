//! The adapter's firmware: rebuilding it from its C sources, and checking the committed images.
//!
//! Debian: `apt-get install clang lld`. The same versions of the tools give the same images byte for
//! byte, in any folder; `crates/nicsim/firmware/TOOLCHAIN` names the versions.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::shell;

/// Images by name, with the macros that their compilation defines.
const IMAGES: [(&str, &[&str]); 5] = [
    ("ideal", &["-DIDEAL"]),
    ("swonly", &["-DSWONLY"]),
    ("rmw", &["-DRMW"]),
    ("task", &["-DTASK"]),
    ("steer", &["-DRMW", "-DSTEER=1"]),
];

/// MIPS II: no floating point unit, no library calls, no loop unrolling.
const FLAGS: [&str; 21] = [
    "--target=mipsel-unknown-elf",
    "-march=mips2",
    "-mabi=32",
    "-msoft-float",
    "-mno-abicalls",
    "-fno-pic",
    "-G0",
    "-ffreestanding",
    "-fno-builtin",
    "-nostdlib",
    "-O2",
    "-fomit-frame-pointer",
    "-mno-check-zero-division",
    "-fno-strict-aliasing",
    "-fno-unroll-loops",
    "-fno-vectorize",
    "-mllvm",
    "-disable-mips-df-succbb-search=false",
    "-Wall",
    "-Wextra",
    "-Werror",
];

/// Rebuilds every image and writes the images, their hashes and the versions of the tools.
pub(crate) fn rebuild() -> Result<()> {
    let folder = folder();
    let versions = versions()?;
    let scratch = Scratch::new()?;
    let images = build(&folder, &scratch.0)?;
    let mut sums = String::new();
    for (name, elf) in images {
        let bytes = std::fs::read(elf)?;
        std::fs::write(folder.join(format!("{name}.elf")), &bytes)?;
        sums += &format!("{}  {name}.elf\n", sha256(&bytes));
    }
    std::fs::write(folder.join("SHA256SUMS"), sums)?;
    std::fs::write(folder.join("TOOLCHAIN"), versions)?;
    Ok(())
}

/// Rebuilds every image in a temporary folder and compares it with the committed one.
pub(crate) fn check() -> Result<()> {
    let folder = folder();
    let versions = versions()?;
    let wanted = std::fs::read_to_string(folder.join("TOOLCHAIN")).unwrap_or_default();
    if versions != wanted {
        bail!(
            "the installed tools are {}, but the images were built with {}; install those to compare",
            versions.trim_end().replace('\n', " and "),
            wanted.trim_end().replace('\n', " and ")
        );
    }
    let scratch = Scratch::new()?;
    let sums = std::fs::read_to_string(folder.join("SHA256SUMS"))?;
    for (name, elf) in build(&folder, &scratch.0)? {
        let committed = std::fs::read(folder.join(format!("{name}.elf")))?;
        if std::fs::read(elf)? != committed {
            bail!("{name}.elf differs from the build of its source: run cargo xtask firmware");
        }
        if !sums.contains(&format!("{}  {name}.elf", sha256(&committed))) {
            bail!("the hash of {name}.elf is not in SHA256SUMS: run cargo xtask firmware");
        }
        shell::say(&format!("{name}.elf: same as the build of its source"));
    }
    Ok(())
}

/// Builds the firmware 'rmw' with the user's frame handler in it.
pub(crate) fn with_handler(handler: &str, output: &str) -> Result<()> {
    let handler = std::fs::canonicalize(handler).with_context(|| handler.to_owned())?;
    let output = std::path::absolute(output)?;
    let scratch = Scratch::new()?;
    let defines = ["-DRMW".to_owned(), format!("-DHANDLER=\"{}\"", handler.display())];
    image(&folder(), &scratch.0, &defines, &output)
}

/// Whether the compiler and the linker that built the committed images are installed; if not, the versions that they
/// must have.
pub(crate) fn tools_are_here() -> Result<(), String> {
    let wanted = std::fs::read_to_string(folder().join("TOOLCHAIN")).unwrap_or_default();
    match versions() {
        Ok(found) if found == wanted => Ok(()),
        _ => Err(wanted.trim_end().replace('\n', " and ")),
    }
}

/// Installs compiler and linker, if this is a Debian machine and the user may. Returns whether that worked.
pub(crate) fn install_tools() -> bool {
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--quiet", "--no-install-recommends", "clang", "lld"]);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    shell::in_path("apt-get") && shell::succeeds(&mut apt)
}

/// The folder of the sources and the committed images.
fn folder() -> PathBuf {
    shell::root().join("crates/nicsim/firmware")
}

/// A temporary folder, removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let name = format!("flowyard-firmware-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The versions of compiler and linker, a line each.
fn versions() -> Result<String> {
    Ok(format!("{}\n{}\n", version("clang")?, version("ld.lld")?))
}

/// The first line that a tool prints for `--version`.
fn version(tool: &str) -> Result<String> {
    let out = Command::new(tool)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {tool} (Debian: apt-get install clang lld)"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn build(folder: &Path, scratch: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut images = Vec::new();
    for (name, defines) in IMAGES {
        let elf = scratch.join(format!("{name}.elf"));
        let defines: Vec<String> = defines.iter().map(ToString::to_string).collect();
        image(folder, scratch, &defines, &elf)?;
        images.push((name, elf));
    }
    Ok(images)
}

fn image(folder: &Path, scratch: &Path, defines: &[String], elf: &Path) -> Result<()> {
    let object = scratch.join("nic.o");
    shell::run(
        Command::new("clang")
            .current_dir(folder)
            .args(FLAGS)
            .args(defines)
            .args(["-c", "nic.c", "-o"])
            .arg(&object),
    )?;
    shell::run(
        Command::new("ld.lld")
            .current_dir(folder)
            .args(["-m", "elf32ltsmip", "-nostdlib", "-static", "-z", "max-page-size=16"])
            .args(["-T", "nic.ld", "-o"])
            .arg(elf)
            .arg(&object),
    )
}

/// SHA-256 in hexadecimal, as `sha256sum` prints it.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    /// The committed images have the hashes that SHA256SUMS lists.
    #[test]
    fn hashes_match_the_committed_images() {
        let folder = super::folder();
        let sums = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
        assert_eq!(sums.lines().count(), super::IMAGES.len());
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            assert_eq!(super::sha256(&std::fs::read(folder.join(name)).unwrap()), sum, "{name}");
        }
    }
}
