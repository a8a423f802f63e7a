//! The arguments that describe the model: shared by `analyze` and `explain`.

use std::path::Path;
use std::time::Duration;

use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::profile::Profile;
use flowyard_adapter::rss::{Fields, FlowType, Hfunc, RssConfig};
use flowyard_adapter::rules;
use flowyard_analyze::{Consumers, Delays, Local, RuleFile, Setup, Spec};
use flowyard_flow::toeplitz::{SYMMETRIC_KEY, random_key};
use flowyard_frame::Nanos;

use crate::stop::{Stop, bad_input};

/// What is modelled. Two runs with equal arguments over equal captures give equal results.
#[derive(clap::Args)]
pub(crate) struct ModelArgs {
    /// The adapter to model (see `flowyard adapters`)
    #[arg(long, value_name = "NAME", default_value = "x520", help_heading = "Adapter")]
    adapter: String,

    /// Receive queues [default: 16; 1 for an adapter that does not hash]
    #[arg(long, value_name = "N", help_heading = "Adapter")]
    queues: Option<u16>,

    /// Policies to compare: rss, fdir=RULES, atr, rps, rfs, arfs, yard [default: all that the
    /// adapter has]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Adapter")]
    policy: Vec<String>,

    /// Hash key: microsoft, symmetric, random:SEED, or hex digits
    #[arg(long, value_name = "KEY", default_value = "microsoft", help_heading = "Adapter")]
    rss_key: String,

    /// Hash function: toeplitz or symmetric-xor
    #[arg(long, value_name = "NAME", default_value = "toeplitz", help_heading = "Adapter")]
    rss_hash: String,

    /// Hash fields of UDP: 2-tuple or 4-tuple [default: the driver's]
    #[arg(long, value_name = "FIELDS", help_heading = "Adapter")]
    udp: Option<String>,

    /// Indirection table: queues of its entries, repeated to its size, such as 0,1,2,2
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Adapter")]
    indirection: Vec<u16>,

    /// Memory for Flow Director filters on the 82599: 64k, 128k or 256k
    #[arg(long, value_name = "SIZE", default_value = "64k", help_heading = "Adapter")]
    pballoc: String,

    /// ATR samples every Nth packet of a transmit ring
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Adapter")]
    sample_rate: u32,

    /// Cores; queue Q interrupts core Q modulo this [default: as many as queues; 16 for an
    /// adapter that does not hash]
    #[arg(long, value_name = "N", help_heading = "Host")]
    cores: Option<u16>,

    /// The host's side of each connection: server, client, all (a monitor), or addresses
    #[arg(long, value_name = "SIDE", default_value = "server", help_heading = "Host")]
    local: Local,

    /// Which thread consumes a connection (thread T starts on core T): round-robin, service, hash,
    /// or PORT=CORE,...
    #[arg(long, value_name = "MODEL", default_value = "round-robin", help_heading = "Host")]
    consumer: Consumers,

    /// The scheduler moves one thread to another core this often (0s is never)
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration, help_heading = "Host")]
    migrate_every: Duration,

    /// Seed of the migrations and of Linux's software hash
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Host")]
    seed: u64,

    /// RFS: entries of the global socket flow table
    #[arg(long, value_name = "N", default_value_t = 32768, help_heading = "Host")]
    sock_flow_entries: u32,

    /// RFS: entries of each queue's flow table
    #[arg(long, value_name = "N", default_value_t = 2048, help_heading = "Host")]
    flow_cnt: u32,

    /// Queue-delay model: what a frame costs the core that processes it
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = humantime::parse_duration, help_heading = "Queue delays")]
    service: Duration,

    /// What it costs to pass a frame to another core (RPS, RFS)
    #[arg(long, value_name = "TIME", default_value = "200ns", value_parser = humantime::parse_duration, help_heading = "Queue delays")]
    dispatch: Duration,

    /// Extra delay of one core, such as 3=200us (may be repeated)
    #[arg(long, value_name = "CORE=TIME", value_parser = core_delay, help_heading = "Queue delays")]
    core_delay: Vec<(u16, Duration)>,
}

impl ModelArgs {
    /// The setup that these arguments describe; the shares and window are `analyze`'s own.
    pub(crate) fn setup(&self) -> Result<Setup, Stop> {
        let adapter = Profile::find(&self.adapter).ok_or_else(|| {
            let names: Vec<_> = Profile::ALL.iter().map(|profile| profile.name).collect();
            bad_input(format!(
                "--adapter: '{}' is not modelled; choose one of {}",
                self.adapter,
                names.join(", ")
            ))
        })?;
        let queues = self.queues.unwrap_or(if adapter.rss.is_some() { 16 } else { 1 });
        if queues == 0 || queues > 1024 {
            return Err(bad_input(format!("--queues: from 1 to 1024, not {queues}")));
        }
        let cores = self.cores.unwrap_or(queues.max(if adapter.rss.is_some() { 1 } else { 16 }));
        if cores == 0 || cores > 1024 {
            return Err(bad_input(format!("--cores: from 1 to 1024, not {cores}")));
        }
        let pballoc = match self.pballoc.to_ascii_lowercase().trim_end_matches('b') {
            "64k" => Pballoc::K64,
            "128k" => Pballoc::K128,
            "256k" => Pballoc::K256,
            other => return Err(bad_input(format!("--pballoc: 64k, 128k or 256k, not '{other}'"))),
        };
        if let Consumers::Map(map) = &self.consumer
            && let Some((port, core)) = map.iter().filter(|&(_, &core)| core >= cores).min()
        {
            return Err(bad_input(format!(
                "--consumer: port {port} is on core {core}, but there are cores 0 to {}; set --cores",
                cores - 1
            )));
        }
        if self.sample_rate == 0 {
            return Err(bad_input(
                "--sample-rate: at least 1; leave atr out of --policy to turn it off",
            ));
        }
        Ok(Setup {
            queues,
            cores,
            rss: self.rss(adapter)?,
            local: self.local.clone(),
            consumers: self.consumer.clone(),
            migrate_every: nanos(self.migrate_every),
            seed: self.seed,
            delays: self.delays(cores)?,
            sample_rate: self.sample_rate,
            pballoc,
            sock_flow_entries: power_of_two("--sock-flow-entries", self.sock_flow_entries)?,
            flow_cnt: power_of_two("--flow-cnt", self.flow_cnt)?,
            ..Setup::new(adapter, self.policies(adapter)?)
        })
    }

