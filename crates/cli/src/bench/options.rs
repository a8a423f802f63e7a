//! The options that all test methods share: device, line, traffic, method, results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flowyard_rfc2544::dut::YardSpec;
use flowyard_rfc2544::line::Line;
use flowyard_rfc2544::profile::{Profile, Test};
use flowyard_rfc2544::setup::Topology;
use flowyard_rfc2544::traffic::{Family, Genome, Mix};

use super::choices::{AddressKind, CoverPart, PortKind, TestName, TopologyKind};
use super::device::Simulated;
use super::{qualify, values};
use crate::outfile;
use crate::stop::{Stop, bad_input};

/// Options of every test method.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Line rate in bit/s, 10k to 400G, such as 10M or 1G [default: 10M; 1G with --interfaces]
    #[arg(long, value_name = "RATE", value_parser = values::line, help_heading = "Traffic")]
    line: Option<Line>,

    /// Frame sizes to test one after another, in bytes with FCS, separated by commas; each is a number,
    /// imix, imix-csit, or a repeated sequence of sizes such as 64x7+594x4+1518 [default: those of the
    /// method]
    #[arg(long, value_name = "SIZES", help_heading = "Traffic")]
    sizes: Option<String>,

    /// Number of flows that each port sends
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Traffic")]
    flows: u16,

    /// How the next frame's flow is chosen: round-robin, zipf:EXPONENT, etc (memcached requests, with
    /// their sizes), or a flow size model: agh-2015, web-search, data-mining, fb-key-value, fb-hadoop,
    /// ali-storage, google-rpc, homa-w1 to homa-w5
    #[arg(long, value_name = "MIX", default_value = "round-robin", help_heading = "Traffic")]
    mix: String,

    /// How the flows' addresses are chosen
    #[arg(long, value_name = "KIND", default_value = "patterned", help_heading = "Traffic")]
    addresses: AddressKind,

    /// One frame in N is a broadcast frame (RFC 2544 recommends 100); 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Traffic")]
    broadcast_every: u16,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Traffic")]
    seed: u64,

    /// Which ports send to which [default: that of the method]
    #[arg(long, value_name = "KIND", help_heading = "Traffic")]
    topology: Option<TopologyKind>,

    /// Send IPv6 frames (RFC 5180); the tester's tag needs frames of at least 84 bytes then
    #[arg(long, help_heading = "Traffic")]
    ipv6: bool,

    /// Test the real device between these interfaces, in real time, instead of the simulated one; they
    /// must be in a network namespace of their own, see --isolated
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Device")]
    pub(super) interfaces: Vec<String>,

    /// Name of the device between the interfaces, for the report
    #[arg(long, value_name = "NAME", requires = "interfaces", help_heading = "Device")]
    pub(super) device: Option<String>,

    /// Shell command that resets the device, for the reset test (RFC 6201); it is run in the middle of
    /// a trial, and must put what it starts into the background
    #[arg(long, value_name = "COMMAND", requires = "interfaces", help_heading = "Device")]
    pub(super) reset: Option<String>,

    /// Declare that the interfaces are isolated from every production network (RFC 6815); skips the
    /// check for a network namespace and a default route
    #[arg(long, help_heading = "Device")]
    pub(super) isolated: bool,

    /// Kind of socket that the tester uses on the interfaces
    #[arg(long, value_enum, default_value_t = PortKind::Mixed, help_heading = "Device")]
    port: PortKind,

    /// Part of each test frame that the device must forward unchanged; the tester detects changes there
    /// by a checksum
    #[arg(long, value_name = "PART", default_value = "frame", help_heading = "Device")]
    cover: CoverPart,

    /// Number of ports of the device, 2 to 8 [default: 2; with --interfaces, one for each of them]
    #[arg(long, value_name = "N", help_heading = "Device")]
    ports: Option<u8>,

    #[command(flatten)]
    simulated: Simulated,

    /// Duration of each trial in seconds, with --interfaces [default: 2]
    #[arg(long, value_name = "SECONDS", conflicts_with = "trial", help_heading = "Method")]
    seconds: Option<f64>,

    /// Number of times that the throughput search is repeated, 1 to 100, to show how much it varies
    /// [default: 1; 3 with --interfaces]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Method")]
    repeat: Option<u32>,

    /// Use the standard's full trial durations and waits with --interfaces, too; a run takes hours then
    #[arg(long, conflicts_with = "seconds", help_heading = "Method")]
    standard: bool,

    /// Limit the offered load to the tester's own measured rate; FILE is the output of `bench qualify
    /// --interfaces --json`
    #[arg(long, value_name = "FILE", help_heading = "Method")]
    pub(super) tester: Option<PathBuf>,

    /// Duration of each final trial, such as 60s [default: that of the method]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Method")]
    trial: Option<Duration>,

    /// Duration of each trial during a search, such as 5s [default: that of the method]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Method")]
    short: Option<Duration>,

    /// Tests to run, separated by commas; tests that need the throughput also run `throughput` [default: those
    /// of the method]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Method")]
    tests: Vec<TestName>,

    /// Also write the report with plots to this file, as one self-contained HTML page
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) html: Option<PathBuf>,

    /// Print JSON (schema flowyard.bench/2) instead of tables
    #[arg(long, help_heading = "Results")]
    pub(super) json: bool,

    /// Save every trial to this file; if the file holds trials of the same command, continue after the
    /// last one
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) state: Option<PathBuf>,
}

