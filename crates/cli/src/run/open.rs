//! The control socket and the metrics of a run, and dropping its privileges.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use flowyard_config::{Config, file};
use flowyard_operate::announce::kernel::Routes;
use flowyard_operate::control::{self, Bound, Control, ControlError, SocketError};
use flowyard_operate::doctor::Wanted;
use flowyard_operate::handover::Leaving;
use flowyard_operate::health::commands::Planned;
use flowyard_operate::metrics::{self, Metrics};
use flowyard_operate::privilege;
use flowyard_operate::reload::Current;
use flowyard_operate::service::Service;
use flowyard_operate::take_over::Running;
use flowyard_pool::PoolMemory;
use flowyard_yard::Handle;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::user::Becomes;
use super::{Args, sync};
use crate::stop::{Stop, bad_input, failed};

/// Sockets that are bound but not served yet.
pub(super) struct Open {
    control: Option<Bound>,
    metrics: Option<Metrics>,
}

/// Sockets that are served until this is dropped.
pub(super) struct Served {
    control: Option<Control>,
    pub(super) metrics: Option<Metrics>,
    /// For a process that takes over, if one can.
    pub(super) leaving: Option<Arc<Leaving>>,
}

impl Served {
    /// Lets reloads start a process that takes over, if such a process can: the control socket must be usable for the user
    /// that this process has now. If root has opened it for a process that has changed its user, it is not.
    pub(super) fn allow_successors(&self, current: &Current) {
        let is_own = |control: &Control| access(control.path(), Access::WRITE_OK).is_ok();
        if self.leaving.is_some() && self.control.as_ref().is_some_and(is_own) && Service::follows()
        {
            current.allow_successors();
        }
    }
}

impl Open {
    /// Opens the control socket and the metrics by the arguments or the configuration. If the default control
    /// socket cannot be opened, the run continues without one and logs that; but if another instance uses it, or
    /// is about to, the start fails, because both would forward the same frames.
    /// The sockets of the running instance that is taken over are used again.
    pub(super) fn all(
        config: &Config,
        args: &Args,
        mut running: Option<&mut Running>,
    ) -> Result<Self, Stop> {
        let group = args.control_group.as_deref();
        let mut inherited = |name: &str| running.as_mut().and_then(|it| it.descriptor(name));
        let path = args.control.clone().or_else(|| control::default_path(&args.config));
        let adopted = inherited(CONTROL).zip(path);
        let control = match args.control.as_deref() {
            _ if adopted.is_some() => adopted.map(|(fd, path)| Bound::adopt(fd, &path)),
            Some(path) if path == Path::new("none") => None,
            Some(path) => Some(Bound::bind(path, group).map_err(unbound)?),
            None => match control::default_path(&args.config) {
                Some(path) => match Bound::bind(&path, group) {
                    Ok(bound) => Some(bound),
                    Err(
                        error @ (ControlError::Taken(_)
                        | ControlError::Locked {
                            source: SocketError::Locked { .. }, ..
                        }),
                    ) => return Err(bad_input(error)),
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
                Some(match inherited(&address.to_string()) {
                    Some(fd) => Metrics::adopt(fd).map_err(failed("serving metrics"))?,
                    None => Metrics::bind(address).map_err(|error| Stop::Failed(error.into()))?,
                })
            }
        };
        Ok(Self { control, metrics })
    }

    /// Serves queries about `yard` until the result is dropped.
    pub(super) fn serve(self, yard: &Handle, handed: Handed<'_>) -> Result<Served, Stop> {
        let Self { control, mut metrics } = self;
        let leaving = control.as_ref().map(|bound| leaving(bound, metrics.as_ref(), handed));
        let leaving = leaving.transpose().map_err(failed("serving the control socket"))?;
        let serve = |(bound, leaving): (Bound, &Arc<Leaving>)| {
            bound.serve_until(yard.clone(), Arc::clone(leaving))
        };
        let control = control.zip(leaving.as_ref()).map(serve).transpose();
        let control = control.map_err(failed("serving the control socket"))?;
        if let Some(control) = &control {
            tracing::info!(path = %control.path().display(), "control socket");
        }
        if let Some(metrics) = &mut metrics {
            serve_metrics(metrics, yard).map_err(failed("serving metrics"))?;
        }
        Ok(Served { control, metrics, leaving })
    }
}

/// Starts to serve metrics, and reports where.
pub(super) fn serve_metrics(metrics: &mut Metrics, yard: &Handle) -> io::Result<()> {
    metrics.serve(yard.clone())?;
    tracing::info!("metrics: http://{}/metrics", metrics.address());
    if !metrics.address().ip().is_loopback() {
        tracing::warn!(
            "metrics are served without authentication to every host that can reach {}",
            metrics.address()
        );
    }
    Ok(())
}

/// The name of the control socket among those that are handed over. Others have their addresses.
const CONTROL: &str = "control";

/// The name of the interface of routes among the descriptors that are handed over: another process can go on with it if it
/// has the same name and table.
fn of_routes(config: &Config) -> Option<String> {
    let announce = config.announce()?.get_ref();
    Some(format!("routes {} {}", announce.interface.get_ref(), announce.table.get_ref()))
}

/// What is handed over besides the sockets that are served.
pub(super) struct Handed<'a> {
    pub(super) config: &'a Config,
    pub(super) secret: [u8; 16],
    pub(super) pool: Option<PoolMemory>,
    /// The interface of routes to VIPs, and the socket on which other nodes are accepted.
    pub(super) sockets: (Option<&'a Routes>, Option<&'a sync::Opened>),
}

