//! Rules in the adapter of a port.
//!
//! Invariants: a rule is in the adapter until it is destroyed, this is dropped, or the port is closed. The port is not
//! kept open by its rules: it is closed when its last queue is dropped, and not while a call is made here.
#![allow(unsafe_code, reason = "calls of C functions")]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Device, Hits, Refused, Rule, RuleId, SwitchPort};
use crate::error::{text, text_of};
use crate::port::Port;
use crate::sys;

/// The rules of a port.
#[derive(Debug)]
pub struct PortRules {
    port: Weak<Port>,
    gate: Arc<Mutex<()>>,
    driver: String,
    switch: Option<SwitchPort>,
    /// The driver's handle of each rule, and the port that it was given to.
    flows: BTreeMap<u32, (*mut c_void, u16)>,
    next: u32,
}

// SAFETY: DPDK's handles of rules are bound to no thread.
unsafe impl Send for PortRules {}

/// Room for the driver's reason.
const ROOM: usize = 160;

impl PortRules {
    /// The rules of this port; there are none yet.
    #[must_use]
    pub fn new(port: &Arc<Port>) -> Self {
        Self {
            port: Arc::downgrade(port),
            gate: Arc::clone(port.gate()),
            driver: port.info().driver.clone(),
            switch: (port.info().domain).map(|domain| SwitchPort { domain, number: port.number() }),
            flows: BTreeMap::new(),
            next: 0,
        }
    }

    /// Calls the driver of the port, unless the port is closed.
    fn call<T>(&self, call: impl FnOnce(u16) -> T) -> Result<T, Refused> {
        let _open = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropped before the gate opens, so that the last queue closes the port.
        let port = self.port.upgrade().ok_or_else(|| Refused("the port is closed".into()))?;
        Ok(call(port.number()))
    }

    fn refused(&self, doing: &str, code: i32, why: &[u8; ROOM]) -> Refused {
        let (driver, why) = (&self.driver, text_of(why));
        let why = if why.is_empty() { text(code) } else { why };
        Refused(format!("{driver} refused to {doing}: {why}"))
    }

    fn flow(&self, rule: RuleId) -> Result<(*mut c_void, u16), Refused> {
        let found = self.flows.get(&rule.0).copied();
        found.ok_or_else(|| Refused(format!("there is no rule {}", rule.0)))
    }
}

impl Device for PortRules {
    fn switch_port(&self) -> Option<SwitchPort> {
        self.switch.filter(|_| self.port.strong_count() > 0)
    }

    fn validate(&mut self, rule: &Rule) -> Result<(), Refused> {
        rule.check()?;
        let mut why = [0; ROOM];
        let to = why.as_mut_ptr().cast::<c_char>();
        let code = self.call(|port| {
            // SAFETY: the port is open; there is room for the reason.
            unsafe { sys::fy_flow_validate(port, &rule.raw(), to, ROOM as u32) }
        })?;
        if code == 0 { Ok(()) } else { Err(self.refused("accept the rule", code, &why)) }
    }

    fn create(&mut self, rule: &Rule) -> Result<RuleId, Refused> {
        rule.check()?;
        let (mut why, mut code) = ([0; ROOM], 0);
        let (to, code_to) = (why.as_mut_ptr().cast::<c_char>(), &raw mut code);
        let (flow, proxy) = self.call(|port| {
            let raw = rule.raw();
            // SAFETY: as above.
            let flow =
                unsafe { sys::fy_flow_create(port, &raw const raw, to, ROOM as u32, code_to) };
            // SAFETY: the port is open.
            (flow, unsafe { sys::fy_flow_proxy(port, &raw const raw) })
        })?;
        if flow.is_null() {
            return Err(self.refused("create the rule", code, &why));
        }
        let id = self.next;
        self.next += 1;
        self.flows.insert(id, (flow, proxy));
        Ok(RuleId(id))
    }

    fn query(&mut self, rule: RuleId) -> Result<Hits, Refused> {
        let ((flow, proxy), mut why, mut hits) = (self.flow(rule)?, [0; ROOM], [-1; 2]);
        let (to, hits_to) = (why.as_mut_ptr().cast::<c_char>(), hits.as_mut_ptr());
        let code = self.call(|_| {
            // SAFETY: the rule exists; else as above.
            unsafe { sys::fy_flow_query(proxy, flow, hits_to, to, ROOM as u32) }
        })?;
        if code != 0 {
            return Err(self.refused("read the counters of a rule", code, &why));
        }
        let [frames, bytes] = hits.map(|count| u64::try_from(count).ok());
        Ok(Hits { frames, bytes })
    }

    fn destroy(&mut self, rule: RuleId) -> Result<(), Refused> {
        let ((flow, proxy), mut why) = (self.flow(rule)?, [0; ROOM]);
        let to = why.as_mut_ptr().cast::<c_char>();
        let code = self.call(|_| {
            // SAFETY: the rule exists; else as above.
            unsafe { sys::fy_flow_destroy(proxy, flow, to, ROOM as u32) }
        })?;
        if code != 0 {
            return Err(self.refused("remove the rule", code, &why));
        }
        self.flows.remove(&rule.0);
        Ok(())
    }
}

impl Drop for PortRules {
    fn drop(&mut self) {
        let all: Vec<u32> = self.flows.keys().copied().collect();
        for rule in all {
            let _ = self.destroy(RuleId(rule)); // what is left goes with the port
        }
    }
}
