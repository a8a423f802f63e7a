//! Network interfaces: looked up by name, and watched while in use.

use std::io;
use std::os::fd::OwnedFd;

use flowyard_frame::Nanos;

use super::error::OpenError;
use super::sys::{self, Request};

/// The state of an interface at the time of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The name, such as `eth0`.
    pub name: String,
    /// The kernel's interface index.
    pub index: u32,
    /// The longest packet in bytes, without the link header.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub is_up: bool,
}

impl Interface {
    /// Looks up the interface `name`.
    ///
    /// # Errors
    /// When there is no such interface; the message lists the existing ones.
    pub fn find(name: &str) -> Result<Self, OpenError> {
        let control = control().map_err(|e| OpenError::os("a socket", &e, ""))?;
        Self::look(&control, name).map_err(|_| {
            let names = sys::names().join(", ");
            OpenError::new(
                format!("there is no interface '{name}'"),
                format!("choose one of {names}"),
            )
        })
    }

    fn look(control: &OwnedFd, name: &str) -> io::Result<Self> {
        let request = Request::new(name).ok_or(io::ErrorKind::NotFound)?;
        let (index, is_up) = glance(control, request)?;
        let mut mtu = request;
        sys::ask(control, libc::SIOCGIFMTU as _, &mut mtu)?;
        Ok(Self { name: name.into(), index, mtu: mtu.number().unsigned_abs(), is_up })
    }

    /// Sets the interface up, with the given MTU and hardware address, if any. The settings remain
    /// when the program ends.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn set_up(&self, mtu: Option<u32>, mac: Option<[u8; 6]>) -> io::Result<()> {
        let control = control()?;
        let request = Request::new(&self.name).ok_or(io::ErrorKind::NotFound)?;
        if let Some([a, b, c, d, e, f]) = mac {
            let [x, y] = libc::ARPHRD_ETHER.to_ne_bytes();
            let mut request = request.with(&[x, y, a, b, c, d, e, f]);
            sys::ask(&control, libc::SIOCSIFHWADDR as _, &mut request)?;
        }
        if let Some(mtu) = mtu {
            let mut request = request.with(&mtu.to_ne_bytes());
            sys::ask(&control, libc::SIOCSIFMTU as _, &mut request)?;
        }
        let mut flags = request;
        sys::ask(&control, libc::SIOCGIFFLAGS as _, &mut flags)?;
        let up = flags.short() | libc::IFF_UP as u16;
        sys::ask(&control, libc::SIOCSIFFLAGS as _, &mut request.with(&up.to_ne_bytes()))
    }
}

/// Whether the interface `name` is up and has a carrier; `None` if there is no such interface.
#[must_use]
pub fn has_link(name: &str) -> Option<bool> {
    let mut request = Request::new(name)?;
    sys::ask(&control().ok()?, libc::SIOCGIFFLAGS as _, &mut request).ok()?;
    let both = libc::IFF_UP | libc::IFF_RUNNING;
    Some(i32::from(request.short()) & both == both)
}

/// The MAC address of the interface `name`; `None` if there is no such interface, or if it has none.
#[must_use]
pub fn mac_address(name: &str) -> Option<[u8; 6]> {
    let mut request = Request::new(name)?;
    sys::ask(&control().ok()?, libc::SIOCGIFHWADDR as _, &mut request).ok()?;
    let mac = <[u8; 6]>::try_from(request.value.get(2..8)?).ok()?;
    (request.short() == libc::ARPHRD_ETHER && mac != [0; 6]).then_some(mac)
}

/// The speed of the interface `name` in Mbit/s; `None` if it is not known.
///
/// It is read from /sys, which shows the network namespace in which it was mounted. The address is
/// compared, so that an interface with the same name in another namespace is not taken for this one.
#[must_use]
pub fn speed(name: &str) -> Option<u32> {
    let mac = mac_address(name)?;
    let read = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok();
    let pairs: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    if read("address")?.trim() != pairs.join(":") {
        return None;
    }
    // -1 means unknown.
    read("speed")?.trim().parse().ok().filter(|speed| *speed > 0)
}

/// The index of an interface, and whether it is up.
fn glance(control: &OwnedFd, request: Request) -> io::Result<(u32, bool)> {
    let (mut index, mut flags) = (request, request);
    sys::ask(control, libc::SIOCGIFINDEX as _, &mut index)?;
    sys::ask(control, libc::SIOCGIFFLAGS as _, &mut flags)?;
    Ok((index.number().unsigned_abs(), i32::from(flags.short()) & libc::IFF_UP != 0))
}

/// Any socket accepts interface requests; they apply to the network namespace in which it was
/// created.
fn control() -> io::Result<OwnedFd> {
    sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)
}

/// A change of an interface since it was last checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The interface was set down.
    Down,
    /// The interface no longer exists.
    Gone,
    /// The interface is up again. Sockets bound to it are still bound.
    Up,
    /// Another interface with the same name is up: sockets must be reopened on this one.
    New(Interface),
}

/// Periodically checks whether an interface exists and is up.
#[derive(Debug)]
pub struct Watch {
    control: OwnedFd,
    name: String,
    request: Request,
    index: u32,
    state: State,
    next: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Up,
    Down,
    Gone,
}

impl Watch {
    /// Time between two checks, in nanoseconds.
    pub const EVERY: Nanos = 20_000_000;

    /// Watches `interface`, on which sockets are open.
    ///
    /// # Errors
    /// When no file descriptor is available.
    pub fn new(interface: &Interface) -> io::Result<Self> {
        let state = if interface.is_up { State::Up } else { State::Down };
        let (name, index) = (interface.name.clone(), interface.index);
        let request = Request::new(&name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { control: control()?, name, request, index, state, next: 0 })
    }

    /// Whether the interface was up at the last check.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Makes the next call of [`Watch::look`] check at once, because an operation failed.
    pub const fn hurry(&mut self) {
        self.next = 0;
    }

    /// Checks the interface if the time between two checks has passed.
    #[inline]
    pub fn look(&mut self, now: Nanos) -> Option<Change> {
        if now < self.next {
            return None;
        }
        self.next = now + Self::EVERY;
        let found = glance(&self.control, self.request).ok();
        let state = match found {
            None => State::Gone,
            Some((_, true)) => State::Up,
            Some((_, false)) => State::Down,
        };
        if let Some((index, true)) = found
            && index != self.index
            && let Ok(interface) = Interface::look(&self.control, &self.name)
        {
            (self.index, self.state) = (interface.index, state);
            return Some(Change::New(interface));
        }
        let before = std::mem::replace(&mut self.state, state);
        match (before, state) {
            (State::Up | State::Down, State::Gone) => Some(Change::Gone),
            (State::Up, State::Down) => Some(Change::Down),
            (State::Down | State::Gone, State::Up) => Some(Change::Up),
            _ => None,
        }
    }

    /// Records that sockets are no longer bound to the interface, even if its index is unchanged: a
    /// [`Change::New`] will be reported when it is up.
    pub const fn forget(&mut self) {
        self.index = 0;
    }
}
