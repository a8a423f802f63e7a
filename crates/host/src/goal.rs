//! The goals of plans, and the changes that serve them.

use flowyard_adapter::rss::{FlowType, HashFields, Rss, RssConfig};
use flowyard_frame::FlowKey;

use crate::card::Card;
use crate::effect::{change, compare, effect, rounded};
use crate::plan::{Observed, Plan, Refusal, Step};
use crate::setting::{Setting, Settings, settings_of};
use crate::state::{State, fields_in};
use crate::traffic::Traffic;

mod balance;
mod channels;
mod group;
mod isolate;
mod locality;
mod symmetric;
mod tunnels;
mod wish;

use wish::{Ask, Wish};

/// What a plan is for.
#[derive(Clone, PartialEq, Debug)]
pub enum Goal {
    /// Every queue and CPU gets an equal share of the traffic.
    Balance,
    /// Frames are processed near the adapter, and where the application reads them.
    Locality,
    /// A flow has a queue of its own.
    Isolate(FlowKey),
    /// The flows that match have this number of queues of their own.
    Group(FlowKey, u32),
    /// Both directions of a connection go to one CPU.
    Symmetric,
    /// Frames of different connections inside a tunnel go to different CPUs.
    SpreadTunnels,
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Balance => f.write_str("balance"),
            Self::Locality => f.write_str("locality"),
            Self::Isolate(flow) => write!(f, "isolate={flow}"),
            Self::Group(flow, queues) => write!(f, "isolate={flow} onto {queues} queues"),
            Self::Symmetric => f.write_str("symmetric"),
            Self::SpreadTunnels => f.write_str("spread-tunnels"),
        }
    }
}

/// Makes a plan. It changes nothing.
#[must_use]
pub fn plan(state: &State, goal: &Goal, traffic: &Traffic, source: &str) -> Plan {
    let settings = settings_of(state);
    let card = Card::new(state, &settings);
    let ask = Ask { state, settings: &settings, card: &card, traffic, planned: None };
    let mut wish = Wish::default();
    match goal {
        Goal::Balance => balance::wish(&ask, &mut wish),
        Goal::Locality => locality::wish(&ask, &mut wish),
        Goal::Isolate(flow) => isolate::wish(&ask, flow, &mut wish),
        Goal::Group(flow, queues) => group::wish(&ask, flow, *queues, &mut wish),
        Goal::Symmetric => symmetric::wish(&ask, &mut wish),
        Goal::SpreadTunnels => tunnels::wish(&ask, &mut wish),
    }
    refuse_by_profile(state, &settings, &mut wish);
    let (mut steps, mut planned) = (Vec::new(), settings.clone());
    for (setting, (to, why)) in wish.changes {
        match settings.get(&setting).map(String::as_str).or(setting.absent()) {
            Some(from) if from == to => {}
            Some(from) => {
                planned.insert(setting.clone(), to.clone());
                let from = from.to_owned();
                steps.push(Step { setting, from, to, why });
            }
            None => wish.refusals.push(unknown(state, &setting, &to)),
        }
    }
    if let Some(why) = state.sysfs.why() {
        wish.notes.push(format!("The settings in files of the interface are not known: {why}"));
    }
    let assumed: Vec<_> =
        state.fields.iter().filter(|(_, fields)| fields.value().is_none()).collect();
    if let (Some(profile), None, false) = (state.profile(), card.why_not(), assumed.is_empty()) {
        let names: Vec<_> = assumed.iter().map(|(flow, _)| flow.as_str()).collect();
        wish.notes.push(format!(
            "The driver does not tell the hashed fields of {}; the prediction assumes those of the profile {}.",
            names.join(", "),
            profile.name
        ));
    }
    for rule in card.unknown_rules() {
        wish.notes.push(format!(
            "{rule} has fields that are not modelled; the prediction is without it."
        ));
    }
    for writer in &state.writers {
        wish.notes.push(format!(
            "{} (process {}) runs and {}: stop it, or exclude the settings of this plan from it",
            writer.name, writer.pid, writer.changes
        ));
    }
    if traffic.frames() == 0 {
        wish.notes
            .push("There was no received traffic, so the effect is not predicted.".to_owned());
    }
    let after = Card::new(state, &planned);
    let mut today = effect(state, &card, traffic);
    let mut then = effect(state, &after, traffic);
    compare([(&mut today, &card), (&mut then, &after)]);
    Plan {
        interface: state.interface.clone(),
        driver: state.driver.value().map(|driver| driver.name.clone()).unwrap_or_default(),
        goal: goal.to_string(),
        traffic: Observed {
            source: source.to_owned(),
            frames: traffic.frames(),
            flows: traffic.flows().len() as u64,
            seconds: rounded(traffic.seconds()),
        },
        commands: steps.iter().map(|one| one.setting.command(&state.interface, &one.to)).collect(),
        steps,
        refusals: wish.refusals,
        today,
        planned: then,
        change: change(&card, &after, traffic),
        notes: wish.notes,
        made_for: settings,
    }
}

