//! Reload: from the configuration that is running and a new one to new tables, services and settings.
//!
//! ```text
//!  Config, new Config ──changes──> all are live? ──reload──> ReloadPlan ──apply──> cores, between two batches
//!                                     └─no──> an error that names each key
//! ```
//!
//! Invariants: a plan applies every difference, or there is an error and no plan.
//! Thread-safety: plain functions on plain values; a plan is applied by one thread.

use std::sync::Arc;
use std::time::Duration;

use flowyard_front::Adapters;
use flowyard_front::adapters::Users;
use flowyard_lb::{BadService, BalanceLimits, Hub, Service};
use flowyard_works::{Age, Hop, NewRoutes, PortMap};
use flowyard_yard::ask::Question;
use flowyard_yard::work::ControlMessage;
use flowyard_yard::{Handle, Reload, WorkChange};
use ipnet::IpNet;

use super::assemble::routes;
use super::{Config, ConfigError, WorkKind, list, rule};

/// How long the thread of a reload waits for a core to apply it. A core that takes longer applies it later.
const PATIENCE: Duration = Duration::from_secs(2);

/// The parts that a reload changes: tables of the cores, settings of the work, and services of a balancer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReloadPlan {
    /// The tables.
    pub tables: Reload,
    /// The settings of the work; `None` leaves them unchanged.
    pub settings: Option<NewSettings>,
    /// All services; `None` leaves them unchanged.
    pub services: Option<Vec<Service>>,
    /// The entries that are offered to adapters; `None` if these get no rules, or keep them.
    pub offered: Option<Users>,
}

/// New settings of a work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewSettings {
    /// `forward`: the port by which frames leave, by the port at which they came in.
    Ports(Vec<u16>),
    /// `bridge`: the ageing time.
    Age(u64),
    /// `route`, `ipsec`: all routes.
    Routes(Vec<(IpNet, Hop)>),
    /// `balance`: limits and timeouts.
    Limits(BalanceLimits),
}

impl NewSettings {
    /// The message for the work of each core.
    fn message(&self) -> ControlMessage {
        match self {
            Self::Ports(map) => Arc::new(PortMap(map.clone())),
            Self::Age(age) => Arc::new(Age(*age)),
            Self::Routes(all) => Arc::new(NewRoutes::new(routes(all))),
            Self::Limits(limits) => Arc::new(limits.clone()),
        }
    }
}

impl ReloadPlan {
    /// The tables, with the message for the work.
    #[must_use]
    pub fn of_cores(&self) -> Reload {
        let work = self.settings.as_ref().map(|settings| WorkChange(settings.message()));
        Reload { work, ..self.tables.clone() }
    }

    /// Replaces the services, and then the tables and the settings of the work. Waits until the cores have applied
    /// them, or for two seconds.
    ///
    /// # Errors
    /// The first service that is wrong. Then nothing is changed.
    pub fn apply(self, engine: &Handle) -> Result<(), BadService> {
        let mut tables = self.of_cores();
        if let (Some(hub), Some(services)) = (engine.control_plane::<Hub>(), self.services) {
            hub.set(services, engine.now())?;
        }
        // The tables before are freed here, and not on a core.
        let _kept = tables.work.clone();
        let places = engine.places();
        let adapters = engine.control_plane::<Adapters>().zip(self.offered);
        let Some((adapters, users)) = adapters else {
            engine.reload(tables);
            let _applied = engine.ask(&Question::Alive, PATIENCE);
            return Ok(());
        };
        let alone = |queue: u16| match &places.queues.get(usize::from(queue))?.consumers[..] {
            [core] => Some(*core),
            _ => None,
        };
        let offer = adapters.prepare(&users, &alone);
        tables.marks = Some(offer.marks());
        engine.reload(tables);
        adapters.commit(&offer, false);
        let _applied = engine.ask(&Question::Alive, PATIENCE);
        Ok(())
    }
}

impl Config {
    /// The changes that turn what is running by `self` into what `new` says.
    ///
    /// # Errors
    /// When a key differs that needs a new process.
    pub fn reload(&self, new: &Self) -> Result<ReloadPlan, ConfigError> {
        let changes = self.changes(new);
        let file = new.source.name();
        let refusal = changes.refusal(&format!("flowyard run {file} --take-over"));
        if let (Some((what, fix)), Some(first)) = (refusal, changes.unapplied().next()) {
            return Err(new.error_in(&first.section, "", what, &fix));
        }
        self.check_carried(new)?;
        let (old, entries) = (rule::exact(self)?, rule::exact(new)?);
        let gone = old.iter().filter(|(key, _)| !entries.iter().any(|(new, _)| new == key));
        let fresh = entries.iter().filter(|entry| !old.contains(entry));
        let gone = gone.map(|(key, _)| flowyard_frame::Edit::Del(*key));
        let fresh = fresh.map(|(key, action)| flowyard_frame::Edit::Put(*key, *action));
        let lists = list::lists(new)?;
        let lists = (lists != list::lists(self)?).then(|| Arc::new(lists));
        // New lists make the rules new as well, because cached answers may refer to lists by their
        // old numbers.
        let differ = lists.is_some() || rule::rules(self)? != rule::rules(new)?;
        // An unchanged indirection table stays, because entries may have been moved away from
        // overloaded cores.
        let [before, after] = [self, new].map(|config| (config.spread(), config.keeps_local()));
        let keep_local = before != after && after.1;
        let tables = Reload {
            exact: gone.chain(fresh).collect(),
            spread: if before == after { Vec::new() } else { after.0 },
            keep_local,
            rules: if differ { Some(Arc::new(rule::table(new)?)) } else { None },
            lists,
            marks: None,
            work: None,
        };
        let services = if self.service == new.service { None } else { Some(new.services()?) };
        let is_same = old == entries && tables.rules.is_none() && tables.lists.is_none();
        let offered = if is_same { None } else { new.offered()? };
        let settings = new.new_settings(self)?;
        Ok(ReloadPlan { tables, settings, services, offered })
    }

    /// The settings of the work, if they differ from those of `old`.
    fn new_settings(&self, old: &Self) -> Result<Option<NewSettings>, ConfigError> {
        let settings = |config: &Self| {
            let work = config.work.get_ref();
            Ok(match work.kind.get_ref() {
                WorkKind::Forward | WorkKind::Burn => Some(NewSettings::Ports(config.port_map())),
                WorkKind::Bridge => Some(NewSettings::Age(work.age())),
                WorkKind::Route | WorkKind::Ipsec => Some(NewSettings::Routes(config.hops()?)),
                WorkKind::Balance => {
                    Some(NewSettings::Limits(BalanceLimits::of(&config.balance_settings()?)))
                }
                WorkKind::Switch => None,
            })
        };
        let (before, after) = (settings(old)?, settings(self)?);
        Ok(after.filter(|after| before.as_ref() != Some(after)))
    }
}
