//! Whether a plan could cut the connection over which the machine is managed.
//!
//! ```text
//!  settings now ─> after step 1 ─> after step 2 ─> ... ─> planned     Card of each: queue and CPU of the connection
//! ```
//!
//! A plan is dangerous if the connection has another queue or CPU after any of its steps, if that cannot be
//! predicted, or if a step lets the driver lose frames. Undoing passes through the same states.

use crate::card::{Card, Place};
use crate::machine::{Carried, Machine, Management};
use crate::plan::{Plan, Step};
use crate::setting::{Setting, Settings, settings_of};
use crate::state::State;

/// Why the plan could move or interrupt the connection over which the machine is managed, a sentence for each
/// step and connection. Empty if it leaves them where they are.
#[must_use]
pub fn dangers(machine: &dyn Machine, plan: &Plan) -> Vec<String> {
    if plan.steps.is_empty() {
        return Vec::new();
    }
    let managed = machine.management(&plan.interface);
    if managed.is_empty() {
        return Vec::new();
    }
    let Ok(state) = State::read(machine, &plan.interface) else {
        // Then the plan cannot be applied either.
        return managed.into_iter().map(|one| one.what).collect();
    };
    managed.iter().flat_map(|one| Guard { state: &state, one }.dangers(&plan.steps)).collect()
}

/// One way by which the machine is managed.
struct Guard<'a> {
    state: &'a State,
    one: &'a Management,
}

impl Guard<'_> {
    fn dangers(&self, steps: &[Step]) -> Vec<String> {
        let mut settings = settings_of(self.state);
        let mut all = Vec::new();
        for step in steps {
            let before = settings.clone();
            settings.insert(step.setting.clone(), step.to.clone());
            if let Some(why) = self.danger(&before, &settings, &step.setting) {
                all.push(format!("{} {why} ({})", step.setting, self.one.what));
            }
        }
        all
    }

    /// What a step does to the connection; `None` if it does nothing.
    fn danger(&self, before: &Settings, after: &Settings, setting: &Setting) -> Option<String> {
        match setting {
            // The socket keeps its transmit queue while frames are under way, so nothing is lost or overtaken.
            Setting::Xps(_) => return None,
            // Frames come to a context by a rule only, and no rule leads to one that is made.
            Setting::NewContext => return None,
            Setting::Channels => {
                return Some("can lose frames while the driver makes its queues again".to_owned());
            }
            _ if is_about_queues(setting) && self.closes() => {
                return Some(
                    "can lose frames while the driver closes and opens the interface".to_owned(),
                );
            }
            _ => {}
        }
        let cards = [before, after].map(|settings| Card::new(self.state, settings));
        let flow = match &self.one.carried {
            Carried::Flow(flow) => flow,
            Carried::AnyFlow => return Some("can move connections".to_owned()),
            Carried::Route => return None,
        };
        let [old, new] = cards.each_ref().map(|card| card.queue(flow));
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            return Some(format!("moves the connection from queue {old} to queue {new}"));
        }
        if !self.could_move(new, setting) {
            return None;
        }
        match cards.map(|card| card.place(flow)) {
            _ if matches!(setting, Setting::SockFlows | Setting::FlowCount(_)) => Some(
                "can move the connection to another CPU: RFS chooses the one on which it is read"
                    .to_owned(),
            ),
            [Place::Cpu(old), Place::Cpu(new)] if old == new && is_modelled(setting) => None,
            [Place::Cpu(old), Place::Cpu(new)] if old != new => {
                Some(format!("moves the connection from CPU {old} to CPU {new}"))
            }
            // The queue is the same, and the step is about hashing only.
            _ if old.is_some() && old == new && is_about_queues(setting) => None,
            _ => Some("can move the connection: its queue or CPU cannot be predicted".to_owned()),
        }
    }

    /// Whether the driver closes and opens a running interface to change its hash: bnxt does (bnxt_ethtool.c,
    /// `bnxt_set_rxfh` and `bnxt_srxfh` call `bnxt_close_nic` and `bnxt_open_nic`).
    fn closes(&self) -> bool {
        self.state.driver.value().is_some_and(|driver| driver.name == "bnxt_en")
    }

    /// Whether the setting decides where frames of this queue go; of any queue, if it is not known.
    fn could_move(&self, queue: Option<u32>, setting: &Setting) -> bool {
        let is_its = |other: u32| queue.is_none_or(|queue| queue == other);
        match setting {
            Setting::Xps(_) => false,
            Setting::Rps(queue) | Setting::FlowCount(queue) => is_its(*queue),
            Setting::Affinity(irq) => {
                let interrupts = self.state.interrupts.value().into_iter().flatten();
                let one = interrupts.into_iter().find(|one| one.irq == *irq);
                one.and_then(|one| one.rx_queue.value().copied()).is_none_or(is_its)
            }
            _ => true,
        }
    }
}