/// The refusal of a change of a setting that cannot be read.
fn unknown(state: &State, setting: &Setting, to: &str) -> Refusal {
    let unseen = state.unseen();
    let name = match setting {
        Setting::Channels => "channels".to_owned(),
        Setting::Key => "RSS key".to_owned(),
        Setting::Table => "RSS".to_owned(),
        Setting::Fields(flow) => format!("hash fields of {flow}"),
        Setting::Context(_) | Setting::NewContext => "RSS contexts".to_owned(),
        Setting::Rule(_) | Setting::NewRule(_) => "rules".to_owned(),
        Setting::Affinity(irq) => format!("affinity of interrupt {irq}"),
        Setting::Xps(queue) => format!("XPS CPUs of tx-{queue}"),
        Setting::SockFlows => "socket flow table of RFS".to_owned(),
        Setting::Rps(queue) => format!("RPS of rx-{queue}"),
        Setting::FlowCount(queue) => format!("RFS of rx-{queue}"),
    };
    let why = unseen.iter().find(|(of, _)| *of == name || name.starts_with(&format!("{of} ")));
    let why = why.map_or("the setting is not there", |(_, why)| why);
    let (source, limit) = why.split_once(": ").unwrap_or(("flowyard host", why));
    Refusal {
        what: format!("{setting} = {to}"),
        limit: limit.to_owned(),
        source: source.to_owned(),
    }
}

/// Takes back hash fields that the adapter's profile says its driver refuses.
fn refuse_by_profile(state: &State, settings: &Settings, wish: &mut Wish) {
    let Some(profile) = state.profile() else { return };
    let fields = |setting: &Setting| matches!(setting, Setting::Fields(_));
    if profile.rss.is_none() || !wish.changes.keys().any(fields) {
        return;
    }
    let mut all = HashFields::ALL_PORTS;
    for flow in FlowType::ALL {
        let name = Setting::Fields(state.hashed_as(flow).name().to_owned());
        let planned = wish.changes.get(&name).map(|(to, _)| to);
        let text = planned.or_else(|| settings.get(&name));
        let default = profile.rss.map(|rss| rss.fields.get(flow));
        if let Some(value) = text.and_then(|text| fields_in(text)).or(default) {
            all = all.with(flow, value);
        }
    }
    let config = RssConfig { fields: Some(all), ..RssConfig::default() };
    if let Err(error) = Rss::new(profile, 1, config) {
        let names: Vec<_> = wish.changes.keys().filter(|one| fields(one)).cloned().collect();
        for setting in names {
            let to = wish.changes.remove(&setting).map(|(to, _)| to).unwrap_or_default();
            let what = format!("{setting} = {to}");
            let source = format!("flowyard adapters: the profile of {}", profile.name);
            wish.refusals.push(Refusal { what, limit: error.to_string(), source });
        }
    }
}

#[cfg(test)]
mod channel_tests;
#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;
