//! Network interfaces: looked up by name, and looked at while in use.

use std::io;
use std::os::fd::OwnedFd;

use super::counts::{Counts, CountsFile};
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
        let State { index, mtu, is_up } = state(control, request)?;
        Ok(Self { name: name.into(), index, mtu, is_up })
    }

    /// Sets the interface up, with the given MTU and hardware address, if any. The settings remain
    /// when the program ends. What is as wanted already is not set again: a new address makes the host
    /// forget its neighbours, even if it is the old one.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn set_up(&self, mtu: Option<u32>, mac: Option<[u8; 6]>) -> io::Result<()> {
        let control = control()?;
        let request = Request::new(&self.name).ok_or(io::ErrorKind::NotFound)?;
        if let Some(mac @ [a, b, c, d, e, f]) = mac
            && mac_address(&self.name) != Some(mac)
        {
            let [x, y] = libc::ARPHRD_ETHER.to_ne_bytes();
            let mut request = request.with(&[x, y, a, b, c, d, e, f]);
            sys::ask(&control, libc::SIOCSIFHWADDR as _, &mut request)?;
        }
        if let Some(mtu) = mtu.filter(|mtu| *mtu != self.mtu) {
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

/// The state of an interface.
fn state(control: &OwnedFd, request: Request) -> io::Result<State> {
    let (mut index, mut mtu, mut flags) = (request, request, request);
    sys::ask(control, libc::SIOCGIFINDEX as _, &mut index)?;
    sys::ask(control, libc::SIOCGIFMTU as _, &mut mtu)?;
    sys::ask(control, libc::SIOCGIFFLAGS as _, &mut flags)?;
    let is_up = i32::from(flags.short()) & libc::IFF_UP != 0;
    Ok(State { index: index.number().unsigned_abs(), mtu: mtu.number().unsigned_abs(), is_up })
}

/// Any socket accepts interface requests; they apply to the network namespace in which it was
/// created.
fn control() -> io::Result<OwnedFd> {
    sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)
}

/// The state of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// The kernel's interface index.
    pub index: u32,
    /// The longest packet in bytes, without the link header.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub is_up: bool,
}

/// Looks at an interface by its name, in the network namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Looker {
    control: OwnedFd,
    name: String,
    request: Request,
    counts: Option<CountsFile>,
}

impl Looker {
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let request = Request::new(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { control: control()?, name: name.into(), request, counts: CountsFile::open() })
    }

    /// The state of the interface; `None` if there is none of this name.
    pub(crate) fn look(&self) -> io::Result<Option<State>> {
        match state(&self.control, self.request) {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The counters of the interface.
    pub(crate) fn counts(&mut self) -> Option<Counts> {
        self.counts.as_mut()?.read(&self.name)
    }
}
