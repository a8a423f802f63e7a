//! The kernel's programs of `crates/steer`: compiling them from their C sources, and checking the committed objects.
//!
//! Debian 12: `apt-get install clang-14`. The same version of the compiler gives the same objects byte for byte, in any
//! folder and on any machine: the sources include no header of the machine. `crates/steer/bpf/TOOLCHAIN` names the
//! version.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// The compiler, by the name that Debian gives to this version.
const CLANG: &str = "clang-14";

/// The objects; each has a source of the same name.
const OBJECTS: [&str; 3] = ["front", "sockets", "steer"];

/// Type information (BTF) is made from debug information, which must not name the folder of the build.
const FLAGS: [&str; 9] = [
    "-target",
    "bpf",
    "-mcpu=v3",
    "-O2",
    "-g",
    "-fdebug-compilation-dir=.",
    "-nostdinc",
    "-Wall",
    "-Wextra",
];

/// Compiles every object, and writes the version of the compiler.
pub(crate) fn rebuild() -> Result<()> {
    let folder = folder();
    let version = version()?;
    for name in OBJECTS {
        compile(&folder, name, &folder.join(format!("{name}.o")))?;
    }
    std::fs::write(folder.join("TOOLCHAIN"), format!("{version}\n"))?;
    Ok(())
}

/// Compiles every object into a temporary folder and compares it with the committed one.
pub(crate) fn check() -> Result<()> {
    if let Err(wanted) = compiler_is_here() {
        bail!(
            "the objects were compiled by {wanted}; install it (Debian 12: apt-get install {CLANG})"
        );
    }
    let folder = folder();
    let scratch = std::env::temp_dir().join(format!("flowyard-bpf-{}.o", std::process::id()));
    for name in OBJECTS {
        let compiled = compile(&folder, name, &scratch).and_then(|()| Ok(std::fs::read(&scratch)?));
        let _ = std::fs::remove_file(&scratch);
        if compiled? != std::fs::read(folder.join(format!("{name}.o")))? {
            bail!("{name}.o differs from what {name}.c gives: run cargo xtask bpf, and commit it");
        }
        shell::say(&format!("{name}.o: same as its source gives"));
    }
    Ok(())
}

/// Whether the compiler of the committed objects is installed; if not, the version it must have.
pub(crate) fn compiler_is_here() -> Result<(), String> {
    let wanted = std::fs::read_to_string(folder().join("TOOLCHAIN")).unwrap_or_default();
    let wanted = wanted.trim_end();
    match version() {
        Ok(found) if found == wanted => Ok(()),
        _ => Err(wanted.to_owned()),
    }
}

/// Installs the compiler, if this is a Debian machine and the user may: 21 MB.
pub(crate) fn install_compiler() -> bool {
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--quiet", "--no-install-recommends", CLANG]);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    shell::in_path("apt-get") && shell::succeeds(&mut apt)
}

fn folder() -> PathBuf {
    shell::root().join("crates/steer/bpf")
}

/// The first line that the compiler prints for `--version`.
fn version() -> Result<String> {
    let missing = || format!("cannot run {CLANG} (Debian 12: apt-get install {CLANG})");
    let out = Command::new(CLANG).arg("--version").output().with_context(missing)?;
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn compile(folder: &Path, name: &str, object: &Path) -> Result<()> {
    let mut clang = Command::new(CLANG);
    clang.current_dir(folder).args(FLAGS).args(["-Werror", "-c", &format!("{name}.c"), "-o"]);
    shell::run(clang.arg(object))
}