impl Options {
    /// Refuses files to write that would replace one that is read, or each other.
    pub(super) fn refuse_replaced_files(&self, reads: Option<&Path>) -> Result<(), Stop> {
        let state = ("--state", "list of trials", self.state.as_deref());
        outfile::distinct(&[state, ("--html", "page", self.html.as_deref())], reads)
    }

    /// The method's profile, changed by the user's options.
    pub(super) fn profile(&self, of: impl Fn(Line, u8) -> Profile) -> Result<Profile, Stop> {
        let (ports, is_real) = (self.port_count()?, !self.interfaces.is_empty());
        if !is_real && self.seconds.is_some() {
            return Err(bad_input(
                "--seconds: this is the length of trials in real time, with --interfaces; use --trial for the \
                 simulated device",
            ));
        }
        if !is_real && self.tester.is_some() {
            return Err(bad_input(
                "--tester: the tester in virtual time has no limit of its own; leave it out, or add --interfaces",
            ));
        }
        let default = if is_real { Line::GBIT_1 } else { Line::MBIT_10 };
        let mut profile = of(self.line.unwrap_or(default), ports);
        if is_real && !self.standard {
            profile = profile.brief(values::seconds(self.seconds.unwrap_or(2.0))?, 3);
        }
        profile.repeats = self.repeat.unwrap_or(profile.repeats);
        (profile.cover, profile.filters) = (self.cover.into(), self.simulated.filters as u8);
        if let Some(path) = &self.tester {
            profile.limits = qualify::limits(path)?;
        }
        profile.topology = self.topology(profile.topology, ports)?;
        if let Some(sizes) = &self.sizes {
            profile.sizes = values::sizes(sizes)?;
        }
        if self.ipv6 {
            self.of_ipv6(&mut profile)?;
        }
        profile.flows = self.flows.max(1);
        (profile.addresses, profile.broadcast_every) =
            (self.addresses.into(), self.broadcast_every);
        profile.seed = self.seed;
        let mix = self.mix()?;
        if mix == Mix::Etc && self.sizes.is_some() {
            return Err(bad_input(
                "--sizes: the requests of --mix etc have lengths of their own; leave out --sizes",
            ));
        }
        profile.set_mix(mix).map_err(|error| bad_input(format!("--mix: {error}")))?;
        if let Some(trial) = self.trial {
            profile.full = values::time("--trial", trial)?;
        }
        if let Some(short) = self.short {
            profile.short = values::time("--short", short)?;
        }
        profile.short = profile.short.min(profile.full);
        if !self.tests.is_empty() {
            profile.tests = self.tests();
        }
        Ok(profile)
    }

