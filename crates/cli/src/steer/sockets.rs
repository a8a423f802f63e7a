//! Groups of sockets that get the packets of their thread's CPU, while an interface is steered.

use flowyard_frame::Nanos;
use flowyard_report::{Cell, Column, Table};
use flowyard_steer::{GroupCounts, Sockets, SocketsError};

use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Time between two searches for new sockets.
const REFRESH: Nanos = 1_000_000_000;

/// A process and a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shared {
    process: u32,
    port: u16,
}

/// The process and the port in `PID:PORT`.
pub(super) fn shared(text: &str) -> Result<Shared, String> {
    let parts = text.split_once(':');
    let both = parts.and_then(|(pid, port)| Some((pid.parse().ok()?, port.parse().ok()?)));
    match both {
        Some((process, port)) if process > 0 && port > 0 => Ok(Shared { process, port }),
        _ => Err(format!("must be the number of a process and a port, as 1234:443, not '{text}'")),
    }
}

/// The groups of all `--sockets`.
pub(super) struct Groups {
    attached: Vec<Sockets>,
    /// Those of processes that have ended.
    ended: Vec<GroupCounts>,
    refreshed: Nanos,
}

impl Groups {
    pub(super) fn attach(all: &[Shared]) -> Result<Self, Stop> {
        let attach = |one: &Shared| Sockets::attach(one.process, one.port).map_err(stopped);
        let attached: Vec<_> = all.iter().map(attach).collect::<Result<_, _>>()?;
        Ok(Self { attached, ended: Vec::new(), refreshed: 0 })
    }

    /// To be called every few hundredths of a second: follows threads, and now and then looks for new sockets.
    pub(super) fn tend(&mut self, now: Nanos) -> Result<(), Stop> {
        self.attached.iter_mut().try_for_each(Sockets::follow).map_err(stopped)?;
        if now < self.refreshed + REFRESH {
            return Ok(());
        }
        self.refreshed = now;
        let mut at = 0;
        while at < self.attached.len() {
            match self.attached[at].refresh() {
                Ok(()) => at += 1,
                Err(error @ SocketsError::Process { .. }) => {
                    let mut gone = self.attached.remove(at);
                    output::note(&format!(
                        "--sockets: {error}; the sockets of port {} are steered no longer",
                        gone.port()
                    ));
                    self.ended.extend(gone.counts().map_err(stopped)?);
                }
                Err(error) => return Err(stopped(error)),
            }
        }
        Ok(())
    }

    pub(super) fn counts(&mut self) -> Result<Vec<GroupCounts>, Stop> {
        let mut all = self.ended.clone();
        for sockets in &mut self.attached {
            all.extend(sockets.counts().map_err(stopped)?);
        }
        Ok(all)
    }
}

/// Bad input, or a failure of the system.
fn stopped(error: SocketsError) -> Stop {
    match error {
        error @ SocketsError::Kernel { .. } => Stop::Failed(error.into()),
        error => bad_input(format!("--sockets: {error}")),
    }
}

/// A table of the groups; nothing if there are none.
pub(super) fn text(groups: &[GroupCounts]) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let mut table = Table::new("")
        .column(Column::text("sockets that share"))
        .column(Column::number("process"))
        .column(Column::number("sockets"))
        .column(Column::number("placed"))
        .column(Column::number("local"))
        .column(Column::number("other"));
    for group in groups {
        let cells = [
            format!("{} {}", group.protocol, group.address),
            group.process.to_string(),
            group.sockets.to_string(),
            group.placed.to_string(),
            group.local.to_string(),
            group.other.to_string(),
        ];
        table.push(cells.into_iter().map(Cell::new));
    }
    format!("\n{}", table.to_text(&style()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_a_port_are_named() {
        assert_eq!(shared("1234:443"), Ok(Shared { process: 1234, port: 443 }));
        for wrong in ["1234", "443:", ":443", "0:443", "1:0", "1:65536", "a:1", "1:2:3"] {
            let error = shared(wrong).unwrap_err();
            assert!(error.contains("as 1234:443"), "{wrong}: {error}");
        }
    }
}