/// What another process needs to take over.
fn leaving(
    bound: &Bound,
    metrics: Option<&Metrics>,
    Handed { config, secret, pool, sockets: (routes, sync) }: Handed<'_>,
) -> io::Result<Arc<Leaving>> {
    let mut named = vec![(CONTROL.to_owned(), bound.duplicate()?)];
    if let (Some(routes), Some(name)) = (routes, of_routes(config)) {
        named.push((name, routes.duplicate()?));
    }
    if let Some(sync) = sync {
        named.push(sync.duplicate()?);
    }
    if let Some(metrics) = metrics
        && let Some(fd) = metrics.duplicate()?
    {
        named.push((metrics.address().to_string(), fd));
    }
    Ok(Arc::new(Leaving::new(secret, named, pool, config.opened())))
}

/// The control socket of the arguments cannot be opened: wrong use, unless descriptors, memory or the disk are
/// exhausted.
fn unbound(error: ControlError) -> Stop {
    match &error {
        ControlError::Io { source, .. }
            if matches!(
                Errno::from_io_error(source),
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC)
            ) =>
        {
            Stop::Failed(error.into())
        }
        _ => bad_input(error),
    }
}

/// Creates the interface of the routes to VIPs, if the configuration announces them.
pub(super) fn routes(
    config: &Config,
    args: &Args,
    running: Option<&mut Running>,
) -> Result<Option<Routes>, Stop> {
    let Some(announce) = config.announce() else { return Ok(None) };
    let (span, announce) = (announce.span(), announce.get_ref());
    if args.drop_all_capabilities {
        let what = "[balance.announce] changes routes of the kernel, which --drop-all-capabilities prevents";
        return Err(bad_input(config.error(span, what, "leave out the one or the other")));
    }
    let (name, table) = (announce.interface.get_ref(), *announce.table.get_ref());
    let inherited = running.and_then(|running| running.descriptor(&of_routes(config)?));
    let opened = match inherited {
        Some(tun) => Routes::adopt(tun, name, table),
        None => Routes::open(name, table),
    };
    let routes = opened.map_err(|error| {
        let fix = match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => "another instance uses it, or an interface has that name: write another 'interface' in [balance.announce]",
            Some(Errno::PERM | Errno::ACCESS) => "CAP_NET_ADMIN is needed: start flowyard as root",
            Some(Errno::NOENT | Errno::NODEV) => "the kernel has no TUN driver: modprobe tun",
            _ => "routes to VIPs need a TUN interface",
        };
        Stop::Failed(anyhow::anyhow!("creating the interface '{name}' for routes to VIPs: {error}; {fix}"))
    })?;
    tracing::info!(
        interface = name,
        table,
        "VIPs will be announced by routes in this table of the kernel"
    );
    Ok(Some(routes))
}

