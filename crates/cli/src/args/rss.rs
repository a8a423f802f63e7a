//! The arguments that describe receive-side scaling: key, hash function, fields, indirection table.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use flowyard_adapter::profile::{Profile, RssLimits};
use flowyard_adapter::rss::{
    Fields, FlowType, Function, HashFields, Hfunc, Printed, RssConfig, parse_ethtool,
};
use flowyard_analyze::KeySource;
use flowyard_flow::toeplitz::{SYMMETRIC_KEY, random_key};

use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
pub(super) struct RssArgs {
    /// Settings of a real port, read from the output of `ethtool -x IFACE`, if given followed by that
    /// of `ethtool -n IFACE rx-flow-hash TYPE`: key, indirection table, hash function, hashed fields
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["rss_hash", "udp", "indirection"],
        help_heading = "Adapter"
    )]
    rss_from: Option<PathBuf>,

    /// Key of the RSS hash: microsoft (the published test key), symmetric, random:SEED, or hex digits
    /// [default: as --rss-from says, or microsoft]
    #[arg(long, value_name = "KEY", help_heading = "Adapter")]
    rss_key: Option<String>,

    /// Hash function of RSS [default: as the adapter's driver sets it]
    #[arg(long, value_name = "NAME", help_heading = "Adapter")]
    rss_hash: Option<HashFunction>,

    /// Fields that RSS hashes for UDP: addresses (2-tuple), or addresses and ports (4-tuple)
    /// [default: as the adapter's driver sets it]
    #[arg(long, value_name = "FIELDS", help_heading = "Adapter")]
    udp: Option<UdpFields>,

    /// Queue numbers in the RSS indirection table, separated by commas, such as 0,1,2,2; the list
    /// is repeated until the table is full [default: all queues in turn]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Adapter")]
    indirection: Vec<u16>,
}

/// A hash function of RSS.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum HashFunction {
    Toeplitz,
    SymmetricXor,
    SymmetricOrXor,
}

impl HashFunction {
    pub(crate) const fn model(self) -> Hfunc {
        match self {
            Self::Toeplitz => Hfunc::Toeplitz,
            Self::SymmetricXor => Hfunc::SymmetricXor,
            Self::SymmetricOrXor => Hfunc::SymmetricOrXor,
        }
    }
}

/// The fields of UDP that are hashed.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum UdpFields {
    #[value(name = "2-tuple")]
    TwoTuple,
    #[value(name = "4-tuple")]
    FourTuple,
}

impl UdpFields {
    /// These fields with those of UDP.
    pub(crate) fn apply(self, fields: HashFields) -> HashFields {
        let udp = match self {
            Self::TwoTuple => Fields::TWO_TUPLE,
            Self::FourTuple => Fields::FOUR_TUPLE,
        };
        fields.with(FlowType::Udp4, udp).with(FlowType::Udp6, udp)
    }
}

impl RssArgs {
    /// The file that is read, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.rss_from.as_deref()
    }

    /// The settings of the port that `--rss-from` describes.
    pub(super) fn port(&self) -> Result<Option<Printed>, Stop> {
        let Some(path) = &self.rss_from else { return Ok(None) };
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            bad_input(format!("{name}: {error}; --rss-from FILE needs the output of ethtool -x"))
        })?;
        parse_ethtool(&name, &text).map(Some).map_err(bad_input)
    }

    /// The settings of RSS, and where the key comes from.
    pub(super) fn config(
        &self,
        adapter: &Profile,
        port: Option<Printed>,
        interface: Option<&str>,
    ) -> Result<(RssConfig, KeySource), Stop> {
        let Some(limits) = adapter.rss else {
            return Ok((RssConfig::default(), KeySource::Microsoft));
        };
        let port_key = port.as_ref().and_then(|port| port.key.clone());
        let from = self.rss_from.as_ref().map(|file| file.display().to_string());
        let from = from.or_else(|| interface.map(|name| format!("the interface {name}")));
        let (key, source) = match (&self.rss_key, port_key, from) {
            (None, Some(key), Some(from)) => (key, KeySource::File(from)),
            (Some(text), Some(_), _) => {
                let whose = if interface.is_some() { "--interface" } else { "--rss-from" };
                return Err(bad_input(format!(
                    "--rss-key: {whose} has a key, too; leave out --rss-key {text}"
                )));
            }
            (None, None, _) if interface.is_some() => {
                return Err(bad_input(
                    "--interface: its driver does not give the RSS key; if you know it, write --rss-key KEY",
                ));
            }
            (text, ..) => given(text.as_deref().unwrap_or("microsoft"), &limits)?,
        };
        let config = match port {
            Some(port) => of_port(&port, &limits),
            None => self.chosen(&limits),
        };
        Ok((RssConfig { key, ..config }, source))
    }

    /// The settings that the arguments choose one by one, without the key.
    fn chosen(&self, limits: &RssLimits) -> RssConfig {
        let hfunc = self.rss_hash.map(HashFunction::model);
        let fields = self.udp.map(|udp| udp.apply(limits.fields));
        let entries = self.indirection.iter().copied().cycle().take(limits.reta.into());
        let reta = (!self.indirection.is_empty()).then(|| entries.collect());
        RssConfig { fields, hfunc, reta, ..RssConfig::default() }
    }
}

