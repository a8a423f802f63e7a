//! What all methods share: the device, the line, the traffic, where results go.

use std::path::PathBuf;
use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_rfc2544::dut::{Job, YardSpec};
use flowyard_rfc2544::line::Line;
use flowyard_rfc2544::profile::{Profile, Test};
use flowyard_rfc2544::setup::Topology;
use flowyard_rfc2544::tag::Cover;
use flowyard_rfc2544::traffic::{Addresses, Family, Genome, Mix};

use super::live::Kind;
use super::qualify;
use crate::stop::{Stop, bad_input};

/// Options of every method.
#[derive(clap::Args)]
pub(super) struct Options {
    /// The line's rate, such as 10M, 1G, 10G [default: 10M, and 1G between interfaces]
    #[arg(long, value_name = "RATE", value_parser = line, help_heading = "Traffic")]
    line: Option<Line>,

    /// Frame sizes with FCS, one after the other, or imix, or a sequence as 64x7,594x4,1518
    /// (separate sizes by blanks) [default: the method's]
    #[arg(long, value_name = "SIZES", help_heading = "Traffic")]
    sizes: Option<String>,

    /// Flows of each port
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Traffic")]
    flows: u16,

    /// Which flow comes next: round-robin, zipf:S, etc (requests of memcached: sizes, too), or a flow-size model (agh-2015, web-search,
    /// data-mining, fb-key-value, fb-hadoop, ali-storage, google-rpc, homa-w1 to homa-w5)
    #[arg(long, value_name = "MIX", default_value = "round-robin", help_heading = "Traffic")]
    mix: String,

    /// Who the flows are: patterned, networks (256 of them), random (RFC 4814), colliding (one entry of
    /// the indirection table)
    #[arg(long, value_name = "KIND", default_value = "patterned", value_parser = addresses, help_heading = "Traffic")]
    addresses: Addresses,

    /// One frame in so many is a broadcast; RFC 2544 wants 100, 0 is none
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Traffic")]
    broadcast_every: u16,

    /// Seed of all that is drawn
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Traffic")]
    seed: u64,

    /// Who sends to whom: uni, pairs, mesh (needs --bridge) [default: the method's]
    #[arg(long, value_name = "KIND", value_parser = ["uni", "pairs", "mesh"], help_heading = "Traffic")]
    topology: Option<String>,

    /// Frames of IPv6 (RFC 5180), from 84 bytes on: in shorter ones there is no room for a tag
    #[arg(long, help_heading = "Traffic")]
    ipv6: bool,

    /// Measure what is between these interfaces, in real time, instead of a yard under virtual
    /// time; inside a network namespace
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Device")]
    pub(super) interfaces: Vec<String>,

    /// What the report calls the device between the interfaces
    #[arg(long, value_name = "NAME", requires = "interfaces", help_heading = "Device")]
    pub(super) device: Option<String>,

    /// Resets the device, for the test of that name (RFC 6201): a shell's command, run in the midst of the
    /// trial; what it starts is to go on in the background
    #[arg(long, value_name = "COMMAND", requires = "interfaces", help_heading = "Device")]
    pub(super) reset: Option<String>,

    /// The interfaces are isolated from every network that others use (RFC 6815), wherever they are
    #[arg(long, help_heading = "Device")]
    pub(super) isolated: bool,

    /// What the tester's ports on these interfaces are
    #[arg(long, value_enum, default_value_t = Kind::Mixed, help_heading = "Device")]
    pub(super) port: Kind,

    /// What the device may change in frames: frame is nothing (a bridge), network is MAC addresses and
    /// TTL (a router), payload is all headers
    #[arg(long, value_name = "WHAT", default_value = "frame", value_parser = cover, help_heading = "Device")]
    cover: Cover,

    /// Ports of the device
    #[arg(long, value_name = "N", help_heading = "Device")]
    ports: Option<u8>,

    /// Filters of the yard, RFC 2544 section 11.4.1: what is sent is allowed, all else is denied, and
    /// with 25 there are 24 more that match nothing that is sent
    #[arg(long, value_name = "N", default_value = "0", value_parser = filters, help_heading = "Device")]
    filters: u8,

    /// Cores of the yard
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Device")]
    cores: u8,

    /// Flows are spread over cores in order, not each to one
    #[arg(long, help_heading = "Device")]
    ordered: bool,

    /// The yard is an L2 switch that knows so many stations
    #[arg(long, value_name = "STATIONS", help_heading = "Device")]
    bridge: Option<u32>,