/// The user that the commands of health checks run as.
pub(super) fn commands(config: &Config) -> Result<Planned, Stop> {
    let wanted = config.command_user();
    let planned = Planned::new(config.runs_commands(), wanted.map(|user| user.get_ref().as_str()));
    planned.map_err(|error| {
        let text = error.to_string();
        let (what, fix) = text.split_once("; ").unwrap_or((&text, "see docs/security.md"));
        let span = match wanted {
            Some(user) => user.span(),
            None => 0..0,
        };
        bad_input(config.error(span, what, fix))
    })
}

/// The program that runs the commands of health checks: this one.
pub(super) fn runner() -> Command {
    let mut runner = Command::new("/proc/self/exe");
    runner.arg("health-commands");
    runner
}

/// Warns of files with secrets that every user can read.
pub(super) fn warn_of_readable_secrets(config: &Config, args: &Args) {
    let seed = config.has_written_seed().then_some((args.config.as_path(), "seed"));
    let switch = config.switch.as_ref().and_then(|switch| switch.get_ref().key.as_deref());
    let key = switch.map(|path| (path, "private key"));
    let cluster = config.cluster();
    let password = cluster.and_then(|cluster| cluster.password_file.as_ref());
    let password = password.map(|path| (path.get_ref().as_path(), "password"));
    let of_etcd = cluster.and_then(|cluster| cluster.key.as_ref());
    let of_etcd = of_etcd.map(|path| (path.get_ref().as_path(), "private key"));
    let token = cluster.and_then(|cluster| cluster.token_file.as_ref());
    let token = token.map(|path| (path.get_ref().as_path(), "token"));
    let of_sync = config.sync().map(|sync| (sync.key_file.get_ref().as_path(), "key"));
    let all =
        seed.into_iter().chain(key).chain(password).chain(of_etcd).chain(token).chain(of_sync);
    for (path, what) in all.filter(|(path, _)| file::is_for_everyone(path)) {
        let path = path.display();
        tracing::warn!(
            "{path}: every user can read this file, and the {what} in it is a secret; chmod 640 {path}"
        );
    }
}

/// Drops all capabilities that are not needed any more, and changes to the user.
///
/// Captures are renamed to their final paths at the end. Root can write into a folder of another user only by
/// a capability, which is kept if the run stays root and writes captures.
pub(super) fn give_up(
    config: &Config,
    args: &Args,
    wanted: &Wanted,
    becomes: &Becomes,
) -> Result<(), Stop> {
    let (user, name, asked) = match becomes {
        Becomes::Same { asked } => (None, None, *asked),
        Becomes::Other { name, user, asked } => (Some(*user), Some(name), *asked),
    };
    let ports = if args.drop_all_capabilities { &[][..] } else { &wanted.ports };
    let mut keep = privilege::to_open(ports.iter().map(|port| port.kind.as_str()));
    let writes = config.port.iter().any(|port| port.get_ref().output.is_some());
    if config.announce().is_some() {
        keep |= privilege::TO_ROUTE;
    }
    if writes && user.is_none() && !args.drop_all_capabilities {
        keep |= privilege::TO_WRITE;
    }
    let gone = match privilege::give_up(user, keep) {
        Ok(gone) => gone,
        Err(error) if user.is_some() && !asked => {
            // For example a container whose root may not change its user.
            tracing::warn!("the user stays root: {error}");
            return give_up(config, args, wanted, &Becomes::Same { asked: false });
        }
        // An explicit --user must succeed, and commands must not inherit capabilities. Otherwise dropping
        // privileges is only a precaution, and its failure must not prevent the run.
        Err(error) if user.is_none() && !config.runs_commands() => {
            tracing::warn!("cannot drop privileges: {error}");
            return Ok(());
        }
        Err(error) => return Err(Stop::Failed(error.into())),
    };
    let kept: Vec<_> = keep.iter_names().map(|(name, _)| name).collect();
    if !gone.is_empty() {
        tracing::info!(count = gone.len(), ?kept, user = name, "capabilities dropped");
    }
    if geteuid().is_root() && !asked {
        let kept = if kept.is_empty() { "none".into() } else { kept.join(", ") };
        tracing::warn!(
            "this instance keeps the user root (capabilities: {kept}): it can read and change every file of root; --user NAME changes \
             to another user, who needs write permission for the folders of captures and of the control socket, and \
             read permission for the configuration. If the system has a user 'flowyard' (dist/flowyard.sysusers), that \
             is the default; --user root keeps root without this warning"
        );
    }
    Ok(())
}