/// Refuses the settings of a port that cannot be those of the default adapter, and names the adapters whose
/// settings they can be.
pub(super) fn is_of_default(port: &Printed, default: &Profile) -> Result<(), Stop> {
    let fits = |adapter: &Profile| adapter.rss.is_some_and(|limits| can_be(port, &limits));
    if fits(default) {
        return Ok(());
    }
    let name = default.name;
    let key = port.key.as_ref().map(|key| format!("a key of {} bytes", key.len()));
    let table = (!port.reta.is_empty())
        .then(|| format!("an indirection table of {} entries", port.reta.len()));
    let has: Vec<_> = key.into_iter().chain(table).collect();
    let others: Vec<_> =
        Profile::ALL.iter().filter(|adapter| fits(adapter)).map(|adapter| adapter.name).collect();
    let fix = match others.as_slice() {
        [] => "no adapter model has both; name the adapter of the port with --adapter".into(),
        names => {
            format!("name the adapter of the port with --adapter: these fit {}", names.join(", "))
        }
    };
    Err(bad_input(format!(
        "--rss-from: the file has {}, which the default adapter {name} does not have; {fix}",
        has.join(" and ")
    )))
}

/// Whether an adapter with these limits can have the settings.
fn can_be(port: &Printed, limits: &RssLimits) -> bool {
    let RssLimits { reta, reta_sriov, reta_vf, key_len, .. } = *limits;
    let key = port.key.as_ref().is_none_or(|key| key.len() == key_len);
    let len = port.reta.len();
    let is = |entries: u16| len == usize::from(entries);
    key && (len == 0 || is(reta) || is(reta_sriov) || reta_vf.is_some_and(is))
}

/// The settings of a real port, without the key. A table of the length that virtual functions have makes it
/// one of these.
fn of_port(port: &Printed, limits: &RssLimits) -> RssConfig {
    let len = port.reta.len();
    let is = |entries: u16| len == usize::from(entries);
    let function = match limits.reta_vf {
        _ if is(limits.reta) => Function::Physical,
        _ if is(limits.reta_sriov) => Function::PhysicalWithSriov,
        Some(entries) if is(entries) => Function::Virtual,
        _ => Function::Physical,
    };
    let fields = port.fields.iter().fold(limits.fields, |all, &(flow, of)| all.with(flow, of));
    RssConfig {
        fields: Some(fields),
        hfunc: port.hfunc,
        reta: (len > 0).then(|| port.reta.clone()),
        function,
        ..RssConfig::default()
    }
}

/// The key that `--rss-key` names.
fn given(text: &str, limits: &RssLimits) -> Result<(Vec<u8>, KeySource), Stop> {
    let len = limits.key_len.min(SYMMETRIC_KEY.len());
    Ok(match text {
        "microsoft" => (RssConfig::default().key, KeySource::Microsoft),
        "symmetric" => (SYMMETRIC_KEY[..len].to_vec(), KeySource::Symmetric),
        text => match text.strip_prefix("random:").map(str::parse) {
            Some(Ok(seed)) => (random_key(seed)[..len].to_vec(), KeySource::Seed(seed)),
            Some(Err(_)) => {
                return Err(bad_input("--rss-key: random needs a number as seed, as random:7"));
            }
            None => (hex(text)?, KeySource::Given),
        },
    })
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
            "--rss-key: must be microsoft, symmetric, random:SEED or hex digits, not '{text}'"
        ))
    })
}