    /// The number of ports of the device.
    fn port_count(&self) -> Result<u8, Stop> {
        let real = u8::try_from(self.interfaces.len()).unwrap_or(u8::MAX);
        let ports = self.ports.unwrap_or(if real > 0 { real } else { 2 });
        if real > 0 && real != ports {
            return Err(bad_input(format!(
                "--interfaces: {real} interfaces for {ports} --ports; name one interface for each port"
            )));
        }
        if real == 1 || real > 8 {
            let names = if real == 1 { "name" } else { "names" };
            return Err(bad_input(format!(
                "--interfaces: needs 2 to 8 names, separated by commas, not {real} {names}"
            )));
        }
        if !(2..=8).contains(&ports) {
            return Err(bad_input(format!("--ports: must be 2 to 8, not {ports}")));
        }
        Ok(ports)
    }

    /// The topology with this number of ports, where `method` is that of the method.
    fn topology(&self, method: Topology, ports: u8) -> Result<Topology, Stop> {
        let topology = match (self.topology, method) {
            (Some(TopologyKind::Uni), _) => Topology::Uni,
            (Some(TopologyKind::Mesh), _) => Topology::Mesh(ports),
            (Some(TopologyKind::Pairs), _) | (None, Topology::Pairs(_)) => Topology::Pairs(ports),
            (None, topology) => topology,
        };
        match topology {
            Topology::Mesh(_) if self.simulated.bridge.is_none() && self.interfaces.is_empty() => {
                Err(bad_input(
                    "--topology mesh: the simulated device must be a switch; add --bridge 1024",
                ))
            }
            Topology::Pairs(_) if ports % 2 == 1 => {
                Err(bad_input(format!("--ports: pairs of ports need an even number, not {ports}")))
            }
            topology => Ok(topology),
        }
    }

    /// The tests in the order of a run, with the throughput if one of them needs it.
    fn tests(&self) -> Vec<Test> {
        let mut tests: Vec<Test> = self.tests.iter().copied().map(Into::into).collect();
        let needs = |test: &Test| {
            !matches!(
                test,
                Test::Throughput | Test::LossRate | Test::Bursts | Test::Mlr | Test::Soak
            )
        };
        if tests.iter().any(needs) {
            tests.push(Test::Throughput);
        }
        tests.sort_unstable();
        tests.dedup();
        tests
    }

    /// Changes the profile to IPv6, with default sizes raised to the minimum.
    fn of_ipv6(&self, profile: &mut Profile) -> Result<(), Stop> {
        profile.family = Family::Ipv6;
        let least = profile.family.min_size();
        if self.simulated.filters as u8 > 0 {
            return Err(bad_input("--filters: the filters match IPv4 only; leave out --ipv6"));
        }
        for size in &mut profile.sizes {
            if size.sizes().iter().all(|size| *size >= least) {
                continue;
            }
            if self.sizes.is_some() {
                return Err(bad_input(format!(
                    "--sizes {size}: frames with --ipv6 need at least {least} bytes"
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
                    _ => Err(bad_input(format!(
                        "--mix zipf: the exponent must be 0 to 10, not '{s}'"
                    ))),
                },
                None if flowyard_rfc2544::traffic::Model::find(text).is_some() => {
                    Ok(Mix::Model(text.into()))
                }
                None => {
                    let models =
                        flowyard_rfc2544::traffic::MODELS.map(|model| model.name).join(", ");
                    Err(bad_input(format!(
                        "--mix: must be round-robin, zipf:EXPONENT, etc, or one of {models}; not '{text}'"
                    )))
                }
            },
        }
    }

    /// Kind of socket on the interfaces.
    pub(super) fn port(&self) -> flowyard_bench::tester::Kind {
        self.port.into()
    }

    /// The simulated device.
    pub(super) fn yard(&self) -> Result<YardSpec, Stop> {
        self.simulated.spec(self.line)
    }
}
