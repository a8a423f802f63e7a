//! The arguments of `analyze` and `explain` that describe the simulated adapter and host.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::profile::Profile;
use flowyard_adapter::rules::{self, Rule};
use flowyard_analyze::{Consumers, Delays, Local, RuleFile, Setup, Spec};
use flowyard_frame::Nanos;

use self::machine::MachineArgs;
use self::rebalance::RebalanceArgs;
use self::rss::RssArgs;
use crate::stop::{Stop, bad_input};

mod here;
mod machine;
mod quic;
mod rebalance;
mod rss;

pub(crate) use self::quic::QuicArgs;
pub(crate) use self::rebalance::limits;
pub(crate) use self::rss::{HashFunction, UdpFields};

/// Parses a number of threads, which cannot be 0.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("must be a whole number of at least 1".into()),
    }
}

/// The adapter if `--adapter` is not given.
const DEFAULT_ADAPTER: &str = "x520";

/// The simulated adapter and host. Equal arguments and equal captures give equal results.
#[derive(clap::Args)]
pub(crate) struct ModelArgs {
    /// Adapter model to simulate; `flowyard adapters` lists them [default: x520]
    #[arg(long, value_name = "NAME", help_heading = "Adapter")]
    adapter: Option<String>,

    /// Take the settings of this interface of this machine as they are now: adapter, queues, RSS key,
    /// indirection table, hashed fields, interrupts, addresses
    #[arg(
        long,
        value_name = "IFACE",
        conflicts_with_all = ["rss_from", "rss_hash", "udp", "indirection"],
        help_heading = "Adapter"
    )]
    interface: Option<String>,

    /// Number of receive queues, 1 to 1024 [default: 16, or as --rss-from says, or 1 for an adapter
    /// without RSS]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Adapter")]
    queues: Option<u16>,

    /// Steering policies, separated by commas: rss, fdir=RULEFILE, atr, rps, rfs, arfs, yard
    /// (flowyard's own), rebalance [default: all that the adapter supports, without rebalance, and fdir only with the
    /// rules that --interface has]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Adapter")]
    policy: Vec<String>,

    #[command(flatten)]
    rss: RssArgs,

    #[command(flatten)]
    quic: QuicArgs,

    /// Adapter memory for Flow Director filters, in bytes (82599 only)
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64k",
        ignore_case = true,
        help_heading = "Adapter"
    )]
    pballoc: FilterMemory,

    /// ATR looks at one transmitted packet in N on each transmit queue
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Adapter")]
    sample_rate: u32,

    /// Number of CPU cores, 1 to 1024; queue Q interrupts core Q modulo N [default: the number of
    /// queues, or 16 for an adapter without RSS]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Host")]
    cores: Option<u16>,

    /// Which end of each connection is the simulated host: server, client, all (a monitor, which
    /// receives every packet), or the host's addresses or networks, separated by commas [default: server,
    /// or the addresses of --interface]
    #[arg(long, value_name = "END", help_heading = "Host")]
    local: Option<Local>,

    /// Which application thread reads a connection (thread T starts on core T): round-robin, service
    /// (one thread per service), hash, or a list of PORT=CORE separated by commas
    #[arg(long, value_name = "MODEL", default_value = "round-robin", help_heading = "Host")]
    consumer: Consumers,

    /// Time between two migrations, such as 50ms: each moves one application thread to another core;
    /// 0s turns them off
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration, help_heading = "Host")]
    migrate_every: Duration,

    /// Seed of the random numbers for migrations and for Linux's software flow hash
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Host")]
    seed: u64,

    /// Entries of RFS's global socket flow table, rounded up to a power of two
    #[arg(long, value_name = "N", default_value_t = 32768, help_heading = "Host")]
    sock_flow_entries: u32,

    /// Entries of RFS's flow table of each queue, rounded up to a power of two
    #[arg(long, value_name = "N", default_value_t = 2048, help_heading = "Host")]
    flow_cnt: u32,

    /// Time that a core of the modelled machine needs to process one frame, such as 1us
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = humantime::parse_duration, help_heading = "Queue delays")]
    service: Duration,

    /// Time that a core needs to pass one frame to another core (RPS and RFS), such as 200ns
    #[arg(long, value_name = "TIME", default_value = "200ns", value_parser = humantime::parse_duration, help_heading = "Queue delays")]
    dispatch: Duration,

    /// Additional delay of the frames of one core, such as 3=200us for core 3 (may be repeated)
    #[arg(long, value_name = "CORE=TIME", value_parser = core_delay, help_heading = "Queue delays")]
    core_delay: Vec<(u16, Duration)>,

    #[command(flatten)]
    rebalance: RebalanceArgs,

    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum FilterMemory {
    #[value(name = "64k", alias = "64kb")]
    K64,
    #[value(name = "128k", alias = "128kb")]
    K128,
    #[value(name = "256k", alias = "256kb")]
    K256,
}