    /// What a frame costs a core, such as 50us
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = humantime::parse_duration, help_heading = "Device")]
    frame_cost: Duration,

    /// What a batch costs a core, besides
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = humantime::parse_duration, help_heading = "Device")]
    batch_cost: Duration,

    /// What a byte costs a core, in picoseconds
    #[arg(long, value_name = "PS", default_value_t = 10_000, help_heading = "Device")]
    byte_cost_ps: u64,

    /// Frames that a receive ring holds
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Device")]
    ring: u32,

    /// Length of the trials that count, in seconds, between interfaces, where all is short unless
    /// --standard says otherwise [default: 2]
    #[arg(long, value_name = "SECONDS", conflicts_with = "trial", help_heading = "Method")]
    seconds: Option<f64>,

    /// How often the throughput is searched, for its noise [default: 3 between interfaces, 1 under
    /// virtual time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Method")]
    repeat: Option<u32>,

    /// Between interfaces, too, all lengths and waits are those of the method: this takes hours
    #[arg(long, conflicts_with = "seconds", help_heading = "Method")]
    standard: bool,

    /// Nothing faster is tried than the tester was shown to be: what 'bench qualify --interfaces'
    /// printed with --json
    #[arg(long, value_name = "FILE", help_heading = "Method")]
    pub(super) tester: Option<PathBuf>,

    /// Length of the trials that count [default: the method's]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Method")]
    trial: Option<Duration>,

    /// Length of the trials on the way
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Method")]
    short: Option<Duration>,

    /// Only these tests: throughput, latency, loss-rate, back-to-back, recovery, reset, bursts [default: the
    /// method's]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = test, help_heading = "Method")]
    tests: Vec<Test>,

    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) html: Option<PathBuf>,

    /// Print JSON (schema flowyard.bench/1)
    #[arg(long, help_heading = "Results")]
    pub(super) json: bool,

    /// Keep every trial in this file, and go on where it ends
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) state: Option<PathBuf>,
}

impl Options {
    /// The method's profile, with the user's words.
    pub(super) fn profile(&self, of: impl Fn(Line, u8) -> Profile) -> Result<Profile, Stop> {
        let real = u8::try_from(self.interfaces.len()).unwrap_or(u8::MAX);
        let ports = self.ports.unwrap_or(if real > 0 { real } else { 2 });
        if real > 0 && real != ports {
            return Err(bad_input(format!(
                "--interfaces: {real}, but --ports {ports}; name one for each"
            )));
        }
        if !(2..=8).contains(&ports) {
            return Err(bad_input(format!("--ports: from 2 to 8, not {ports}")));
        }
        if real == 0 && (self.seconds.is_some() || self.tester.is_some()) {
            return Err(bad_input(
                "--seconds and --tester are for real time, between --interfaces; virtual time wants \
                 --trial",
            ));
        }
        let default = if real > 0 { Line::GBIT_1 } else { Line::MBIT_10 };
        let mut profile = of(self.line.unwrap_or(default), ports);
        if real > 0 && !self.standard {
            let full = Duration::try_from_secs_f64(self.seconds.unwrap_or(2.0))
                .map_err(|error| bad_input(format!("--seconds: {error}; such as 2 or 0.5")))?;
            profile = profile.brief(time("--seconds", full)?, 3);
        }
        profile.repeats = self.repeat.unwrap_or(profile.repeats);
        (profile.cover, profile.filters) = (self.cover, self.filters);
        if let Some(path) = &self.tester {
            profile.limits = qualify::limits(path)?;
        }
        profile.topology = match (self.topology.as_deref(), profile.topology) {
            (Some("uni"), _) => Topology::Uni,
            (Some("mesh"), _) => Topology::Mesh(ports),
            (Some(_), _) => Topology::Pairs(ports),
            (None, Topology::Pairs(_)) => Topology::Pairs(ports),
            (None, topology) => topology,
        };
        if matches!(profile.topology, Topology::Mesh(_)) && self.bridge.is_none() && real == 0 {
            return Err(bad_input(
                "--topology mesh: only a switch reaches all ports; add --bridge 1024",
            ));
        }
        if matches!(profile.topology, Topology::Pairs(_)) && ports % 2 == 1 {
            return Err(bad_input(format!(
                "--ports: {ports} make no pairs; choose an even number"
            )));
        }
        if let Some(sizes) = &self.sizes {
            let each = sizes.split_whitespace().map(str::parse::<Genome>);
            profile.sizes =
                each.collect::<Result<_, _>>().map_err(|e| bad_input(format!("--sizes: {e}")))?;
            if profile.sizes.is_empty() {
                return Err(bad_input("--sizes: at least one, such as '64 1518'"));
            }
        }
        if self.ipv6 {
            self.of_ipv6(&mut profile)?;
        }
        profile.flows = self.flows.max(1);
        profile.mix = self.mix()?;
        (profile.addresses, profile.broadcast_every) = (self.addresses, self.broadcast_every);
        profile.seed = self.seed;
        if let Some(trial) = self.trial {
            profile.full = time("--trial", trial)?;
        }
        if let Some(short) = self.short {
            profile.short = time("--short", short)?;
        }
        profile.short = profile.short.min(profile.full);
        if !self.tests.is_empty() {
            profile.tests.clone_from(&self.tests);
            let needs = |test: &Test| {
                !matches!(
                    test,
                    Test::Throughput | Test::LossRate | Test::Bursts | Test::Mlr | Test::Soak
                )
            };
            if profile.tests.iter().any(needs) && !profile.tests.contains(&Test::Throughput) {
                profile.tests.insert(0, Test::Throughput);
            }
            profile.tests.sort_unstable();
            profile.tests.dedup();
        }
        Ok(profile)
    }

