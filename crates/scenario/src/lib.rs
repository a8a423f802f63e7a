//! Scenarios: a configuration, the frames it receives, and the expected results.
//!
//! ```text
//!  [yard] [[port]] [[queue]] [steer] [work]     the configuration
//!  [[send]] [[reload]]                          the events            ──> Sim, seed 0, 1, 2, ...
//!  [sim] [expect]                               seeds; the results    <── Seen
//! ```
//!
//! `[[send]]` is part of every configuration: `flowyard run` receives those frames, too. The other
//! sections are for [`Scenario::run`], which runs on one thread under a virtual clock, so that the
//! same file gives the same results everywhere. Conservation is always checked: each frame is sent
//! once or counted as a drop with a reason, and the pool gets all its buffers back.
//!
//! A scenario is evidence only if it can fail: each `[[expect.mutant]]` is a change with which it
//! must fail ([`Scenario::mutants`]). `docs/scenarios.md` shows how to write a scenario.
//!
//! Thread-safety: plain values.

use std::path::Path;

use toml::Spanned;

use flowyard_config::send_words::{Mutant, ReloadConfig};
use flowyard_config::{Config, ConfigError, ReloadPlan, send};
use flowyard_pool::Pool;
use flowyard_yard::port::{Rx, Tx};

mod expect;
mod seen;

/// A configuration with expected results.
#[derive(Clone, Debug)]
pub struct Scenario {
    name: String,
    text: String,
    config: Config,
}

/// What the frames of a scenario pass on their way to the ports of its yard and back, such as a device.
///
/// A frame must arrive unchanged, in order, and within the call of the half at the near end.
pub trait Link {
    /// Pool buffers that the link of a port may hold.
    fn lent_frames(&self) -> usize;

    /// The receiving half of port `port`: it receives what `far` receives, through the link.
    ///
    /// # Errors
    /// Why there is no link.
    fn rx(&mut self, port: u16, pool: &Pool, far: Box<dyn Rx>) -> Result<Box<dyn Rx>, String>;

    /// The transmitting half of port `port`: `far` gets what it transmits, through the link.
    ///
    /// # Errors
    /// Why there is no link.
    fn tx(&mut self, port: u16, pool: &Pool, far: Box<dyn Tx>) -> Result<Box<dyn Tx>, String>;
}

impl Scenario {
    /// Reads the scenario in the file `path`; `name` is for messages.
    ///
    /// # Errors
    /// As [`Scenario::parse`], and when the file cannot be read.
    pub fn read(name: &str, path: &Path) -> Result<Self, ConfigError> {
        let text = flowyard_config::file::text(path);
        Self::parse(name, &text.map_err(|error| ConfigError::unread(name, &error))?)
    }

