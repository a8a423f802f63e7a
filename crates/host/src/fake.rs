//! A simulated machine for tests: a virtio interface with four queues under a kernel with RPS, RFS and XPS.
//! It can refuse calls, and stop at any call as if the program had been killed there.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;

use flowyard_adapter::rules::RuleAction;

use crate::cpus;
use crate::flow_types::FLOW_TYPES;
use crate::machine::{Channels, Coalesce, Counts, Driver, Feature, Machine, Management, Rss};
use crate::ntuple::{Listed, Request, Table};

mod rules;

pub(crate) use rules::Rules;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fake {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) namespace: u64,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) channels: Channels,
    pub(crate) rss: Option<Rss>,
    pub(crate) fields: BTreeMap<u32, u64>,
    pub(crate) driver: String,
    pub(crate) counters: Vec<(String, u64)>,
    /// RSS contexts other than the default one; `None`: the driver has none.
    pub(crate) contexts: Option<BTreeMap<u32, Rss>>,
    /// The rules; `None`: the driver has none.
    pub(crate) rules: Option<Rules>,
    /// Whether a change of channels drops all rules.
    pub(crate) drops_rules: bool,
    /// Calls that change something, until the program is killed; `None`: it never is.
    pub(crate) left: Cell<Option<u32>>,
    /// Whether the call at which the program is killed still takes effect.
    pub(crate) takes_effect: bool,
    pub(crate) management: Vec<Management>,
    /// A file that the kernel refuses to write.
    pub(crate) refused: Option<String>,
}

/// The error of every call after the program was killed.
pub(crate) fn killed() -> io::Error {
    io::Error::other("the program was killed")
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

fn no_device<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::ENODEV))
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl Fake {
    pub(crate) fn virtio() -> Self {
        let mut files = BTreeMap::new();
        let mut put = |path: String, text: &str| {
            files.insert(path, format!("{text}\n"));
        };
        let net = "/sys/class/net/eth0";
        put(format!("{net}/ifindex"), "2");
        put(format!("{net}/device/numa_node"), "0");
        put(format!("{net}/speed"), "10000");
        let mut table = "           CPU0       CPU1       CPU2       CPU3\n".to_owned();
        for queue in 0..4 {
            put(format!("{net}/queues/rx-{queue}/rps_cpus"), "0");
            put(format!("{net}/queues/rx-{queue}/rps_flow_cnt"), "0");
            put(format!("{net}/queues/tx-{queue}/xps_cpus"), &cpus::mask(&[queue]));
            put(format!("{net}/queues/tx-{queue}/xps_rxqs"), "0");
            let irq = 40 + queue;
            put(format!("{net}/device/../msi_irqs/{irq}"), "msix");
            put(format!("/proc/irq/{irq}/smp_affinity_list"), &queue.to_string());
            put(format!("/proc/irq/{irq}/effective_affinity_list"), &queue.to_string());
            table += &format!(
                " {irq}:  1 2 3 4  PCI-MSIX-0000:00:03.0  1-edge  virtio0-input.{queue}\n"
            );
        }
        put("/proc/interrupts".into(), table.trim_end());
        put("/proc/sys/kernel/random/boot_id".into(), "5c8a");
        put("/proc/sys/net/core/rps_sock_flow_entries".into(), "0");
        put("/sys/devices/system/cpu/online".into(), "0-3");
        put("/sys/devices/system/node/online".into(), "0-1");
        put("/sys/devices/system/node/node0/cpulist".into(), "0-1");
        put("/sys/devices/system/node/node1/cpulist".into(), "2-3");
        let counts = |combined| Counts { combined, ..Counts::default() };
        let names = (0..4).map(|queue| (format!("rx_queue_{queue}_packets"), 100 + queue));
        Self {
            name: "eth0".to_owned(),
            index: 2,
            namespace: 4_026_531_840,
            files,
            channels: Channels { most: counts(4), now: counts(4) },
            rss: Some(Rss {
                table: (0..128).map(|entry| entry % 4).collect(),
                key: (0..40_u8).map(|at| at.wrapping_mul(41) ^ 0x5a).collect(),
                function: 1,
                transformation: 0,
            }),
            fields: FLOW_TYPES
                .iter()
                .map(|&(name, number)| {
                    let ports = name.starts_with("tcp") || name.starts_with("udp");
                    (number, if ports { 0xf0 } else { 0x30 })
                })
                .collect(),
            driver: "virtio_net".to_owned(),
            counters: names.collect(),
            contexts: None,
            rules: None,
            drops_rules: false,
            left: Cell::new(None),
            takes_effect: false,
            management: Vec::new(),
            refused: None,
        }
    }

    /// An interface without an adapter: no RSS, no channels, no interrupts.
    pub(crate) fn veth() -> Self {
        let mut fake = Self::virtio();
        fake.files.retain(|path, _| !path.contains("/irq/") && !path.contains("/device/"));
        fake.files.insert("/proc/interrupts".into(), "CPU0\n".into());
        fake.driver = "veth".to_owned();
        (fake.rss, fake.fields) = (None, BTreeMap::new());
        fake.counters.clear();
        fake
    }

    /// Makes the files of a queue with the kernel's values, or removes them.
    pub(crate) fn queue(&mut self, queue: u32, is_there: bool) {
        let net = "/sys/class/net/eth0/queues";
        for (name, text) in [
            (format!("{net}/rx-{queue}/rps_cpus"), "0".to_owned()),
            (format!("{net}/rx-{queue}/rps_flow_cnt"), "0".to_owned()),
            (format!("{net}/tx-{queue}/xps_cpus"), cpus::mask(&[queue])),
            (format!("{net}/tx-{queue}/xps_rxqs"), "0".to_owned()),
        ] {
            if is_there {
                self.files.insert(name, format!("{text}\n"));
            } else {
                self.files.remove(&name);
            }
        }
        // The interrupts stay, and begin anew on their first CPUs.
        if is_there {
            for name in ["smp_affinity_list", "effective_affinity_list"] {
                self.files.insert(format!("/proc/irq/{}/{name}", 40 + queue), format!("{queue}\n"));
            }
        }
    }

    /// Changes the number of channels as another program would.
    pub(crate) fn with_channels(mut self, combined: u32) -> Self {
        let rules = self.rules.take();
        let counts = Counts { combined, ..Counts::default() };
        self.rss.iter_mut().for_each(|rss| rss.table = (0..128).map(|entry| entry % 4).collect());
        self.set_channels("eth0", counts).unwrap();
        self.rules = rules;
        self
    }

    /// Counts a call that changes something. Returns whether it takes effect.
    fn change(&self) -> io::Result<bool> {
        match self.left.get() {
            None => Ok(true),
            Some(0) => Err(killed()),
            Some(1) => {
                self.left.set(Some(0));
                if self.takes_effect { Ok(true) } else { Err(killed()) }
            }
            Some(left) => {
                self.left.set(Some(left - 1));
                Ok(true)
            }
        }
    }

    fn is_killed(&self) -> io::Result<()> {
        if self.left.get() == Some(0) { Err(killed()) } else { Ok(()) }
    }

    fn has_rss(&self) -> io::Result<&Rss> {
        self.rss.as_ref().map_or_else(unsupported, Ok)
    }
}

