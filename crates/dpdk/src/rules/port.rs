//! Rules in the adapter of a port.
//!
//! Invariants: a rule is in the adapter until it is destroyed or this is dropped.
#![allow(unsafe_code, reason = "calls of C functions")]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::{Device, Hits, Refused, Rule, RuleId};
use crate::error::{text, text_of};
use crate::port::Port;
use crate::sys;

/// The rules of a port.
#[derive(Debug)]
pub struct PortRules {
    port: Arc<Port>,
    flows: BTreeMap<u32, *mut c_void>,
    next: u32,
}

// SAFETY: DPDK's handles of rules are bound to no thread.
unsafe impl Send for PortRules {}

/// Room for the driver's reason.
const ROOM: usize = 160;

impl PortRules {
    /// The rules of this port; there are none yet.
    #[must_use]
    pub const fn new(port: Arc<Port>) -> Self {
        Self { port, flows: BTreeMap::new(), next: 0 }
    }

    fn refused(&self, doing: &str, code: i32, why: &[u8; ROOM]) -> Refused {
        let (driver, why) = (&self.port.info().driver, text_of(why));
        let why = if why.is_empty() { text(code) } else { why };
        Refused(format!("{driver} refused to {doing}: {why}"))
    }

    fn flow(&self, rule: RuleId) -> Result<*mut c_void, Refused> {
        let found = self.flows.get(&rule.0).copied();
        found.ok_or_else(|| Refused(format!("there is no rule {}", rule.0)))
    }
}

impl Device for PortRules {
    fn validate(&mut self, rule: &Rule) -> Result<(), Refused> {
        rule.check()?;
        let mut why = [0; ROOM];
        // SAFETY: the port is open; there is room for the reason.
        let code = unsafe {
            let to = why.as_mut_ptr().cast::<c_char>();
            sys::fy_flow_validate(self.port.number(), &rule.raw(), to, ROOM as u32)
        };
        if code == 0 { Ok(()) } else { Err(self.refused("accept the rule", code, &why)) }
    }

    fn create(&mut self, rule: &Rule) -> Result<RuleId, Refused> {
        rule.check()?;
        let (mut why, mut code) = ([0; ROOM], 0);
        // SAFETY: as above.
        let flow = unsafe {
            let to = why.as_mut_ptr().cast::<c_char>();
            sys::fy_flow_create(self.port.number(), &rule.raw(), to, ROOM as u32, &raw mut code)
        };
        if flow.is_null() {
            return Err(self.refused("create the rule", code, &why));
        }
        let id = self.next;
        self.next += 1;
        self.flows.insert(id, flow);
        Ok(RuleId(id))
    }

    fn query(&mut self, rule: RuleId) -> Result<Hits, Refused> {
        let (flow, mut why, mut hits) = (self.flow(rule)?, [0; ROOM], [-1; 2]);
        // SAFETY: the rule exists; else as above.
        let code = unsafe {
            let to = why.as_mut_ptr().cast::<c_char>();
            sys::fy_flow_query(self.port.number(), flow, hits.as_mut_ptr(), to, ROOM as u32)
        };
        if code != 0 {
            return Err(self.refused("read the counters of a rule", code, &why));
        }
        let [frames, bytes] = hits.map(|count| u64::try_from(count).ok());
        Ok(Hits { frames, bytes })
    }

    fn destroy(&mut self, rule: RuleId) -> Result<(), Refused> {
        let (flow, mut why) = (self.flow(rule)?, [0; ROOM]);
        // SAFETY: the rule exists; else as above.
        let code = unsafe {
            let to = why.as_mut_ptr().cast::<c_char>();
            sys::fy_flow_destroy(self.port.number(), flow, to, ROOM as u32)
        };
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