/// Whether the setting's effect is in [`Card`].
const fn is_modelled(setting: &Setting) -> bool {
    is_about_queues(setting) || matches!(setting, Setting::Rps(_) | Setting::Affinity(_))
}

/// Whether the setting decides about the queue of a frame, and about nothing else.
const fn is_about_queues(setting: &Setting) -> bool {
    matches!(
        setting,
        Setting::Key
            | Setting::Table
            | Setting::Fields(_)
            | Setting::Context(_)
            | Setting::Rule(_)
            | Setting::NewRule(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::goal::{Goal, plan};
    use crate::setting::table_text;
    use crate::traffic::Traffic;
    use flowyard_frame::{FlowKey, proto};

    fn flow(port: u16) -> FlowKey {
        let ip = |last| std::net::Ipv4Addr::new(10, 0, 0, last).into();
        FlowKey::five_tuple(proto::TCP, ip(1), port, ip(2), 22)
    }

    fn managed(carried: Carried) -> Fake {
        let mut fake = Fake::virtio();
        fake.management = vec![Management { what: "the test's connection".into(), carried }];
        fake
    }

    /// A plan of these changes.
    fn steps(fake: &Fake, changes: &[(Setting, &str)]) -> Plan {
        let state = State::read(fake, "eth0").unwrap();
        let mut plan = plan(&state, &Goal::Balance, &Traffic::default(), "test");
        plan.steps = changes
            .iter()
            .map(|(setting, to)| Step {
                setting: setting.clone(),
                from: setting.get(fake, "eth0").unwrap(),
                to: (*to).to_owned(),
                why: String::new(),
            })
            .collect();
        plan
    }

    /// The table with another queue for the entry of `flow` and, if `all_others`, for all others instead.
    fn table(fake: &Fake, flow: &FlowKey, all_others: bool) -> (String, u32) {
        let state = State::read(fake, "eth0").unwrap();
        let card = Card::new(&state, &settings_of(&state));
        let (mut table, entry) = (fake.rss.clone().unwrap().table, card.entry(flow).unwrap());
        for (at, queue) in table.iter_mut().enumerate() {
            if (at == entry) != all_others {
                *queue = (*queue + 1) % 4;
            }
        }
        (table_text(&table), table[entry])
    }

    #[test]
    fn a_connection_that_stays_is_no_danger() {
        let flow = flow(50_000);
        let fake = managed(Carried::Flow(flow));
        let (moved, queue) = table(&fake, &flow, false);
        let found = dangers(&fake, &steps(&fake, &[(Setting::Table, &moved)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&format!("to queue {queue}")), "{found:?}");
        assert!(found[0].contains("the test's connection"), "{found:?}");
        let (others, queue) = table(&fake, &flow, true);
        assert_eq!(dangers(&fake, &steps(&fake, &[(Setting::Table, &others)])), [""; 0]);
        // There and back again is a move, too.
        let now = table_text(&fake.rss.clone().unwrap().table);
        let twice = steps(&fake, &[(Setting::Table, &moved), (Setting::Table, &now)]);
        assert_eq!(dangers(&fake, &twice).len(), 2);
        // The interrupt of its queue moves it; those of others do not, and XPS does not.
        for irq in 40..44 {
            let plan = steps(&fake, &[(Setting::Affinity(irq), "3")]);
            let is_its = irq == 40 + queue && queue != 3;
            assert_eq!(dangers(&fake, &plan).is_empty(), !is_its, "{irq}");
        }
        assert_eq!(dangers(&fake, &steps(&fake, &[(Setting::Xps(0), "3")])), [""; 0]);
        for other in 0..4 {
            let plan = steps(&fake, &[(Setting::FlowCount(other), "64")]);
            assert_eq!(dangers(&fake, &plan).is_empty(), other != queue, "RFS of {other}");
        }
    }

    #[test]
    fn what_cannot_be_predicted_is_a_danger() {
        let flow = flow(50_000);
        let mut fake = managed(Carried::Flow(flow));
        let channels = steps(&fake, &[(Setting::Channels, "rx 0 tx 0 other 0 combined 4")]);
        assert!(dangers(&fake, &channels)[0].contains("can lose frames"));
        // The function of the hash is not modelled: the table cannot be changed without moving flows.
        fake.rss.as_mut().unwrap().function = 4;
        let (all, _) = (table_text(&[0; 128]), ());
        let found = dangers(&fake, &steps(&fake, &[(Setting::Table, &all)]));
        assert!(found[0].contains("cannot be predicted"), "{found:?}");
        // Without an adapter, RPS chooses by a secret hash.
        let mut veth = Fake::veth();
        veth.management = fake.management;
        let found = dangers(&veth, &steps(&veth, &[(Setting::Rps(1), "0-3")]));
        assert!(found[0].contains("cannot be predicted"), "{found:?}");
    }

    #[test]
    fn a_driver_that_closes_the_interface_is_a_danger() {
        let flow = flow(50_000);
        for (driver, found) in [("virtio_net", 0), ("bnxt_en", 1)] {
            let mut fake = managed(Carried::Flow(flow));
            let (others, _) = table(&fake, &flow, true);
            let plan = steps(&fake, &[(Setting::Table, &others)]);
            fake.driver = driver.to_owned();
            assert_eq!(dangers(&fake, &plan).len(), found, "{driver}");
        }
    }

    #[test]
    fn a_default_route_is_kept() {
        let fake = managed(Carried::AnyFlow);
        let table = steps(&fake, &[(Setting::Table, &table_text(&[0; 128]))]);
        assert_eq!(dangers(&fake, &table).len(), 1);
        assert_eq!(dangers(&fake, &steps(&fake, &[(Setting::Xps(0), "3")])), [""; 0]);
        let fake = managed(Carried::Route);
        assert_eq!(dangers(&fake, &table), [""; 0]);
        let channels = steps(&fake, &[(Setting::Channels, "rx 0 tx 0 other 0 combined 2")]);
        assert_eq!(dangers(&fake, &channels).len(), 1);
    }

    /// Making a context moves nothing; the rule that leads to it moves the flows that match.
    #[test]
    fn a_group_of_queues_for_other_flows_is_no_danger() {
        let ssh = flow(50_000);
        let mut fake = Fake::with_rules("mlx5_core");
        fake.management = managed(Carried::Flow(ssh)).management;
        // Nothing but the connection's own queue is in the table.
        fake.rss.as_mut().unwrap().table = vec![0; 128];
        let state = State::read(&fake, "eth0").unwrap();
        for (flows, found) in
            [("tcp 0.0.0.0:0 > 10.0.0.2:80", 0), ("tcp 0.0.0.0:0 > 10.0.0.2:22", 1)]
        {
            let goal = Goal::Group(flows.parse().unwrap(), 2);
            let plan = plan(&state, &goal, &Traffic::default(), "test");
            assert_eq!(plan.steps[0].setting, Setting::NewContext, "{plan:?}");
            let dangers = dangers(&fake, &plan);
            assert_eq!(dangers.len(), found, "{flows}: {dangers:?}");
        }
        // A context in which the connection is: without it, its queue is not known.
        let context = fake.create_context("eth0", &[2; 128], &[]).unwrap();
        fake.foreign_rule("flow-type tcp4 dst-port 22 context 1 queue 0");
        let delete = steps(&fake, &[(Setting::Context(context), "none")]);
        assert_eq!(dangers(&fake, &delete).len(), 1);
    }

    #[test]
    fn rules_may_decide_the_queue() {
        let flow = flow(50_000);
        let mut fake = Fake::with_rules("ixgbe");
        fake.management = managed(Carried::Flow(flow)).management;
        let (table, queue) = table(&fake, &flow, true);
        let chosen = (queue + 2) % 4;
        let affinity = |fake: &Fake, queue: u32| {
            let other = ((queue + 1) % 4).to_string(); // queue n interrupts CPU n
            dangers(fake, &steps(fake, &[(Setting::Affinity(40 + queue), &other)])).len()
        };
        assert_eq!((affinity(&fake, queue), affinity(&fake, chosen)), (1, 0));
        fake.foreign_rule(&format!("flow-type tcp4 src-port 50000 action {chosen}"));
        assert_eq!((affinity(&fake, queue), affinity(&fake, chosen)), (0, 1), "the rule decides");
        assert_eq!(dangers(&fake, &steps(&fake, &[(Setting::Table, &table)])), [""; 0]);
    }
}
