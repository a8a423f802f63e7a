//! The firmware that is included with the simulator. The images are prebuilt, so that using it needs only
//! Rust.
//!
//! Sources, linker script and hashes are in `crates/nicsim/firmware`; `cargo xtask firmware` rebuilds the
//! images with Debian's clang and lld and compares them byte for byte.

use crate::elf::Image;

/// An included image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Builtin {
    /// One core, no locks, no ordering (Table 1).
    Ideal,
    /// Frame-level parallel, ordering by locks and flags.
    SwOnly,
    /// Frame-level parallel, ordering by `set` and `update`.
    Rmw,
    /// Task-level parallel with an event register (section 3.2).
    Task,
    /// `Rmw`, with RSS and exact-match filters that choose one of several return rings.
    Steer,
}

impl Builtin {
    /// All images.
    pub const ALL: [Self; 5] = [Self::Ideal, Self::SwOnly, Self::Rmw, Self::Task, Self::Steer];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ideal => "ideal",
            Self::SwOnly => "swonly",
            Self::Rmw => "rmw",
            Self::Task => "task",
            Self::Steer => "steer",
        }
    }

    /// A short description.
    pub fn about(self) -> &'static str {
        match self {
            Self::Ideal => "one core, no locks, no ordering",
            Self::SwOnly => "frame-level parallel, ordering in software",
            Self::Rmw => "frame-level parallel, ordering by set and update",
            Self::Task => "task-level parallel, event register",
            Self::Steer => "rmw with RSS and exact-match filters",
        }
    }

    /// The image of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// Whether `image` has the code of this firmware.
    pub(crate) fn is(self, image: &Image) -> bool {
        // The largest scratchpad, because the code does not depend on its size.
        Image::parse(self.elf(), 1 << 20).is_ok_and(|own| own.text == image.text)
    }

    /// The ELF file.
    pub fn elf(self) -> &'static [u8] {
        match self {
            Self::Ideal => include_bytes!("../firmware/ideal.elf"),
            Self::SwOnly => include_bytes!("../firmware/swonly.elf"),
            Self::Rmw => include_bytes!("../firmware/rmw.elf"),
            Self::Task => include_bytes!("../firmware/task.elf"),
            Self::Steer => include_bytes!("../firmware/steer.elf"),
        }
    }
}
