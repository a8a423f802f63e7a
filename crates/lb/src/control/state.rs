//! Data of the control plane.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use flowyard_frame::Nanos;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};

use crate::asked::Asked;
use crate::counts::{Counts, Sum};
use crate::handed::{HandedBackend, HandedTables, Places};
use crate::persist::{Persist, Persistence};
use crate::plan::{Active, Plan};
use crate::service::{Backend, Mode, Service};

/// The services, and the state of their backends.
#[derive(Debug)]
pub struct Control {
    pub(super) services: Vec<Arc<Service>>,
    pub(super) entries: u32,
    pub(super) seed: u64,
    /// The number of cores that have counters.
    pub(super) cores: usize,
    pub(super) known: HashMap<Name, Known>,
    /// By the name of the service.
    pub(super) totals: HashMap<String, Totals>,
    /// The ID last used at each index of the targets.
    pub(super) numbers: Vec<u32>,
    /// Indexes of the targets that are not in use.
    pub(super) free: Vec<u32>,
    pub(super) plan: Arc<Plan>,
    /// The slow-start step of each backend when the plan was built.
    pub(super) steps: Vec<u64>,
}

/// Identity of a backend: if any of these differs, it is another backend with another ID.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    pub(super) service: String,
    pub(super) backend: String,
    pub(super) addr: IpAddr,
    pub(super) port: Option<u16>,
}

#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: u32,
    pub(super) active: Arc<Active>,
    pub(super) counts: Arc<Counts>,
    pub(super) is_up: bool,
    /// When it last came up or went down.
    pub(super) changed: Nanos,
    /// When slow start began; `None` if the backend was up from the start, without slow start.
    pub(super) since: Option<Nanos>,
    /// Set manually; replaces the configured weight.
    pub(super) weight: Option<u32>,
    /// Drained manually, whatever the configuration says.
    pub(super) drained: bool,
}

/// Counters of a service that are not those of its current backends.
#[derive(Debug)]
pub(super) struct Totals {
    /// The number of the service in the connection tables. No two services have the same; a number is used
    /// again when its service is removed.
    pub(super) number: u16,
    /// Drops of packets for which no backend was chosen.
    pub(super) counts: Arc<Counts>,
    /// Datagrams that may be answered, if they are placed one by one and replies are translated.
    pub(super) asked: Option<Arc<Asked>>,
    /// The backends of clients' networks, and the settings that they were entered with.
    pub(super) persist: Option<(Persistence, Arc<Persist>)>,
    /// Counters of removed backends that cores with an older plan may still increment.
    pub(super) leaving: Vec<Arc<Counts>>,
    /// Sum of the counters of removed backends that no core uses any more.
    pub(super) gone: Sum,
}

impl Totals {
    pub(super) fn sum(&self) -> Sum {
        let all = self.leaving.iter().fold(self.gone, |sum, counts| sum.plus(&counts.sum()));
        all.plus(&self.counts.sum())
    }

    /// Makes the tables that a service needs. That of datagrams stays. The table of networks stays if it has the same
    /// size and the same masks.
    pub(super) fn prepare(&mut self, service: &Service) {
        let same = |old: &Persistence, new: &Persistence| {
            (old.mask_v4, old.mask_v6, old.networks) == (new.mask_v4, new.mask_v6, new.networks)
        };
        let is_asked = service.one_packet && service.mode == Mode::Dnat;
        self.asked = is_asked.then(|| self.asked.take().unwrap_or_else(|| Arc::new(Asked::new())));
        self.persist = service.persist.map(|new| match self.persist.take() {
            Some((old, table)) if same(&old, &new) => (new, table),
            _ => (new, Arc::new(Persist::new(new.networks))),
        });
    }

    /// Moves counters that no core uses any more from `leaving` to `gone`.
    pub(super) fn settle(&mut self) {
        let gone = &mut self.gone;
        self.leaving.retain(|counts| {
            let is_over = Arc::strong_count(counts) == 1;
            if is_over {
                *gone = gone.plus(&counts.sum());
            }
            !is_over
        });
    }
}

pub(super) fn name(service: &Service, backend: &Backend) -> Name {
    Name {
        service: service.name.clone(),
        backend: backend.name.clone(),
        addr: backend.addr,
        port: backend.port,
    }
}

impl Control {
    /// The states of all backends, for another process.
    pub(crate) fn handed(&self, now: Nanos) -> impl Iterator<Item = HandedBackend> + '_ {
        let ago = move |then: Nanos| now.saturating_sub(then);
        self.known.iter().map(move |(name, known)| HandedBackend {
            service: name.service.clone(),
            backend: name.backend.clone(),
            addr: name.addr,
            port: name.port,
            id: known.id,
            is_up: known.is_up,
            changed_ago: ago(known.changed),
            since_ago: known.since.map(ago),
            weight: known.weight,
            drained: known.drained,
        })
    }

    /// Continues with the states of another process, for the backends that are the same. Returns where their connections
    /// belong. Backends without a health check stay up.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(crate) fn inherit(
        &mut self,
        (all, tables): &(Vec<HandedBackend>, Vec<HandedTables>),
        now: Nanos,
    ) -> Result<Places, BadState> {
        let mut places = Places::new();
        let checked: HashSet<String> =
            self.services.iter().filter(|s| s.check.is_some()).map(|s| s.name.clone()).collect();
        for one in all {
            let (service, backend) = (one.service.clone(), one.backend.clone());
            let name = Name { service, backend, addr: one.addr, port: one.port };
            let Some(known) = self.known.get_mut(&name) else { continue };
            known.is_up = one.is_up || !checked.contains(&one.service);
            known.changed = now.saturating_sub(one.changed_ago);
            // The clock of this process may be younger than the slow start, which has then long ended.
            known.since = one.since_ago.map(|ago| now.saturating_sub(ago));
            (known.weight, known.drained) = (one.weight, one.drained);
            let number = self.totals.get(&one.service).map_or(u16::MAX, |totals| totals.number);
            places.insert(one.id, (known.id, number));
        }
        for HandedTables { service, networks, asked } in tables {
            let Some(totals) = self.totals.get(service) else { continue };
            if let (Some((how, persist)), false) = (&totals.persist, networks.is_empty()) {
                let backend = |there| places.get(&there).map(|(here, _)| *here);
                persist.take_over(&mut Reader::new(networks), (how, self.seed), now, backend)?;
            }
            if let (Some(here), false) = (&totals.asked, asked.is_empty()) {
                here.take_over(&mut Reader::new(asked), now)?;
            }
        }
        self.remake(now);
        Ok(places)
    }

    /// The tables of all services, for another process.
    pub(crate) fn handed_tables(&self, now: Nanos) -> Vec<HandedTables> {
        let mut all = Vec::new();
        for (service, totals) in &self.totals {
            let mut tables = HandedTables { service: service.clone(), ..HandedTables::default() };
            if let Some((how, persist)) = &totals.persist {
                let mut writer = Writer::default();
                persist.hand_over(how.timeout, now, &mut writer);
                tables.networks = writer.finish();
            }
            if let Some(asked) = &totals.asked {
                let mut writer = Writer::default();
                asked.hand_over(now, &mut writer);
                tables.asked = writer.finish();
            }
            all.push(tables);
        }
        all
    }
}