impl ModelArgs {
    /// The interface whose settings are taken.
    pub(crate) fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Whether the arguments say which end is the host.
    pub(crate) const fn has_local(&self) -> bool {
        self.local.is_some()
    }

    /// The files of the policies fdir.
    pub(crate) fn rule_files(&self) -> impl Iterator<Item = &str> {
        self.policy.iter().filter_map(|name| name.strip_prefix("fdir="))
    }

    /// The files that are read for the setup.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let rules = self.rule_files().map(Path::new);
        rules.chain(self.machine.file()).chain(self.rss.file())
    }

    /// The setup that these arguments describe. `analyze` adds its own thresholds and window.
    pub(crate) fn setup(&self) -> Result<Setup, Stop> {
        let here = self.interface.as_deref().map(here::read).transpose()?;
        let name = match (&self.adapter, &here) {
            (Some(name), _) => name.as_str(),
            (None, Some(here)) => here.adapter()?,
            (None, None) => DEFAULT_ADAPTER,
        };
        let adapter = Profile::find(name).ok_or_else(|| {
            let names: Vec<_> = Profile::ALL.iter().map(|profile| profile.name).collect();
            bad_input(format!(
                "--adapter: there is no model of '{name}'; choose one of {}",
                names.join(", ")
            ))
        })?;
        let port = match &here {
            Some(here) => here.port(),
            None => self.rss.port()?,
        };
        if let (None, None, Some(port)) = (&self.adapter, &here, &port) {
            rss::is_of_default(port, adapter)?;
        }
        let queues = self.queues.or(port.as_ref().and_then(|port| port.queues));
        let queues = queues.unwrap_or(if adapter.rss.is_some() { 16 } else { 1 });
        if queues == 0 || queues > 1024 {
            return Err(bad_input(format!("--queues: must be 1 to 1024, not {queues}")));
        }
        let cores = self.cores.or(here.as_ref().and_then(here::Interface::cores));
        let cores = cores.unwrap_or(queues.max(if adapter.rss.is_some() { 1 } else { 16 }));
        if cores == 0 || cores > 1024 {
            return Err(bad_input(format!("--cores: must be 1 to 1024, not {cores}")));
        }
        let pballoc = match self.pballoc {
            FilterMemory::K64 => Pballoc::K64,
            FilterMemory::K128 => Pballoc::K128,
            FilterMemory::K256 => Pballoc::K256,
        };
        if let Consumers::Map(map) = &self.consumer
            && let Some((port, core)) = map.iter().filter(|&(_, &core)| core >= cores).min()
        {
            return Err(bad_input(format!(
                "--consumer: port {port} is assigned to core {core}, but the cores are 0 to {}; raise --cores",
                cores - 1
            )));
        }
        if self.sample_rate == 0 {
            return Err(bad_input(
                "--sample-rate: must be at least 1; to turn ATR off, leave it out of --policy",
            ));
        }
        let (rss, key_source) = self.rss.config(adapter, port, self.interface.as_deref())?;
        let own = here.as_ref().and_then(here::Interface::local);
        let local = self.local.clone().or(own).unwrap_or_default();
        let policies = self.policies(adapter, here.as_ref())?;
        let queue_cores = here.map(|here| here.queue_cores(queues)).unwrap_or_default();
        Ok(Setup {
            queues,
            cores,
            rss,
            key_source,
            quic: self.quic.quic()?,
            local,
            queue_cores,
            consumers: self.consumer.clone(),
            migrate_every: nanos(self.migrate_every),
            seed: self.seed,
            delays: self.delays(cores)?,
            sample_rate: self.sample_rate,
            pballoc,
            sock_flow_entries: power_of_two("--sock-flow-entries", self.sock_flow_entries)?,
            flow_cnt: power_of_two("--flow-cnt", self.flow_cnt)?,
            rebalance: self.rebalance.limits()?,
            tenants: self.machine.tenants()?,
            interrupts: self.machine.interrupts(adapter, queues)?,
            ..Setup::new(adapter, policies)
        })
    }

    fn delays(&self, cores: u16) -> Result<Delays, Stop> {
        let mut extra = Vec::new();
        for &(core, delay) in &self.core_delay {
            if core >= cores {
                return Err(bad_input(format!(
                    "--core-delay: there is no core {core}; the cores are 0 to {}",
                    cores - 1
                )));
            }
            extra.resize(extra.len().max(core as usize + 1), 0);
            extra[core as usize] = nanos(delay);
        }
        Ok(Delays { service: nanos(self.service), dispatch: nanos(self.dispatch), extra })
    }

    fn policies(
        &self,
        adapter: &Profile,
        here: Option<&here::Interface>,
    ) -> Result<Vec<Spec>, Stop> {
        if self.policy.is_empty() {
            let mut all = Spec::all_of(adapter);
            all.extend(here.and_then(|here| here.rules(adapter)).map(Spec::Fdir));
            return Ok(all);
        }
        self.policy.iter().map(|name| spec(name)).collect()
    }
}

