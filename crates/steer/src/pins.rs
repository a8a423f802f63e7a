//! What outlives the process that steers: the link of the program and the maps that hold its state, as files of a BPF file
//! system. The next process adopts them, and frames are steered in between.
//!
//! ```text
//!  /sys/fs/bpf/flowyard/IFACE/layout-2/   interface -> "index 5 of network namespace 4026531840"
//!                                         attached -> "driver"
//!                                         flows, sent, done, watchmen, counts, cpus, events   maps
//!                                         xdp, sends, reads                                   links
//! ```
//!
//! Maps with the policy (rules, table, key) are not pinned: each process makes its own, and the program that uses them takes
//! the place of the old one in one step.
//!
//! Invariants: the link `xdp` is the last that is pinned, so where it is, everything else is. A folder with another layout,
//! or of another interface, is never touched, except by [`Pins::remove`].

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use aya::maps::{MapData, MapInfo};
use aya::programs::links::{FdLink, PinnedLink};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

/// The version of the pinned maps, of the numbers in front of frames, and of the protocol between the programs that use
/// both. A change of one of them raises it.
pub const LAYOUT: u32 = 2;
/// Where pins are by default.
pub const FOLDER: &str = "/sys/fs/bpf/flowyard";
/// The maps that are pinned, and the sizes of their keys and values.
pub(crate) const MAPS: [(&str, u32, u32); 7] = [
    ("flows", 64, 48),
    ("sent", 4, 16),
    ("done", 4, 32),
    // Its timers, which let flows move, run on when the process has ended.
    ("watchmen", 4, 24),
    ("counts", 4, 72),
    ("cpus", 4, 8),
    ("events", 4, 8),
];
/// The name of the link of the XDP program.
pub(crate) const XDP: &str = "xdp";
/// The links of programs that teach.
pub(crate) const LEARNERS: [&str; 2] = ["sends", "reads"];
/// What the folder belongs to.
const INTERFACE: &str = "interface";
/// Where in the receive path the program runs.
const ATTACHED: &str = "attached";

/// Why pins cannot be made, adopted or removed; the message includes the fix.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// Not in a BPF file system.
    #[error(
        "{0} is not in a BPF file system; mount one (mount -t bpf bpf /sys/fs/bpf), or name a folder in one with --pin=DIR"
    )]
    NoFileSystem(PathBuf),
    /// Pins of another version.
    #[error(
        "{folder} has programs that another version of flowyard has pinned ({found}; this one has layout-{LAYOUT}): stop it, and \
         remove them with 'flowyard steer {interface} --stop', after which frames are not steered until the next start"
    )]
    Layout {
        /// The folder of the interface.
        folder: PathBuf,
        /// The name of the interface.
        interface: String,
        /// What was found.
        found: String,
    },
    /// Pins of another interface.
    #[error(
        "{folder} belongs to another interface ({owner}): name another folder with --pin=DIR; if that interface is gone, remove \
         what is left of it with 'flowyard steer {interface} --stop'"
    )]
    Foreign {
        /// The folder of the interface.
        folder: PathBuf,
        /// The name of the interface.
        interface: String,
        /// The interface that it belongs to.
        owner: String,
    },
    /// The queues of CPUs have another length.
    #[error(
        "the pinned queue of CPU {cpu} holds {pinned} frames, and a new one could not keep the order of those that wait in it: \
         use --queue-frames {pinned}, or remove it with 'flowyard steer {interface} --stop'"
    )]
    Frames {
        /// The number of the CPU.
        cpu: u32,
        /// The name of the interface.
        interface: String,
        /// The length of the pinned queue.
        pinned: u32,
    },
    /// There is no such interface.
    #[error("there is no interface '{0}' in this network namespace; 'ip link' lists them")]
    NoInterface(String),
    /// A system call failed.
    #[error(
        "{what} {path}: {error}; pins need root and a BPF file system (mount -t bpf bpf /sys/fs/bpf)"
    )]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// The pins of an interface.
