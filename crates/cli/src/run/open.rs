//! The control socket and the metrics of a run, and dropping its privileges.

use std::path::Path;

use flowyard_config::Config;
use flowyard_operate::control::{self, Bound, Control, ControlError};
use flowyard_operate::doctor::Wanted;
use flowyard_operate::metrics::{self, Metrics};
use flowyard_operate::privilege::{self, User};
use flowyard_yard::Handle;

use super::Args;
use crate::stop::{Stop, bad_input};

/// Sockets that are bound but not served yet.
pub(super) struct Open {
    control: Option<Bound>,
    metrics: Option<Metrics>,
}

impl Open {
    /// Opens the control socket and the metrics by the arguments or the configuration. If the default control
    /// socket cannot be opened, the run continues without one and logs that; but if another instance uses it,
    /// the start fails, because both would forward the same frames.
    pub(super) fn all(config: &Config, args: &Args) -> Result<Self, Stop> {
        let group = args.control_group.as_deref();
        let control = match args.control.as_deref() {
            Some(path) if path == Path::new("none") => None,
            Some(path) => Some(Bound::bind(path, group).map_err(bad_input)?),
            None => match control::default_path(&args.config) {
                Some(path) => match Bound::bind(&path, group) {
                    Ok(bound) => Some(bound),
                    Err(error @ ControlError::Taken(_)) => return Err(bad_input(error)),
                    Err(error) => {
                        tracing::warn!("no control socket: {error}");
                        None
                    }
                },
                None => {
                    tracing::info!("no control socket: XDG_RUNTIME_DIR is not set; see --control");
                    None
                }
            },
        };
        let address = args.metrics.as_deref().or_else(|| config.metrics());
        let metrics = match address {
            None => None,
            Some(text) => {
                let address = metrics::address(text).map_err(bad_input)?;
                Some(Metrics::bind(address).map_err(|error| Stop::Failed(error.into()))?)
            }
        };
        Ok(Self { control, metrics })
    }

    /// Serves queries about `yard` until the result is dropped.
    pub(super) fn serve(self, yard: &Handle) -> Result<(Option<Control>, Option<Metrics>), Stop> {
        let Self { control, mut metrics } = self;
        let control = control.map(|bound| bound.serve(yard.clone())).transpose()?;
        if let Some(control) = &control {
            tracing::info!(path = %control.path().display(), "control socket");
        }
        if let Some(metrics) = &mut metrics {
            metrics.serve(yard.clone())?;
            tracing::info!("metrics: http://{}/metrics", metrics.address());
            if !metrics.address().ip().is_loopback() {
                tracing::warn!(
                    "metrics are served without authentication to every host that can reach {}",
                    metrics.address()
                );
            }
        }
        Ok((control, metrics))
    }
}

/// Drops all capabilities that are not needed any more, and changes the user if one is given.
///
/// Captures are renamed to their final paths at the end. Root can write into a folder of another user only by
/// a capability, which is kept (`writes`) if the run writes captures.
pub(super) fn give_up(args: &Args, wanted: &Wanted, writes: bool) -> Result<(), Stop> {
    let user = args.user.as_deref().map(User::find).transpose().map_err(bad_input)?;
    let ports = if args.drop_all_capabilities { &[][..] } else { &wanted.ports };
    let mut keep = privilege::to_open(ports.iter().map(|port| port.kind.as_str()));
    if writes && args.user.is_none() && !args.drop_all_capabilities {
        keep |= privilege::TO_WRITE;
    }
    let gone = match privilege::give_up(user, keep) {
        Ok(gone) => gone,
        // An explicit --user must succeed. Otherwise dropping privileges is only a precaution, and its
        // failure must not prevent the run.
        Err(error) if user.is_none() => {
            tracing::warn!("cannot drop privileges: {error}");
            return Ok(());
        }
        Err(error) => return Err(Stop::Failed(error.into())),
    };
    if !gone.is_empty() {
        let kept: Vec<_> = keep.iter_names().map(|(name, _)| name).collect();
        tracing::info!(count = gone.len(), ?kept, user = args.user, "capabilities dropped");
    }
    Ok(())
}