    /// Reads a scenario; `name` is for messages.
    ///
    /// # Errors
    /// As [`Config::parse`], and when nothing is sent or nothing is expected.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let config = Config::parse(name, text)?;
        if config.send.is_empty() {
            return Err(config.error(0..0, "this scenario sends nothing", "add a [[send]]"));
        }
        if config.expect.is_none() {
            return Err(config.error(0..0, "this scenario expects nothing", "add an [expect]"));
        }
        check(&config)?;
        Ok(Self { name: name.into(), text: text.into(), config })
    }

    /// The number of seeds with which it is simulated.
    #[must_use]
    pub const fn seeds(&self) -> u64 {
        self.config.sim.seeds
    }

    /// The scenario with at most this number of seeds. If it expects frames out of order, they must be with one of these.
    #[must_use]
    pub fn with_seeds(mut self, most: u64) -> Self {
        self.config.sim.seeds = self.config.sim.seeds.min(most);
        self
    }

    /// Simulates the scenario with every seed, and compares the results.
    ///
    /// # Errors
    /// All differences for the first seed that has any: a line for each, with its position in the
    /// file.
    pub fn run(&self) -> Result<(), String> {
        self.simulate(None)
    }

    /// As [`Scenario::run`], but with a link between each port of the yard and the frames of the scenario. The results
    /// must be the same.
    ///
    /// # Errors
    /// As [`Scenario::run`], and the errors of `link`.
    pub fn run_over(&self, link: &mut dyn Link) -> Result<(), String> {
        self.simulate(Some(link))
    }

    fn simulate(&self, mut link: Option<&mut dyn Link>) -> Result<(), String> {
        let config = &self.config;
        let fail = |error: ConfigError| error.to_string();
        let plan = send::plan(config).map_err(fail)?;
        let reloads = reloads(config).map_err(fail)?;
        let mut reordered = false;
        for seed in 0..self.seeds() {
            let seen = seen::watch(
                config,
                &plan,
                &reloads,
                seed,
                link.as_mut().map(|link| &mut **link as _),
            )
            .map_err(|what| format!("{}: seed {seed}: {what}", self.name))?;
            let differ = expect::compare(config, &plan, &seen);
            reordered |= expect::disorder(config, &plan, &seen).is_some();
            if !differ.is_empty() {
                return Err(differ
                    .into_iter()
                    .map(|(span, what)| {
                        config.error(span, what, format!("with seed {seed}")).to_string()
                    })
                    .collect::<Vec<_>>()
                    .join("\n"));
            }
        }
        match expect::reordering(config) {
            Some(span) if !reordered => {
                let what = "in_order: expected false, got true";
                Err(config.error(span, what, "with every seed").to_string())
            }
            _ => Ok(()),
        }
    }

    /// Makes each change with which the scenario must fail, and checks that it does.
    ///
    /// # Errors
    /// The first change with which the scenario passes, or that is not a valid configuration.
    pub fn mutants(&self) -> Result<(), String> {
        let expect = self.config.expect.as_ref().map(Spanned::get_ref);
        let mutants = expect.map_or(&[][..], |expect| &expect.mutant);
        if mutants.is_empty() {
            return Err(format!(
                "{}: the scenario has no mutant, so it is not tested that it can fail; add an [[expect.mutant]] \
                 with a change of the configuration (from, to) with which the scenario must fail",
                self.name
            ));
        }
        let end = self.text.find("\n[expect]").unwrap_or(self.text.len());
        for Mutant { from, to } in mutants {
            let says =
                |what: String, fix: &str| self.config.error(from.span(), what, fix).to_string();
            let (text, from) = (&self.text, from.get_ref());
            if text[..end].matches(from).count() != 1 {
                let what = format!("'{from}' does not occur exactly once before [expect]");
                return Err(says(what, "write a longer or shorter part of the line"));
            }
            let text = text[..end].replacen(from, to, 1) + &text[end..];
            let changed = Self::parse(&self.name, &text)
                .map_err(|error| format!("with '{to}' in place of '{from}': {error}"))?;
            if changed.run().is_ok() {
                let what = format!("with '{to}' in place of '{from}' the scenario passes");
                return Err(says(what, "expect a result that differs with this change"));
            }
        }
        Ok(())
    }
}

/// The changes of tables, with their times.
fn reloads(config: &Config) -> Result<Vec<(u64, ReloadPlan)>, ConfigError> {
    let mut running = config.clone();
    let mut all: Vec<_> = config.reload.iter().map(Spanned::get_ref).collect();
    all.sort_by_key(|reload| reload.at);
    let reload = |reload: &ReloadConfig| {
        let mut new = running.clone();
        if let Some(spread) = &reload.spread {
            new.steer.spread.clone_from(spread);
        }
        if let Some(exact) = &reload.exact {
            new.steer.exact.clone_from(exact);
        }
        if let Some(rule) = &reload.rule {
            new.steer.rule.clone_from(rule);
        }
        if let Some(service) = &reload.service {
            new.service.clone_from(service);
        }
        new.check_tables()?;
        let tables = running.reload(&new)?;
        running = new;
        Ok((reload.at.0, tables))
    };
    all.into_iter().map(reload).collect()
}

/// Returns the first mistake in reloads and expectations.
fn check(config: &Config) -> Result<(), ConfigError> {
    for reload in &config.reload {
        let (at, reload) = (reload.span(), reload.get_ref());
        if reload.at.0 > send::LAST {
            return Err(config.error(at, "this reload comes after 5ms", "reload sooner"));
        }
        if reload.spread.is_none()
            && reload.exact.is_none()
            && reload.rule.is_none()
            && reload.service.is_none()
        {
            let fix = "give it 'spread', 'exact', 'rule' or 'service'";
            return Err(config.error(at, "this reload changes nothing", fix));
        }
    }
    reloads(config)?;
    expect::check(config)
}

#[cfg(test)]
mod tests;