#[derive(Clone, Debug)]
pub struct Pins {
    interface: String,
    /// The folder of this layout.
    folder: PathBuf,
}

/// The folder of an interface by default. A dot, which the file system reserves, becomes an underscore.
#[must_use]
pub fn default_folder(interface: &str) -> PathBuf {
    Path::new(FOLDER).join(interface.replace('.', "_"))
}

impl Pins {
    /// The pins of `interface` in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// When `folder` is not in a BPF file system, belongs to another interface, or has another layout.
    pub fn open(folder: &Path, interface: &str) -> Result<Self, PinError> {
        let owner = owner(interface)?;
        if !is_in_bpf(folder) {
            return Err(PinError::NoFileSystem(folder.to_owned()));
        }
        let layout = format!("layout-{LAYOUT}");
        let pins = Self { interface: interface.to_owned(), folder: folder.join(&layout) };
        if let Some(found) = names(folder).into_iter().find(|name| *name != layout) {
            return Err(pins.other_layout(found));
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&pins.folder)
            .map_err(io_error("making", &pins.folder))?;
        match pins.text(INTERFACE) {
            Some(found) if found == owner => {}
            Some(found) if is_gone(&found, &owner) => {
                Self::remove(folder)?;
                return Self::open(folder, interface);
            }
            Some(found) => {
                let (folder, interface) = (folder.to_owned(), interface.to_owned());
                return Err(PinError::Foreign { folder, interface, owner: found });
            }
            None => pins.write(INTERFACE, &owner)?,
        }
        pins.check()?;
        Ok(pins)
    }

    /// Removes everything that is pinned in the folder of an interface, also by other versions. Whether there was anything.
    ///
    /// # Errors
    /// When the folder is not in a BPF file system, or a file cannot be removed.
    pub fn remove(folder: &Path) -> Result<bool, PinError> {
        if !folder.exists() {
            return Ok(false);
        }
        if !is_in_bpf(folder) {
            return Err(PinError::NoFileSystem(folder.to_owned()));
        }
        for layout in names(folder) {
            let layout = folder.join(layout);
            // The program goes first: no frame meets maps that are gone.
            let mut files = names(&layout);
            files.sort_by_key(|name| name != XDP);
            for file in files {
                let path = layout.join(file);
                fs::remove_file(&path).map_err(io_error("removing", &path))?;
            }
            fs::remove_dir(&layout).map_err(io_error("removing", &layout))?;
        }
        fs::remove_dir(folder).map_err(io_error("removing", folder))?;
        Ok(true)
    }

    /// The folder with the pins.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a program is pinned that steers frames.
    #[must_use]
    pub fn is_steering(&self) -> bool {
        self.folder.join(XDP).exists()
    }

