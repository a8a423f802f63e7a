//! The kernel of a guest, and its system: an archive that the kernel unpacks into memory.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules in the order in which they are loaded.
const MODULES: [&str; 13] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "llc",
    "stp",
    "garp",
    "mrp",
    "8021q",
];

/// The first program of the guest. It reads commands from the serial port and prints their output, then the text
/// that ends it, with the exit status.
const INIT: &str = r#"#!/bin/sh
export PATH=/bin:/sbin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
echo 0 > /proc/sys/kernel/printk
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
stty -echo -onlcr
for module in @MODULES@; do insmod /lib/modules/$module.ko; done
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6
ethtool -L eth0 combined @QUEUES@
ip link set lo up
ip link set eth0 up
echo "@@end 0"
while IFS= read -r line; do
    ( eval "$line" ) 2>&1 < /dev/null
    status=$?
    echo
    echo "@@end $status"
done
"#;

/// A kernel and a system that a guest boots.
#[derive(Clone, Debug)]
pub struct Image {
    pub(super) kernel: PathBuf,
    pub(super) system: PathBuf,
}

/// Debian's kernel package, unpacked in a folder below `cache`. It is downloaded there the first time, and not installed.
///
/// # Errors
/// What is missing, in words: the program, the package or the network.
pub fn kernel(cache: &Path) -> Result<PathBuf, String> {
    let folder = cache.join("kernel");
    if folder.join("boot").is_dir() {
        return Ok(folder);
    }
    let run = |command: &mut Command| -> Result<String, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = command.output().map_err(|error| format!("the program {name} ({error})"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(format!("a Debian kernel: {name}: {}", why.lines().next().unwrap_or("failed")))
    };
    let depends = run(Command::new("apt-cache").args(["depends", "linux-image-amd64"]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.ok_or("the package linux-image-amd64 of Debian")?;
    let failed = |error: io::Error| format!("room in {}: {error}", cache.display());
    let work = cache.join(format!("download-{}", std::process::id()));
    fs::create_dir_all(&work).map_err(failed)?;
    run(Command::new("apt-get").args(["download", package]).current_dir(&work))?;
    let file = fs::read_dir(&work)
        .map_err(failed)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let file = file.ok_or_else(|| format!("the file of package {package}"))?;
    run(Command::new("dpkg").arg("-x").arg(&file).arg(work.join("kernel")))?;
    // Another test program may have been faster.
    let _ = fs::rename(work.join("kernel"), &folder);
    let _ = fs::remove_dir_all(&work);
    if folder.join("boot").is_dir() { Ok(folder) } else { Err("a Debian kernel".to_owned()) }
}

/// What a system has besides the usual programs and modules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra<'a> {
    /// Modules, in the order in which they are loaded, behind the usual ones.
    pub modules: &'a [&'a str],
    /// Libraries that programs load by their paths; the libraries that these need are added.
    pub libraries: &'a [PathBuf],
}

impl Image {
    /// The kernel below `kernel`, which [`kernel`] has returned, with a system of busybox, ethtool, ip, the modules
    /// of virtio, and these programs, by the name that each gets in `/bin`. The archive is written to `cache`.
    ///
    /// # Panics
    /// When a program or a module is missing.
    #[must_use]
    pub fn new(cache: &Path, kernel: &Path, programs: &[(&str, &Path)]) -> Self {
        Self::with(cache, kernel, programs, &Extra::default())
    }

    /// As [`Image::new`], with more modules and libraries.
    ///
    /// # Panics
    /// As [`Image::new`].
    #[must_use]
    pub fn with(
        cache: &Path,
        kernel: &Path,
        programs: &[(&str, &Path)],
        extra: &Extra<'_>,
    ) -> Self {
        let mut archive = Archive::default();
        for folder in ["proc", "sys", "dev", "tmp", "root", "etc", "bin", "sbin", "lib", "lib64"] {
            archive.folder(folder);
        }
        archive.file("bin/busybox", &read(&which("busybox")), true);
        let mut libraries = BTreeSet::new();
        let tools = [("ethtool", which("ethtool")), ("ip", which("ip"))];
        let given = programs.iter().map(|(name, path)| (*name, path.to_path_buf()));
        for (name, path) in tools.into_iter().chain(given) {
            libraries.extend(libraries_of(&path));
            archive.file(&format!("bin/{name}"), &stripped(cache, &path), true);
        }
        for library in extra.libraries {
            libraries.extend(libraries_of(library));
            libraries.insert(library.clone());
        }
        for library in libraries {
            let name = library.to_str().unwrap().trim_start_matches('/');
            archive.file(name, &read(&library), true);
        }
        let modules = kernel.join("lib/modules");
        let all: Vec<&str> = MODULES.iter().chain(extra.modules).copied().collect();
        for module in &all {
            let file =
                find(&modules, &format!("{module}.ko")).unwrap_or_else(|| panic!("{module}"));
            archive.file(&format!("lib/modules/{module}.ko"), &read(&file), false);
        }
        let applets = run_out(Command::new(which("busybox")).arg("--list"));
        for applet in applets.lines().filter(|applet| !matches!(*applet, "busybox" | "ip")) {
            archive.link(&format!("bin/{applet}"), "/bin/busybox");
        }
        let init = INIT
            .replace("@MODULES@", &all.join(" "))
            .replace("@QUEUES@", &super::QUEUES.to_string());
        archive.file("init", init.as_bytes(), true);
        let system = cache.join(format!("system-{}.cpio", std::process::id()));
        fs::write(&system, archive.finish()).unwrap();
        let boot = fs::read_dir(kernel.join("boot")).unwrap().map(|entry| entry.unwrap().path());
        let is_kernel = |path: &PathBuf| path.to_string_lossy().contains("/vmlinuz-");
        Self { kernel: boot.into_iter().find(is_kernel).expect("a kernel"), system }
    }

    /// Deletes the archive.
    pub fn delete(self) {
        let _ = fs::remove_file(self.system);
    }
}

/// An archive in the format of `cpio -H newc`, which the kernel unpacks.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let numbers = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn folder(&mut self, name: &str) {
        if self.folders.insert(name.to_owned()) {
            self.entry(name, 0o040_755, &[]);
        }
    }

    /// A file, and the folders that it is in.
    fn file(&mut self, name: &str, content: &[u8], runs: bool) {
        for (at, _) in name.match_indices('/') {
            self.folder(&name[..at]);
        }
        self.entry(name, if runs { 0o100_755 } else { 0o100_644 }, content);
    }

    fn link(&mut self, name: &str, to: &str) {
        self.entry(name, 0o120_777, to.as_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A program without its symbols, which are most of a debug build.
fn stripped(cache: &Path, path: &Path) -> Vec<u8> {
    let to = cache.join(format!("stripped-{}", std::process::id()));
    let done = Command::new("strip").arg("-o").arg(&to).arg(path).output();
    let bytes = match done {
        Ok(output) if output.status.success() => read(&to),
        _ => read(path),
    };
    let _ = fs::remove_file(&to);
    bytes
}

fn which(name: &str) -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&folders).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut files = all.map(|folder| folder.join(name));
    let runs = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 1 != 0)
    };
    files.find(runs).unwrap_or_else(|| panic!("no program {name}"))
}

fn run_out(command: &mut Command) -> String {
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The shared libraries of a program, as ldd prints them: `libc.so.6 => /lib/... (0x...)`, `/lib64/ld... (0x...)`.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let text = run_out(Command::new("ldd").arg(program));
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|file| file == name) {
            return Some(path);
        }
    }
    None
}
