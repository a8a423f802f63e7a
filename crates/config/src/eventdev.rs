//! `[yard] engine = "eventdev"`: a yard over an event device of DPDK, and what it cannot do.

use flowyard_ports::port::dpdk::{BUILD, is_pci};
use flowyard_queue::events::Layout;
use flowyard_yard::Parts;
use toml::Spanned;

use super::names::Checked;
use super::work::WorkKind;
use super::{Config, EngineWord, Order};

impl Config {
    /// The event device of the yard; `None` if its queues are flowyard's own.
    pub(crate) fn event_device(&self) -> Option<&Spanned<String>> {
        let is_used = *self.yard.engine.get_ref() == EngineWord::Eventdev;
        self.yard.event_device.as_ref().filter(|_| is_used)
    }

    /// Lets the event device make the queues, if there is one.
    #[cfg(feature = "dpdk")]
    pub(crate) fn use_event_device(&self, parts: &mut Parts) {
        let Some(device) = self.event_device() else { return };
        let environment = self.dpdk_environment();
        parts.queues = Box::new(flowyard_dpdk::EventScheduler {
            options: environment.options,
            pci: environment.devices.into_iter().filter(|device| is_pci(device)).collect(),
            device: device.get_ref().clone(),
        });
    }

    /// Without DPDK there is none: `check` has refused it.
    #[cfg(not(feature = "dpdk"))]
    #[expect(clippy::unused_self, reason = "as with DPDK")]
    pub(crate) const fn use_event_device(&self, _: &mut Parts) {}
}

/// Checks the engine.
pub(super) fn check(config: &Config) -> Checked {
    let yard = &config.yard;
    if *yard.engine.get_ref() == EngineWord::Own {
        let Some(device) = &yard.event_device else { return Ok(()) };
        let what = "the event device is not used, because the queues are flowyard's own";
        let fix = "add engine = \"eventdev\", or remove 'event_device'";
        return Err(config.error(device.span(), what, fix));
    }
    let at = yard.engine.span();
    if !cfg!(feature = "dpdk") {
        let what = "this flowyard was built without DPDK, so it has no engine \"eventdev\"";
        return Err(config.error(at, what, BUILD));
    }
    let Some(device) = &yard.event_device else {
        let what = "the engine \"eventdev\" has no event device";
        return Err(config.error(at, what, "add event_device = \"event_sw0\""));
    };
    self::device(config, device)?;
    if yard.queue_limits.is_some() {
        let what = "'queue_limits' is for flowyard's own queues, not for those of an event device";
        return Err(config.error(at, what, "remove 'queue_limits', or 'engine'"));
    }
    work(config)?;
    let blueprint = config.blueprint()?;
    match Layout::new(blueprint.cores, &blueprint.wanted()) {
        Ok(_) => Ok(()),
        Err(unfit) => Err(config.error(device.span(), unfit.what, unfit.fix)),
    }
}

/// Checks the name of the device.
fn device(config: &Config, device: &Spanned<String>) -> Checked {
    let name = device.get_ref().split(',').next().unwrap_or_default();
    let number = name.strip_prefix("event_sw");
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if number.is_some_and(is_number) || is_pci(name) || name == "dlb2_event" {
        return Ok(());
    }
    let what = match name {
        _ if number.is_some() => {
            format!("'{name}' is not a name of the software device, which is event_sw and a number")
        }
        _ if name.starts_with("event_opdl") => {
            "event_opdl gives events on that were released, so a yard over it could drop no frame"
                .into()
        }
        _ if name.starts_with("event_") => format!("a yard over {name} is not implemented yet"),
        _ => format!("'{name}' is not an event device of DPDK"),
    };
    let fix = "write \"event_sw0\", or the PCI address of a DLB, such as \"0000:6d:00.0\"";
    Err(config.error(device.span(), what, fix))
}

/// Checks that the work needs no queue that an event device does not have.
fn work(config: &Config) -> Checked {
    let kind = &config.work.get_ref().kind;
    let word = match kind.get_ref() {
        WorkKind::Bridge => "bridge",
        WorkKind::Switch => "switch",
        WorkKind::Ipsec => {
            let is_shared = |queue: &&super::QueueConfig| {
                queue.order == Order::Ordered && queue.consumers.get_ref().len() > 1
            };
            let Some(queue) = config.queues().find(is_shared) else { return Ok(()) };
            let what = "sequence numbers in an ordered queue of several cores are not implemented yet with the engine \
                 \"eventdev\", which orders the frames of each core that receives on its own";
            let fix = "write order = \"atomic\", name one consumer, or remove 'engine'";
            return Err(config.error(queue.consumers.span(), what, fix));
        }
        WorkKind::Forward | WorkKind::Burn | WorkKind::Route | WorkKind::Balance => return Ok(()),
    };
    let what = format!(
        "the work \"{word}\" copies frames to several ports, which is not implemented yet with the engine \"eventdev\""
    );
    Err(config.error(kind.span(), what, "use another work, or remove 'engine'"))
}
