//! Peers: programs of DPDK that forward the same frames, measured in turn with the engine.
//!
//! ```text
//!  round 0:  exact entries   l3fwd   hash   testpmd      each alone on CPU 0, one after another
//!  round 1:  exact entries   l3fwd   hash   testpmd
//!  ...
//!  ratio of a pair = the median of the rounds' ratios
//! ```
//!
//! All get the same 64-byte frames of 8,192 flows, one frame of each flow after another, from memory, and discard what
//! they transmit. Rates are per second of processor time that the program got, so that other load on the machine
//! counts less.
//!
//! Thread-safety: one thread; the peers are processes of their own, which end with this process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use flowyard_ports::pcap::{Format, Writer};
use flowyard_wire::LinkType;
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::rounds::{Case, Load, Source, endpoints};
use crate::stats::median;

mod dpdk;

/// The programs of DPDK on this machine.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The example l3fwd, which DPDK installs as source code only.
    pub l3fwd: Option<PathBuf>,
    /// The traffic generator and forwarder of DPDK's own tests.
    pub testpmd: Option<PathBuf>,
}

impl Programs {
    /// The given programs, and otherwise those in the search path.
    ///
    /// # Errors
    /// When a given program is not a file.
    pub fn find(l3fwd: Option<&Path>, testpmd: Option<&Path>) -> Result<Self, Error> {
        let given = |option: &str, path: Option<&Path>, names: &[&str]| match path {
            Some(path) if !path.is_file() => Err(Error::input(format!(
                "{option}: {} is not a file; give the path of the program",
                path.display()
            ))),
            Some(path) => Ok(Some(path.to_owned())),
            None => Ok(names.iter().find_map(|name| crate::in_path(name))),
        };
        Ok(Self {
            l3fwd: given("--l3fwd", l3fwd, &["dpdk-l3fwd", "l3fwd"])?,
            testpmd: given("--testpmd", testpmd, &["dpdk-testpmd", "testpmd"])?,
        })
    }

    /// What is not installed, and how to get it.
    fn missing(&self) -> Vec<String> {
        let l3fwd = "l3fwd is not in the search path: build it with tests/bench/l3fwd, and name it with --l3fwd";
        let testpmd = "dpdk-testpmd is not in the search path: install the package dpdk, or name it with --testpmd";
        let both = [(&self.l3fwd, l3fwd), (&self.testpmd, testpmd)];
        both.into_iter().filter(|(path, _)| path.is_none()).map(|(_, how)| how.into()).collect()
    }
}

/// The engine beside programs of DPDK.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Peers {
    /// The version that the programs report, if one was measured.
    pub version: Option<String>,
    /// Rates, each on one core.
    pub rates: Vec<Rate>,
    /// Ratios of pairs that were measured in the same rounds.
    pub ratios: Vec<Ratio>,
    /// Programs that are not installed.
    pub missing: Vec<String>,
}

/// The rate of a program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// The program, and what it does with a frame.
    pub name: String,
    /// Frames per second of processor time, the median of the rounds.
    pub pps: f64,
    /// The lowest rate of a round.
    pub least: f64,
    /// The highest rate of a round.
    pub most: f64,
}

/// The rate of the engine divided by that of a peer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// What the engine does.
    pub flowyard: String,
    /// What the peer does.
    pub peer: String,
    /// The median of the rounds' ratios; above 1 the engine is faster.
    pub ratio: f64,
    /// The lowest ratio of a round.
    pub least: f64,
    /// The highest ratio of a round.
    pub most: f64,
    /// Number of rounds; 0 if it was not recorded.
    pub rounds: usize,
}

/// Number of flows that all programs forward.
const FLOWS: u64 = 8192;

const EXACT: &str = "flowyard, exact match";
const HASH: &str = "flowyard, RSS";
const L3FWD: &str = "l3fwd, exact match";
const TESTPMD: &str = "testpmd, new MAC addresses, no lookup";

/// The pairs that are compared.
const PAIRS: [(&str, &str); 3] = [(EXACT, L3FWD), (HASH, TESTPMD), (EXACT, TESTPMD)];

/// What is measured in each round.
enum Runner {
    Engine(Case),
    Peer(dpdk::Peer),
}

/// A comparison in progress.
pub(crate) struct Contest {
    runners: Vec<(&'static str, Runner, Vec<f64>)>,
    missing: Vec<String>,
    version: Option<String>,
    /// The peers' files; deleted with this.
    _folder: tempfile::TempDir,
}

impl Contest {
    /// Writes the files that the peers read.
    pub(crate) fn new(programs: &Programs) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the files of the peers")?;
        let exact = Case {
            cores: 1,
            order: "direct",
            consumers: vec![0],
            load: Load::Forward,
            flows: FLOWS,
            source: Source::InOrder,
            exact: true,
            length: 60,
        };
        let hash = Case { exact: false, ..exact.clone() };
        let capture = folder.path().join("frames.pcap");
        write_capture(&exact, &capture)?;
        let mut runners = vec![(EXACT, Runner::Engine(exact), Vec::new())];
        if let Some(program) = &programs.l3fwd {
            let (rules4, rules6) = (folder.path().join("rules4"), folder.path().join("rules6"));
            std::fs::write(&rules4, rules(FLOWS))?;
            std::fs::write(&rules6, UNUSED_RULE)?;
            let peer = dpdk::Peer::l3fwd(program, folder.path(), &capture, [&rules4, &rules6]);
            runners.push((L3FWD, Runner::Peer(peer), Vec::new()));
        }
        runners.push((HASH, Runner::Engine(hash), Vec::new()));
        if let Some(program) = &programs.testpmd {
            let peer = dpdk::Peer::testpmd(program, folder.path(), &capture);
            runners.push((TESTPMD, Runner::Peer(peer), Vec::new()));
        }
        Ok(Self { runners, missing: programs.missing(), version: None, _folder: folder })
    }

