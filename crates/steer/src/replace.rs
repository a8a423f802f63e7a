//! A program takes the place of the pinned one, whose process has ended.

use aya::maps::{Array, HashMap, MapError};
use aya::programs::links::FdLink;
use aya::programs::xdp::XdpLink;

use crate::layout::{Flow, Key, STAY};
use crate::pins::{LEARNERS, Pins, XDP};
use crate::policy::QUEUES_MOST;
use crate::program::{Attached, Error, Program, not_attached, refused};

impl Program {
    /// Takes the place of the pinned program in one step: every frame meets the one or the other. `None` if there is none.
    pub(crate) fn replace(&mut self) -> Result<Option<Attached>, Error> {
        let Some(pins) = self.pins.clone() else { return Ok(None) };
        let Some(link) = pins.link(XDP) else { return Ok(None) };
        let has_other_cpus = self.differs(pins.attached_map("queues"));
        let interface = pins.interface();
        // First the learner, so that there is always one.
        self.attach_learner(interface)?;
        let refuse =
            |error: &(dyn std::error::Error + 'static)| refused("replacing the program", error);
        let link = XdpLink::try_from(link).map_err(|error| refuse(&error))?;
        let xdp = self.xdp()?;
        let id = xdp.attach_to_link(link).map_err(|error| not_attached(interface, &error))?;
        let link = xdp.take_link(id).map_err(|error| not_attached(interface, &error))?;
        self.link = FdLink::try_from(link).ok();
        if has_other_cpus {
            self.forget_flows()?;
        }
        self.end_other_learners(&pins);
        let attached = pins.attached();
        Ok(Some(if attached.as_deref() == Some(Attached::Generic.name()) {
            Attached::Generic
        } else {
            Attached::Driver
        }))
    }

    /// Pins the link of the program, if there are pins.
    pub(crate) fn keep(&self, attached: Attached, link: FdLink) -> Result<FdLink, Error> {
        let Some(pins) = &self.pins else { return Ok(link) };
        self.end_other_learners(pins);
        pins.set_attached(attached.name())?;
        Ok(pins.keep(XDP, link)?)
    }

    /// Ends the learners of other policies, which an earlier process has pinned.
    fn end_other_learners(&self, pins: &Pins) {
        for name in LEARNERS.into_iter().filter(|name| Some(*name) != self.teaches()) {
            pins.forget(name);
        }
    }

    /// Keeps the link of a learner, and pins it if there are pins. The learner of a process before ends.
    pub(crate) fn keep_learner(&mut self, name: &'static str, link: FdLink) -> Result<(), Error> {
        self.learner = Some(match &self.pins {
            Some(pins) => pins.keep(name, link)?,
            None => link,
        });
        Ok(())
    }

    /// Whether a queue has another CPU than in `before`.
    fn differs(&mut self, before: Option<aya::maps::Map>) -> bool {
        let read = |map: aya::maps::Map| {
            let map = Array::<_, u32>::try_from(map)?;
            (0..QUEUES_MOST as u32)
                .map(|queue| map.get(&queue, 0))
                .collect::<Result<Vec<_>, MapError>>()
        };
        let before = before.and_then(|map| read(map).ok()).unwrap_or_default();
        let now = self.queue_cpus().map(|cpu| cpu.unwrap_or(STAY));
        let now: Vec<_> = now.chain(std::iter::repeat(0)).take(QUEUES_MOST).collect();
        before != now
    }

    /// Forgets all flows: the numbers of their queues mean other CPUs now.
    fn forget_flows(&mut self) -> Result<(), Error> {
        let fail = |error: MapError| refused("forgetting flows", &error);
        let map = self.map("flows")?;
        let mut map = HashMap::<_, Key, Flow>::try_from(map).map_err(fail)?;
        let flows: Vec<_> = map.keys().filter_map(Result::ok).collect();
        for flow in &flows {
            let _was_forgotten_meanwhile = map.remove(flow);
        }
        Ok(())
    }
}