fn spec(name: &str) -> Result<Spec, Stop> {
    if let Some(file) = name.strip_prefix("fdir=") {
        return rule_file(file).map(Spec::Fdir);
    }
    Ok(match name {
        "rss" => Spec::Rss,
        "atr" => Spec::Atr,
        "rps" => Spec::Rps,
        "rfs" => Spec::Rfs,
        "arfs" => Spec::Arfs,
        "yard" => Spec::Yard,
        "rebalance" => Spec::Rebalance,
        "fdir" => {
            return Err(bad_input("--policy: fdir needs a file with rules, as fdir=rules.txt"));
        }
        other => {
            let names = Spec::NAMES.join(", ");
            return Err(bad_input(format!(
                "--policy: there is no policy '{other}'; choose from {names}"
            )));
        }
    })
}

fn rule_file(name: &str) -> Result<RuleFile, Stop> {
    let rules = rules_in(name, "--policy fdir=FILE")?;
    Ok(RuleFile { name: name.into(), rules })
}

/// The rules of a file that `option` names.
pub(crate) fn rules_in(name: &str, option: &str) -> Result<Vec<Rule>, Stop> {
    let text = std::fs::read_to_string(Path::new(name)).map_err(|error| {
        bad_input(format!("{name}: {error}; {option} needs a readable rule file"))
    })?;
    rules::parse(name, &text).map_err(|errors| {
        let first = errors.first().map(ToString::to_string).unwrap_or_default();
        bad_input(match errors.len() - 1 {
            0 => first,
            more => format!("{first} (and {more} more in this file)"),
        })
    })
}

fn power_of_two(flag: &str, entries: u32) -> Result<u32, Stop> {
    match entries {
        1..=16_777_216 => Ok(entries.next_power_of_two()),
        _ => Err(bad_input(format!("{flag}: must be 1 to 16777216, not {entries}"))),
    }
}

fn core_delay(text: &str) -> Result<(u16, Duration), String> {
    text.split_once('=')
        .and_then(|(core, delay)| {
            Some((core.parse().ok()?, humantime::parse_duration(delay).ok()?))
        })
        .ok_or_else(|| format!("must be CORE=TIME, such as 3=200us, not '{text}'"))
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}
