//! What a run opens beside its ports, before it gives up its privileges.

use std::path::Path;

use flowyard_config::Config;
use flowyard_operate::control::{self, Bound, Control};
use flowyard_operate::doctor::Wanted;
use flowyard_operate::metrics::{self, Metrics};
use flowyard_operate::privilege::{self, User};
use flowyard_yard::Handle;

use super::Args;
use crate::stop::{Stop, bad_input};

/// Bound, and not served yet.
pub(super) struct Open {
    control: Option<Bound>,
    metrics: Option<Metrics>,
}

impl Open {
    /// Opens what the arguments, or the configuration, ask for. The default control socket is a
    /// convenience: without it the engine runs without a control socket, and logs a warning.
    pub(super) fn all(config: &Config, args: &Args) -> Result<Self, Stop> {
        let group = args.control_group.as_deref();
        let control = match args.control.as_deref() {
            Some(path) if path == Path::new("none") => None,
            Some(path) => Some(Bound::bind(path, group).map_err(bad_input)?),
            None => match control::default_path(&args.config) {
                Some(path) => match Bound::bind(&path, group) {
                    Ok(bound) => Some(bound),
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

    /// Answers for `yard`, as long as the result lives.
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
                    "metrics can be read by every host that reaches {}",
                    metrics.address()
                );
            }
        }
        Ok((control, metrics))
    }
}

/// Gives up what is not needed any more. Captures are put in their places at the end: root may write
/// where it does not own the folder by a capability alone, so that one stays where some are written.
pub(super) fn give_up(args: &Args, wanted: &Wanted, writes: bool) -> Result<(), Stop> {
    let user = args.user.as_deref().map(User::find).transpose().map_err(bad_input)?;
    let ports = if args.drop_all_capabilities { &[][..] } else { &wanted.ports };
    let mut keep = privilege::to_open(ports.iter().map(|port| port.kind.as_str()));
    if writes && args.user.is_none() && !args.drop_all_capabilities {
        keep |= privilege::TO_WRITE;
    }
    let gone = match privilege::give_up(user, keep) {
        Ok(gone) => gone,
        // A requested user is required; giving up capabilities is an improvement, and its failure does not stop the engine.
        Err(error) if user.is_none() => {
            tracing::warn!("privileges are kept: {error}");
            return Ok(());
        }
        Err(error) => return Err(Stop::Failed(error.into())),
    };
    if !gone.is_empty() {
        let kept: Vec<_> = keep.iter_names().map(|(name, _)| name).collect();
        tracing::info!(count = gone.len(), ?kept, user = args.user, "capabilities given up");
    }
    Ok(())
}