    /// Number of measurements in a round.
    pub(crate) const fn steps(&self) -> usize {
        self.runners.len()
    }

    /// Measures each program once, for `time`; `done` is called after each.
    pub(crate) fn round(
        &mut self,
        time: Duration,
        clock: &Clock,
        done: &dyn Fn(),
    ) -> anyhow::Result<()> {
        for (name, runner, rates) in &mut self.runners {
            let rate = match runner {
                Runner::Engine(case) => case.round(time, clock)?.pps_cpu,
                Runner::Peer(peer) => {
                    let measured =
                        peer.measure(time).with_context(|| format!("measuring {name}"))?;
                    self.version = Some(measured.version);
                    measured.pps
                }
            };
            rates.push(rate);
            done();
        }
        Ok(())
    }

    /// The results.
    pub(crate) fn finish(self) -> Peers {
        let all: Vec<_> = self.runners.into_iter().map(|(name, _, rates)| (name, rates)).collect();
        let ratios = PAIRS.into_iter().filter_map(|pair| ratio(&all, pair)).collect();
        let rates = all.iter().map(|(name, rates)| {
            let [pps, least, most] = spread(rates.clone());
            Rate { name: (*name).into(), pps, least, most }
        });
        Peers { version: self.version, rates: rates.collect(), ratios, missing: self.missing }
    }
}

/// The ratio of a pair, if both were measured.
fn ratio(all: &[(&str, Vec<f64>)], (ours, theirs): (&str, &str)) -> Option<Ratio> {
    let of = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, rates)| rates);
    let pairs = of(ours)?.iter().zip(of(theirs)?);
    let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs.max(1.0)).collect();
    let rounds = ratios.len();
    let [ratio, least, most] = spread(ratios);
    Some(Ratio { flowyard: ours.into(), peer: theirs.into(), ratio, least, most, rounds })
}

/// Median, lowest and highest value.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    let middle = median(&mut values);
    let ends = [values.first(), values.last()].map(|end| end.copied().unwrap_or_default());
    [middle, ends[0], ends[1]]
}

/// The frames of `case`, as a capture.
fn write_capture(case: &Case, path: &Path) -> anyhow::Result<()> {
    let mut writer = Writer::create(path, Format::PcapMicros, LinkType::Ethernet)?;
    for (at, (_, data)) in case.frames().iter().enumerate() {
        writer.write(1000 * at as u64, data.len() as u32, data)?;
    }
    writer.finish()?;
    Ok(())
}

/// The exact-match rules of l3fwd for `flows` flows: destination, source, ports, protocol, and the port by which the
/// frame leaves.
fn rules(flows: u64) -> String {
    let rule = |flow| {
        let [(client, from), (server, to)] = endpoints(flow);
        format!("R{server} {client} {to} {from} 0x11 0\n")
    };
    (0..flows).map(rule).collect()
}

/// l3fwd needs a rule for IPv6, too; no frame matches it.
const UNUSED_RULE: &str =
    "R2001:0200:0000:0000:0000:0000:0000:0000 2001:0200:0000:0000:0000:0000:0000:0001 9 9 0x11 0\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        let all = [(EXACT, vec![10.0, 40.0, 30.0]), (L3FWD, vec![20.0, 20.0, 20.0])];
        let found = ratio(&all, (EXACT, L3FWD)).unwrap();
        assert_eq!((found.ratio, found.least, found.most, found.rounds), (1.5, 0.5, 2.0, 3));
        assert_eq!(ratio(&all, (HASH, TESTPMD)), None, "not measured");
    }

    #[test]
    fn the_rules_are_those_of_the_frames() {
        assert_eq!(
            rules(2),
            "R10.1.0.1 10.0.0.0 53 4000 0x11 0\nR10.1.0.1 10.0.0.1 53 4000 0x11 0\n"
        );
    }

    #[test]
    fn what_is_not_installed_is_named_with_the_fix() {
        let missing = Programs::default().missing();
        assert!(missing[0].contains("--l3fwd") && missing[1].contains("--testpmd"), "{missing:?}");
        let wrong = Programs::find(Some(Path::new("/nowhere/l3fwd")), None).unwrap_err();
        assert!(wrong.to_string().contains("/nowhere/l3fwd is not a file"), "{wrong}");
    }

    /// A program that is no peer: the error has its last words.
    #[test]
    fn a_peer_that_ends_is_an_error_with_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("l3fwd");
        std::fs::write(&program, "#!/bin/sh\necho no such device\nexit 3\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let capture = folder.path().join("frames.pcap");
        let peer = dpdk::Peer::l3fwd(&program, folder.path(), &capture, [&capture, &capture]);
        let error = format!("{:#}", peer.measure(Duration::from_millis(1)).err().unwrap());
        assert!(error.contains("no such device") && error.contains("exit status: 3"), "{error}");
    }
}