impl Machine for Fake {
    fn read(&self, path: &str) -> io::Result<String> {
        self.is_killed()?;
        self.files.get(path).cloned().ok_or_else(missing)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        self.is_killed()?;
        let front = format!("{folder}/");
        let rest = self.files.keys().filter_map(|path| path.strip_prefix(&front));
        let mut names: Vec<_> =
            rest.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned()).collect();
        names.dedup();
        if names.is_empty() { Err(missing()) } else { Ok(names) }
    }

    fn write(&mut self, path: &str, text: &str) -> io::Result<()> {
        self.change()?;
        if self.refused.as_deref() == Some(path) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let file = self.files.get_mut(path).ok_or_else(missing)?;
        *file = format!("{text}\n");
        if let Some(irq) = path.strip_suffix("/smp_affinity_list") {
            self.files.insert(format!("{irq}/effective_affinity_list"), format!("{text}\n"));
        }
        self.is_killed()
    }

    fn management(&self, _: &str) -> Vec<Management> {
        self.management.clone()
    }

    fn index(&self, interface: &str) -> io::Result<u32> {
        if interface == self.name { Ok(self.index) } else { no_device() }
    }

    fn name(&self, index: u32) -> io::Result<String> {
        if index == self.index { Ok(self.name.clone()) } else { no_device() }
    }

    fn namespace(&self) -> io::Result<u64> {
        Ok(self.namespace)
    }

    fn driver(&self, _: &str) -> io::Result<Driver> {
        Ok(Driver { name: self.driver.clone(), ..Driver::default() })
    }

    fn channels(&self, _: &str) -> io::Result<Channels> {
        self.is_killed()?;
        if self.rss.is_none() { unsupported() } else { Ok(self.channels) }
    }

    fn set_channels(&mut self, _: &str, counts: Counts) -> io::Result<()> {
        self.change()?;
        if counts.combined == 0 || counts.combined > self.channels.most.combined {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // A table that a user set stays, and forbids fewer channels (ethtool_check_max_channel).
        let queues = self.channels.now.combined;
        let is_users = |table: &[u32]| {
            table.iter().enumerate().any(|(entry, queue)| *queue != entry as u32 % queues)
        };
        let table = self.rss.as_ref().map(|rss| rss.table.as_slice()).unwrap_or_default();
        let rule = self.rules.as_ref().and_then(Rules::highest_queue);
        let contexts = self.contexts.iter().flat_map(BTreeMap::values);
        let context = contexts.flat_map(|rss| &rss.table).any(|queue| *queue >= counts.combined);
        if context
            || (is_users(table) && table.iter().any(|queue| *queue >= counts.combined))
            || rule >= Some(counts.combined)
        {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        (counts.combined..queues).for_each(|queue| self.queue(queue, false));
        (queues..counts.combined).for_each(|queue| self.queue(queue, true));
        if self.drops_rules && counts != self.channels.now {
            self.rules.iter_mut().for_each(|rules| rules.list.clear());
        }
        // Drivers fill the table again.
        if counts != self.channels.now
            && let Some(rss) = &mut self.rss
        {
            rss.table = (0..128).map(|entry| entry % counts.combined).collect();
        }
        self.channels.now = counts;
        self.is_killed()
    }

    fn rss(&self, _: &str, context: u32) -> io::Result<Rss> {
        self.is_killed()?;
        let rss = self.has_rss()?;
        match (context, &self.contexts) {
            (0, _) => Ok(rss.clone()),
            (_, None) => unsupported(),
            (_, Some(all)) => all.get(&context).cloned().ok_or_else(missing),
        }
    }

    fn create_context(&mut self, _: &str, table: &[u32], key: &[u8]) -> io::Result<u32> {
        self.change()?;
        let mut rss = self.has_rss()?.clone();
        let queues = self.channels.now.combined;
        if rss.table.len() != table.len() || table.iter().any(|queue| *queue >= queues) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        rss.table = table.to_vec();
        if !key.is_empty() {
            rss.key = key.to_vec();
        }
        let Some(all) = &mut self.contexts else { return unsupported() };
        let number = (1..).find(|number| !all.contains_key(number)).unwrap_or(1);
        all.insert(number, rss);
        self.is_killed().map(|()| number)
    }

    fn delete_context(&mut self, _: &str, context: u32) -> io::Result<()> {
        self.change()?;
        if self.rules.as_ref().is_some_and(|rules| rules.uses(context)) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let Some(all) = &mut self.contexts else { return unsupported() };
        all.remove(&context).ok_or_else(missing)?;
        self.is_killed()
    }

    fn set_table(&mut self, _: &str, table: &[u32]) -> io::Result<()> {
        self.change()?;
        let queues = self.channels.now.combined;
        if self.has_rss()?.table.len() != table.len() || table.iter().any(|queue| *queue >= queues)
        {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.rss.iter_mut().for_each(|rss| rss.table = table.to_vec());
        self.is_killed()
    }

    fn set_key(&mut self, _: &str, key: &[u8]) -> io::Result<()> {
        self.change()?;
        if self.has_rss()?.key.len() != key.len() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.rss.iter_mut().for_each(|rss| rss.key = key.to_vec());
        self.is_killed()
    }

    fn fields(&self, _: &str, flow_type: u32) -> io::Result<u64> {
        self.is_killed()?;
        self.fields.get(&flow_type).copied().map_or_else(unsupported, Ok)
    }

    fn set_fields(&mut self, _: &str, flow_type: u32, fields: u64) -> io::Result<()> {
        self.change()?;
        self.fields.insert(flow_type, fields);
        self.is_killed()
    }

    fn features(&self, _: &str) -> io::Result<Vec<Feature>> {
        let on = self.rules.as_ref().is_some_and(|rules| rules.on);
        let changeable = self.rules.is_some();
        Ok(vec![Feature { name: "rx-ntuple-filter".into(), on, changeable }])
    }

    fn coalesce(&self, _: &str) -> io::Result<Coalesce> {
        unsupported()
    }

    fn counters(&self, _: &str) -> io::Result<Vec<(String, u64)>> {
        Ok(self.counters.clone())
    }

    fn rules(&self, _: &str) -> io::Result<Table> {
        self.is_killed()?;
        self.rules.as_ref().map_or_else(unsupported, |rules| Ok(rules.table()))
    }

    fn rule(&self, _: &str, location: u32) -> io::Result<Option<Listed>> {
        self.is_killed()?;
        self.rules.as_ref().map_or_else(unsupported, |rules| Ok(rules.at(location)))
    }

    fn insert_rule(&mut self, _: &str, rule: &Request, location: u32) -> io::Result<u32> {
        self.change()?;
        let queues = self.channels.now.combined;
        if let Ok(RuleAction::Context { context, .. }) = rule.decode().map(|rule| rule.action)
            && !self.contexts.as_ref().is_some_and(|all| all.contains_key(&context))
        {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let location = match &mut self.rules {
            Some(rules) => rules.insert(rule, location, queues)?,
            None => return unsupported(),
        };
        self.is_killed().map(|()| location)
    }

    fn delete_rule(&mut self, _: &str, location: u32) -> io::Result<()> {
        self.change()?;
        let Some(rules) = &mut self.rules else { return unsupported() };
        rules.list.remove(&location).ok_or_else(missing)?;
        self.is_killed()
    }
}