    /// The first 40 bytes of the Toeplitz key of the program that steers now; flows keep their queues only under the same key.
    #[must_use]
    pub fn key(&self) -> Option<Vec<u8>> {
        let map = self.attached_map("toeplitz")?;
        let map = aya::maps::Array::<_, crate::layout::Parts>::try_from(map).ok()?;
        Some(crate::layout::key_of(&map.get(&0, 0).ok()?))
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The pinned link of this name.
    pub(crate) fn link(&self, name: &str) -> Option<FdLink> {
        PinnedLink::from_pin(self.path(name)).ok().map(FdLink::from)
    }

    /// Pins a link, in the place of one of the same name.
    pub(crate) fn keep(&self, name: &str, link: FdLink) -> Result<FdLink, PinError> {
        let (new, path) = (self.path(&format!("{name}-new")), self.path(name));
        let _left_by_a_killed_process = fs::remove_file(&new);
        let fail = |error: io::Error| io_error("pinning", &path)(error);
        let pinned = link.pin(&new).map_err(|error| fail(io::Error::other(error)))?;
        fs::rename(&new, &path).map_err(fail)?;
        Ok(pinned.into())
    }

    /// Removes a pin, if there is one.
    pub(crate) fn forget(&self, name: &str) {
        let _not_there = fs::remove_file(self.path(name));
    }

    /// A map of the program that steers now; maps with the policy are not pinned.
    pub(crate) fn attached_map(&self, name: &str) -> Option<aya::maps::Map> {
        let id = self.link(XDP)?.info().ok()?.program_id();
        let programs = aya::programs::loaded_programs().filter_map(Result::ok);
        let program = programs.into_iter().find(|program| program.id() == id)?;
        let maps = program.map_ids().ok()??;
        let is_it =
            |id: &u32| MapInfo::from_id(*id).is_ok_and(|info| info.name_as_str() == Some(name));
        let id = maps.into_iter().find(is_it)?;
        aya::maps::Map::from_map_data(MapData::from_id(id).ok()?).ok()
    }

    /// Where in the receive path the pinned program runs.
    pub(crate) fn attached(&self) -> Option<String> {
        self.text(ATTACHED)
    }

    pub(crate) fn set_attached(&self, place: &str) -> Result<(), PinError> {
        self.write(ATTACHED, place)
    }

    /// The file system has no files with text, but links.
    fn text(&self, name: &str) -> Option<String> {
        let to = fs::read_link(self.path(name)).ok()?;
        Some(to.to_string_lossy().into_owned())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), PinError> {
        let path = self.path(name);
        let _not_there = fs::remove_file(&path);
        symlink(text, &path).map_err(io_error("writing", &path))
    }

    /// Whether the pinned maps have the sizes that this version knows.
    fn check(&self) -> Result<(), PinError> {
        for (name, key, value) in MAPS {
            let path = self.path(name);
            if !path.exists() {
                continue;
            }
            let info = MapInfo::from_pin(&path);
            let info = info.map_err(|error| io_error("reading", &path)(io::Error::other(error)))?;
            if (info.key_size(), info.value_size()) != (key, value) {
                return Err(self.other_layout(format!("its map '{name}' has another form")));
            }
        }
        Ok(())
    }

    fn other_layout(&self, found: String) -> PinError {
        let folder = self.folder.parent().unwrap_or(&self.folder).to_owned();
        PinError::Layout { folder, interface: self.interface.clone(), found }
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PinError {
    let path = path.to_owned();
    move |error| PinError::Io { what, path, error }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// What tells an interface of this machine from all others that were there since it was started.
fn owner(interface: &str) -> Result<String, PinError> {
    let index = index(interface).ok_or_else(|| PinError::NoInterface(interface.to_owned()))?;
    let path = Path::new("/proc/thread-self/ns/net");
    let namespace = fs::metadata(path).map_err(io_error("reading", path))?.ino();
    Ok(format!("index {index} of network namespace {namespace}"))
}

fn index(interface: &str) -> Option<u32> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(socket, interface).ok()
}

/// Whether the interface `found` of this network namespace, which is that of `own`, has been deleted.
fn is_gone(found: &str, own: &str) -> bool {
    let namespace = |text: &str| text.split_once(" of ").map(|(_, rest)| rest.to_owned());
    let index = found.strip_prefix("index ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok();
    namespace(found) == namespace(own)
        && socket.zip(index).is_some_and(|(socket, index)| {
            netdevice::index_to_name(socket, index) == Err(rustix::io::Errno::NODEV)
        })
}

/// Whether a path, which need not exist, is in a BPF file system.
fn is_in_bpf(path: &Path) -> bool {
    let there = path.ancestors().find_map(|one| fs::canonicalize(one).ok());
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((PathBuf::from(words.next()?), words.next()?))
    });
    // Of several, the last one that was mounted counts.
    let around = mounts.filter(|(at, _)| there.as_ref().is_some_and(|path| path.starts_with(at)));
    let deepest = around.max_by_key(|(at, _)| at.as_os_str().len());
    deepest.is_some_and(|(_, kind)| kind == "bpf")
}