    fn delays(&self, cores: u16) -> Result<Delays, Stop> {
        let mut extra = Vec::new();
        for &(core, delay) in &self.core_delay {
            if core >= cores {
                return Err(bad_input(format!("--core-delay: there is no core {core} of {cores}")));
            }
            extra.resize(extra.len().max(core as usize + 1), 0);
            extra[core as usize] = nanos(delay);
        }
        Ok(Delays { service: nanos(self.service), dispatch: nanos(self.dispatch), extra })
    }

    fn policies(&self, adapter: &Profile) -> Result<Vec<Spec>, Stop> {
        if self.policy.is_empty() {
            return Ok(Spec::all_of(adapter));
        }
        self.policy.iter().map(|name| spec(name)).collect()
    }

    fn rss(&self, adapter: &Profile) -> Result<RssConfig, Stop> {
        let Some(limits) = adapter.rss else { return Ok(RssConfig::default()) };
        let key_len = limits.key_len.min(SYMMETRIC_KEY.len());
        let key = match self.rss_key.as_str() {
            "microsoft" => RssConfig::default().key,
            "symmetric" => SYMMETRIC_KEY[..key_len].to_vec(),
            text => match text.strip_prefix("random:").map(str::parse) {
                Some(Ok(seed)) => random_key(seed)[..key_len].to_vec(),
                Some(Err(_)) => return Err(bad_input("--rss-key: random wants a seed: random:7")),
                None => hex(text)?,
            },
        };
        let hfunc = match self.rss_hash.as_str() {
            "toeplitz" => Hfunc::Toeplitz,
            "symmetric-xor" => Hfunc::SymmetricXor,
            other => {
                return Err(bad_input(format!(
                    "--rss-hash: toeplitz or symmetric-xor, not '{other}'"
                )));
            }
        };
        let udp = match self.udp.as_deref() {
            None => None,
            Some("2-tuple") => Some(Fields::TWO_TUPLE),
            Some("4-tuple") => Some(Fields::FOUR_TUPLE),
            Some(other) => {
                return Err(bad_input(format!("--udp: 2-tuple or 4-tuple, not '{other}'")));
            }
        };
        let fields =
            udp.map(|udp| limits.fields.with(FlowType::Udp4, udp).with(FlowType::Udp6, udp));
        let entries = self.indirection.iter().copied().cycle().take(limits.reta.into());
        let reta = (!self.indirection.is_empty()).then(|| entries.collect());
        Ok(RssConfig { key, fields, hfunc, reta, ..RssConfig::default() })
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
        "fdir" => return Err(bad_input("--policy: fdir wants a rule file: fdir=rules.txt")),
        other => {
            let names = Spec::NAMES.join(", ");
            return Err(bad_input(format!("--policy: '{other}' is none of {names}")));
        }
    })
}

fn rule_file(name: &str) -> Result<RuleFile, Stop> {
    let text = std::fs::read_to_string(Path::new(name)).map_err(|error| {
        bad_input(format!("{name}: {error}; --policy fdir=FILE wants a readable rule file"))
    })?;
    let rules = rules::parse(name, &text).map_err(|errors| {
        let first = errors.first().map(ToString::to_string).unwrap_or_default();
        bad_input(match errors.len() - 1 {
            0 => first,
            more => format!("{first} (and {more} more in this file)"),
        })
    })?;
    Ok(RuleFile { name: name.into(), rules })
}

fn hex(text: &str) -> Result<Vec<u8>, Stop> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let bytes: Option<Vec<u8>> = (digits.is_ascii() && digits.len().is_multiple_of(2))
        .then(|| {
            (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
                .collect()
        })
        .flatten();
    bytes.ok_or_else(|| {
        bad_input(format!(
            "--rss-key: '{text}' is neither microsoft, symmetric, random:SEED nor hex digits"
        ))
    })
}

fn power_of_two(flag: &str, entries: u32) -> Result<u32, Stop> {
    match entries {
        1..=16_777_216 => Ok(entries.next_power_of_two()),
        _ => Err(bad_input(format!("{flag}: from 1 to 16777216, not {entries}"))),
    }
}

fn core_delay(text: &str) -> Result<(u16, Duration), String> {
    text.split_once('=')
        .and_then(|(core, delay)| {
            Some((core.parse().ok()?, humantime::parse_duration(delay).ok()?))
        })
        .ok_or_else(|| format!("'{text}' is not CORE=TIME, such as 3=200us"))
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}
