//! What `flowyard steer --pin` adopts and leaves behind.

use std::path::PathBuf;

use flowyard_operate::client::Client;
use flowyard_operate::protocol::{Request, Steer};
use flowyard_steer::{Pins, Policy, default_folder};

use super::{Args, stopped};
use crate::output;
use crate::stop::Stop;

impl Args {
    /// The folder of the pins of the interface.
    fn folder(&self) -> PathBuf {
        self.pin.clone().flatten().unwrap_or_else(|| default_folder(&self.interface))
    }
}

/// The pins, if they are wanted. A random key stays that of the program that steers already, so that flows keep their CPUs.
pub(super) fn open(args: &Args, policy: &mut Policy) -> Result<Option<Pins>, Stop> {
    if args.pin.is_none() {
        return Ok(None);
    }
    let pins =
        Pins::open(&args.folder(), &args.interface).map_err(|error| stopped(error.into()))?;
    if pins.is_steering() {
        if args.rss_key == "random" {
            policy.key = pins.key().ok_or_else(|| {
                Stop::Failed(anyhow::anyhow!(
                    "the key of the pinned program cannot be read, which needs CAP_SYS_ADMIN; run it as root, or name the key with \
                     --rss-key"
                ))
            })?;
        }
        let folder = pins.folder().display();
        output::note(&format!("taking over the flows and counters of {folder}"));
    }
    Ok(Some(pins))
}

/// Removes what is pinned.
pub(super) fn stop(args: &Args) -> Result<(), Stop> {
    let (folder, name) = (args.folder(), &args.interface);
    if let Some(pins) = running(args)
        && pins.starts_with(&folder)
    {
        return Err(Stop::Failed(anyhow::anyhow!(
            "'flowyard steer {name} --pin' is running; end it first (SIGTERM), then remove what it leaves"
        )));
    }
    let removed = Pins::remove(&folder).map_err(|error| stopped(error.into()))?;
    let folder = folder.display();
    output::text(&match removed {
        true => format!("{name}: frames are not steered any more; {folder} is removed\n"),
        false => format!("{name}: nothing is pinned in {folder}\n"),
    })
}

/// The folder of the pins of the process that steers the interface, if one runs.
fn running(args: &Args) -> Option<PathBuf> {
    let socket = super::daemon::socket(args)?;
    let steer: Steer = Client::connect(Some(&socket)).ok()?.ask(&Request::Steer).ok()?;
    steer.pins.map(PathBuf::from)
}
