//! The program in front of one port: attached with the port's own program, and informed about the interface.
//!
//! The interface's state decides how much the program sends there: nothing while it is down or takes no redirected
//! frames, and no frame that is longer than its MTU permits. Such frames are passed to the yard, which sends them or counts
//! why it cannot.
//!
//! Thread-safety: shared by the cores of a port.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_ports::af_xdp::{Ahead, Attached, Before};
use flowyard_ports::live::State;

use crate::Kernel;
use crate::netdev::Netdev;

/// The program in front of one port.
#[derive(Debug)]
pub struct OfPort {
    kernel: Arc<Kernel>,
    number: u16,
    about: Mutex<About>,
}

#[derive(Debug, Default)]
struct About {
    /// What answers about the interface; `None` before Linux 6.3.
    netdev: Option<Netdev>,
    is_stopped: bool,
    /// Whether it was reported that the interface takes no redirected frames.
    is_refusing: bool,
}

/// Length of an Ethernet header with a VLAN tag: what an interface takes beyond its MTU.
const HEADER: u32 = 18;

impl OfPort {
    /// The program of `kernel` in front of port `number`.
    #[must_use]
    pub fn new(kernel: Arc<Kernel>, number: u16) -> Self {
        Self { kernel, number, about: Mutex::default() }
    }
}

impl Ahead for OfPort {
    fn on(&self, index: u32) -> io::Result<Before> {
        self.kernel.has(self.number, index)?;
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        about.netdev = Netdev::open().ok();
        self.kernel.before(self.number)
    }

    fn look(&self, state: &State, attached: Attached) -> Option<String> {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        if about.is_stopped {
            return None;
        }
        // Programs after the driver send without the driver's XDP. An error is no evidence, such as that of an interface
        // that is just being removed.
        let takes = attached == Attached::Generic
            || about.netdev.as_ref().is_none_or(|it| it.takes(state.index).unwrap_or(true));
        let longest = if takes && state.is_up { state.mtu + HEADER } else { 0 };
        if let Err(error) = self.kernel.takes(self.number, longest) {
            return Some(format!("XDP was not informed about the interface: {error}"));
        }
        let was_refusing = std::mem::replace(&mut about.is_refusing, !takes);
        match (was_refusing, takes) {
            (false, false) => Some(
                "the interface takes no redirected frames, so XDP sends none to it, and all frames to it pass \
                 through the yard; if it is a veth, switch GRO on at its other end (ethtool -K ... gro on)"
                    .into(),
            ),
            (true, true) => Some("the interface takes redirected frames now".into()),
            _ => None,
        }
    }

    fn stop(&self) {
        let mut about = self.about.lock().unwrap_or_else(PoisonError::into_inner);
        about.is_stopped = true;
        let _unchanged = self.kernel.has(self.number, 0);
    }
}