    /// Sizes that the user did not choose are as long as they have to be.
    fn of_ipv6(&self, profile: &mut Profile) -> Result<(), Stop> {
        profile.family = Family::Ipv6;
        let least = profile.family.min_size();
        if self.filters > 0 {
            return Err(bad_input("--filters: they are of IPv4; leave out --ipv6"));
        }
        for size in &mut profile.sizes {
            if size.sizes().iter().all(|size| *size >= least) {
                continue;
            }
            if self.sizes.is_some() {
                return Err(bad_input(format!(
                    "--sizes {size}: with --ipv6 from {least} bytes on"
                )));
            }
            *size = size.single().map_or_else(|| size.clone(), |_| Genome::fixed(least));
        }
        Ok(())
    }

    fn mix(&self) -> Result<Mix, Stop> {
        match self.mix.as_str() {
            "round-robin" => Ok(Mix::RoundRobin),
            "etc" => Ok(Mix::Etc),
            text => match text.strip_prefix("zipf:") {
                Some(s) => match s.parse::<f64>() {
                    Ok(s) if (0.0..=10.0).contains(&s) => Ok(Mix::Zipf(s)),
                    _ => Err(bad_input(format!("--mix zipf: an exponent from 0 to 10, not '{s}'"))),
                },
                None if flowyard_rfc2544::traffic::Model::find(text).is_some() => {
                    Ok(Mix::Model(text.into()))
                }
                None => {
                    let models =
                        flowyard_rfc2544::traffic::MODELS.map(|model| model.name).join(", ");
                    Err(bad_input(format!(
                        "--mix: round-robin, zipf:S, etc, {models}; not '{text}'"
                    )))
                }
            },
        }
    }

    /// The yard under virtual time.
    pub(super) fn yard(&self) -> Result<YardSpec, Stop> {
        if self.cores == 0 || self.cores > 16 {
            return Err(bad_input(format!("--cores: from 1 to 16, not {}", self.cores)));
        }
        if self.ring == 0 || self.ring > 1 << 20 {
            return Err(bad_input(format!("--ring: from 1 to 1048576, not {}", self.ring)));
        }
        let nanos = |time: Duration| Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
        let [frame_ns, batch_ns] = [self.frame_cost, self.batch_cost].map(nanos);
        if frame_ns > 1_000_000_000 || batch_ns > 1_000_000_000 || self.byte_cost_ps > 1_000_000_000
        {
            return Err(bad_input(
                "--frame-cost, --batch-cost: at most 1s; --byte-cost-ps: at most 1ms",
            ));
        }
        Ok(YardSpec {
            cores: self.cores,
            ordered: self.ordered,
            job: self.bridge.map_or(Job::Forward, Job::Bridge),
            frame_ns,
            batch_ns,
            byte_ps: self.byte_cost_ps,
            ring_frames: self.ring,
            filters: self.filters,
            ..YardSpec::new(self.line.unwrap_or(Line::MBIT_10))
        })
    }
}

/// A length of a trial.
pub(super) fn time(option: &str, time: Duration) -> Result<Nanos, Stop> {
    match Nanos::try_from(time.as_nanos()) {
        Ok(ns @ 1_000_000..=3_600_000_000_000_000) => Ok(ns),
        _ => Err(bad_input(format!("{option}: from 1ms to 1000h"))),
    }
}

fn line(text: &str) -> Result<Line, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'G') => (&text[..text.len() - 1], 1e9),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        _ => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(rate) if (1e4..=4e11).contains(&(rate * unit)) => Ok(Line { bps: (rate * unit) as u64 }),
        _ => Err("a rate from 10k to 400G, such as 10M, 1G".into()),
    }
}

fn filters(text: &str) -> Result<u8, String> {
    match text {
        "0" => Ok(0),
        "1" => Ok(1),
        "25" => Ok(25),
        _ => Err("0, 1 or 25".into()),
    }
}

fn cover(text: &str) -> Result<Cover, String> {
    match text {
        "frame" => Ok(Cover::Frame),
        "network" => Ok(Cover::Network),
        "payload" => Ok(Cover::Payload),
        _ => Err("frame, network or payload".into()),
    }
}

fn addresses(text: &str) -> Result<Addresses, String> {
    match text {
        "patterned" => Ok(Addresses::Patterned),
        "networks" => Ok(Addresses::Networks),
        "random" => Ok(Addresses::Random),
        "colliding" => Ok(Addresses::Colliding),
        _ => Err("patterned, networks, random or colliding".into()),
    }
}

fn test(text: &str) -> Result<Test, String> {
    match text {
        "throughput" => Ok(Test::Throughput),
        "latency" => Ok(Test::Latency),
        "loss-rate" => Ok(Test::LossRate),
        "back-to-back" => Ok(Test::BackToBack),
        "recovery" => Ok(Test::Recovery),
        "reset" => Ok(Test::Reset),
        "bursts" => Ok(Test::Bursts),
        _ => Err("throughput, latency, loss-rate, back-to-back, recovery, reset or bursts".into()),
    }
}
