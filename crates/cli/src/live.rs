//! The traffic that a command looks at: captures, or the live traffic of an interface.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_host::{Only, Sampled, Sampler, Traffic, addresses};
use flowyard_ports::{mem::Frames, pcap};
use flowyard_wire::LinkType;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::nanos;
use crate::stop::{Stop, failed};

/// A flag that SIGINT, SIGTERM and SIGHUP set. A second SIGINT or SIGTERM ends the process. It is the same at each call.
pub(crate) fn flag() -> Result<Arc<AtomicBool>, Stop> {
    flag_with(Second::Ends)
}

/// As [`flag`], for commands that undo a change before they end: no signal ends the process. It is to be called before the
/// change, and before [`flag`].
pub(crate) fn flag_of_change() -> Result<Arc<AtomicBool>, Stop> {
    flag_with(Second::IsIgnored)
}

/// What a second signal does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    Ends,
    IsIgnored,
}

fn flag_with(second: Second) -> Result<Arc<AtomicBool>, Stop> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    let caught = catch(&[SIGINT, SIGTERM], &flag, second);
    let caught = caught.and_then(|()| catch(&[SIGHUP], &flag, Second::IsIgnored));
    caught.map_err(failed("catching signals"))?;
    Ok(Arc::clone(FLAG.get_or_init(|| flag)))
}

fn catch(signals: &[i32], flag: &Arc<AtomicBool>, second: Second) -> std::io::Result<()> {
    for &signal in signals {
        if second == Second::Ends {
            // In this order: the first signal finds the flag unset and sets it, the second one exits.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(flag))?;
        }
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// Reads the live traffic of an interface for a time, or until the user ends it. Returns the number of frames for
/// which there was no room.
pub(crate) fn sample(
    interface: &str,
    index: u32,
    kinds: &[Only],
    time: Duration,
    each: &mut dyn FnMut(usize, Sampled<'_>),
) -> Result<u32, Stop> {
    let refused = refused(interface);
    let ended = flag()?;
    let (clock, end) = (crate::clock::new(), nanos(time));
    let mut sampler = Sampler::open(index, kinds).map_err(&refused)?;
    let now = || -> Nanos { clock() };
    let is_over = || clock() >= end || ended.load(Ordering::Relaxed);
    sampler.run(&now, &is_over, each).map_err(&refused)
}

/// What a refusal to read the traffic of an interface means.
pub(crate) fn refused(interface: &str) -> impl Fn(std::io::Error) -> Stop {
    let what = format!("reading the traffic of {interface}");
    move |error| {
        let fix = match error.kind() {
            std::io::ErrorKind::PermissionDenied => RAW,
            _ => "",
        };
        Stop::Failed(anyhow::anyhow!("{what}: {error}{fix}"))
    }
}

/// What permits reading the traffic of an interface.
const RAW: &str =
    "; run as root, or grant the program CAP_NET_RAW (setcap, or AmbientCapabilities in systemd)";

/// The traffic that an interface receives in a time.
pub(crate) fn traffic(interface: &str, index: u32, time: Duration) -> Result<Traffic, Stop> {
    let mut traffic = Traffic::default();
    let lost = sample(interface, index, &[Only::All], time, &mut |_, seen| {
        traffic.sample(LinkType::Ethernet, &seen);
    })?;
    note_lost(lost);
    Ok(traffic)
}

/// The frames that an interface receives and sends in a time, with their first bytes only.
pub(crate) fn frames(interface: &str, time: Duration) -> Result<Frames, Stop> {
    let state = crate::host::read(interface)?;
    let mut frames = Frames::new();
    let lost = sample(interface, state.index, &[Only::All], time, &mut |_, seen| {
        let each = (seen.wire_len / seen.segments).max(seen.bytes.len() as u32);
        for _ in 0..seen.segments {
            frames.push_front(seen.time, LinkType::Ethernet, seen.bytes, each);
        }
    })?;
    note_lost(lost);
    Ok(frames)
}

pub(crate) fn note_lost(lost: u32) {
    if lost > 0 {
        crate::output::note(&format!(
            "{lost} frames came faster than they could be read, and are not in the sample"
        ));
    }
}

/// The received traffic of captures. What the interface's own addresses sent is left out.
pub(crate) fn captured(interface: &str, files: &[String]) -> Result<Traffic, Stop> {
    let own = addresses(interface);
    let mut traffic = Traffic::default();
    let ender = crate::interrupt::ender().map_err(failed("catching signals"))?;
    for file in files {
        let mut source = pcap::open_until(file, &ender)?;
        traffic.add(&mut source, &own)?;
    }
    Ok(traffic)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise Ctrl-C twice would leave a change half undone.
    #[test]
    fn a_second_signal_does_not_end_a_command_that_undoes_a_change() {
        let (signal, flag) = (signal_hook::consts::SIGUSR1, Arc::new(AtomicBool::new(false)));
        catch(&[signal], &flag, Second::IsIgnored).unwrap();
        for _ in 0..2 {
            signal_hook::low_level::raise(signal).unwrap();
            assert!(flag.load(Ordering::Relaxed));
        }
    }
}
