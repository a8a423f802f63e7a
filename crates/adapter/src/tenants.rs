//! Tenants: who has which MAC addresses, VLANs, pool or virtual function, read from a file, and the switch that follows.
//!
//! ```text
//!  layout 64x2                                                 # 64x2, 32x4, dcb32x4, dcb16x8
//!  tenant web pool 1 mac 02:00:00:00:00:01 vlan 42
//!  ip link set eth0 vf 3 mac 02:00:00:00:00:03 vlan 7 qos 2    # as typed in a shell
//!  mirror pool 1 to pool 9
//!  bmc mac 02:00:00:00:00:99 arp on rmcp on                    # filters of the management controller (manage.rs)
//! ```
//!
//! The settings become those of [`Vmdq`] as ixgbe would make them: virtual function N has pool N, the physical function
//! the first pool after them, which is also the default pool; virtual functions are checked for spoofing and are not
//! trusted unless the file says otherwise (`ixgbe_sriov.c`).
//!
//! Invariants: every error of a file is reported, with its place and its fix. No two tenants share a pool, and no two
//! share an address unless their VLANs differ. Thread-safety: plain data.

use crate::manage::Bmc;
use crate::rules::ParseError;
use crate::vmdq::{Accept, Insert, Layout, Mirror, Vmdq};

mod ip_link;
mod parse;
mod why;

pub use parse::parse;
pub use why::{Answer, Copy};

/// Where the frames of a tenant go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Place {
    /// A pool of queues of the physical function (VMDq).
    Pool(u8),
    /// A virtual function (SR-IOV).
    Vf(u8),
    /// The physical function itself.
    Physical,
}

/// The multicast frames that a tenant gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Groups {
    /// None.
    None,
    /// Those of the group addresses of its `mac` options.
    #[default]
    Listed,
    /// All.
    All,
}

/// A tenant of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// The name; `vf3` for a virtual function that only `ip link` names.
    pub name: String,
    /// Where its frames go.
    pub place: Place,
    /// Whether a line `tenant` names it, not only `ip link`.
    is_declared: bool,
    /// Its unicast addresses.
    pub macs: Vec<[u8; 6]>,
    /// Its multicast addresses.
    pub groups: Vec<[u8; 6]>,
    /// The VLANs whose tagged frames it gets.
    pub vlans: Vec<u16>,
    /// The port VLAN: the tag that its frames get on transmission and lose on reception; tag control information.
    pub port_vlan: Option<u16>,
    /// Whether the source addresses and VLANs of what it transmits are checked.
    pub spoofchk: bool,
    /// Whether it may ask for all multicast and all unicast frames.
    pub trust: bool,
    /// Whether it may send and receive (`state disable`).
    pub enabled: bool,
    /// The highest rate at which it transmits, in Mbit/s.
    pub rate: Option<u32>,
    /// The queues that RSS uses, of those of its pool.
    pub queues: Option<u16>,
    /// Whether it gets broadcast frames.
    pub broadcast: bool,
    /// The multicast frames that it gets.
    pub multicast: Groups,
    /// Whether it gets all unicast frames.
    pub promiscuous: bool,
    /// Whether it gets untagged frames; `None`: unless it has a port VLAN.
    pub untagged: Option<bool>,
    /// The line in the file, from 1.
    pub line: u32,
}

impl Tenant {
    fn new(name: &str, place: Place, line: u32) -> Self {
        Self {
            name: name.to_owned(),
            place,
            macs: Vec::new(),
            groups: Vec::new(),
            vlans: Vec::new(),
            port_vlan: None,
            spoofchk: matches!(place, Place::Vf(_)),
            trust: false,
            enabled: true,
            rate: None,
            queues: None,
            broadcast: true,
            multicast: Groups::Listed,
            promiscuous: false,
            untagged: None,
            is_declared: false,
            line,
        }
    }

    /// Whether it may have what its options ask for: a virtual function must be trusted for it.
    fn is_privileged(&self) -> bool {
        self.trust || !matches!(self.place, Place::Vf(_))
    }
}

/// A file of tenants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tenants {
    /// The name of the file as given.
    pub file: String,
    /// How queues are divided; `None`: as ixgbe chooses.
    pub layout: Option<Layout>,
    /// The tenants, in the order of the file.
    pub tenants: Vec<Tenant>,
    /// The pool of frames for nobody: `Some(None)` drops them.
    pub default: Option<Option<u8>>,
    /// The line that names it; 0 if none does.
    default_line: u32,
    /// Whether replication is off.
    pub no_replication: bool,
    /// Whether frames between tenants leave by the network.
    pub no_loopback: bool,
    /// Whether the port is promiscuous.
    pub promiscuous: bool,
    /// Mirroring rules. [`crate::vmdq::Mirrored::Vlans`] has VLAN IDs here in `mirror_vlans`.
    pub mirrors: Vec<Mirror>,
    /// The VLAN, the receiving pool and the line of each VLAN mirroring rule.
    mirror_vlans: Vec<(u16, u8, u32)>,
    /// The filters of the management controller.
    pub bmc: Option<Bmc>,
}

/// What the adapter or its driver would not do as the file asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// The line of the file.
    pub line: u32,
    /// What it refuses or ignores, and what to do.
    pub text: String,
}

impl Tenants {
    /// The number of virtual functions.
    #[must_use]
    pub fn virtual_functions(&self) -> u8 {
        let of = |tenant: &Tenant| match tenant.place {
            Place::Vf(vf) => vf + 1,
            _ => 0,
        };
        self.tenants.iter().map(of).max().unwrap_or(0)
    }

    /// How queues are divided: as the file says, as ixgbe chooses for its virtual functions, or in 64 pools.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let chosen = match self.virtual_functions() {
            0 => Layout::Rss64x2,
            vfs => {
                let pools = self.tenants.iter().filter(|t| matches!(t.place, Place::Pool(_)));
                Layout::of_ixgbe(vfs.saturating_add(pools.count() as u8))
            }
        };
        self.layout.unwrap_or(chosen)
    }

    /// The pool of a place.
    #[must_use]
    pub fn pool(&self, place: Place) -> u8 {
        match place {
            Place::Pool(pool) | Place::Vf(pool) => pool,
            Place::Physical => self.virtual_functions(),
        }
    }

    /// The pool of frames for nobody.
    #[must_use]
    pub fn default_pool(&self) -> Option<u8> {
        self.default.unwrap_or_else(|| Some(self.pool(Place::Physical)))
    }

    /// The tenant that has `pool`.
    #[must_use]
    pub fn of_pool(&self, pool: u8) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| self.pool(tenant.place) == pool)
    }

    /// The switch of an adapter whose pools can be promiscuous or not, and what it would not do.
    ///
    /// # Errors
    /// If the tables of the adapter are too small.
    pub fn card(&self, has_promiscuous: bool) -> Result<(Vmdq, Vec<Remark>), Vec<ParseError>> {
        let mut card = Vmdq::new(self.layout(), has_promiscuous);
        let mut remarks = Vec::new();
        let mut errors = Vec::new();
        card.accept = [Accept::default(); 64];
        card.default_pool = self.default_pool();
        card.replication = !self.no_replication;
        card.loopback = !self.no_loopback;
        card.port_unicast = self.promiscuous;
        let tagged = |t: &Tenant| t.port_vlan.is_some() || !t.vlans.is_empty();
        card.filter_vlans = self.tenants.iter().any(tagged);
        let pools = card.layout.pools();
        match card.default_pool {
            Some(pool) if pool >= pools => {
                let error = crate::vmdq::Error::NoPool(pool, pools).to_string();
                errors.push(
                    self.error(self.default_line.max(1), format!("the default pool: {error}")),
                );
            }
            Some(pool) if self.of_pool(pool).is_none() => {
                let accept = Accept { untagged: true, broadcast: true, ..Accept::default() };
                card.accept[usize::from(pool)] = accept;
            }
            _ => {}
        }
        for tenant in &self.tenants {
            if let Err(error) = self.admit(tenant, &mut card, &mut remarks) {
                errors.push(self.error(tenant.line, error.to_string()));
            }
        }
        let vlan_mirrors = self.vlan_mirrors(&card, &mut errors);
        for mirror in self.mirrors.iter().copied().chain(vlan_mirrors) {
            if let Err(error) = card.add_mirror(mirror) {
                errors.push(self.error(1, error.to_string()));
            }
        }
        if errors.is_empty() { Ok((card, remarks)) } else { Err(errors) }
    }

    /// The VLAN mirroring rules, which name VLANs by the numbers of their filters.
    fn vlan_mirrors(&self, card: &Vmdq, errors: &mut Vec<ParseError>) -> Vec<Mirror> {
        let mut rules = Vec::new();
        for &(vid, to, line) in &self.mirror_vlans {
            match card.vlans().iter().position(|filter| filter.vid == vid) {
                Some(number) => {
                    let what = crate::vmdq::Mirrored::Vlans(1 << number);
                    rules.push(Mirror { to, what });
                }
                None => errors.push(self.error(
                    line,
                    format!("no tenant has VLAN {vid}, so no frame of it could be mirrored; give a tenant `vlan {vid}`, or remove the rule"),
                )),
            }
        }
        rules
    }

    fn error(&self, line: u32, what: String) -> ParseError {
        let (what, fix) = match what.split_once("; ") {
            Some((what, fix)) => (what.to_owned(), fix.to_owned()),
            None => (what, "use another pool, or another layout".to_owned()),
        };
        ParseError { file: self.file.clone(), line, col: 1, what, fix }
    }

    /// Sets up the pool of a tenant.
    fn admit(
        &self,
        tenant: &Tenant,
        card: &mut Vmdq,
        remarks: &mut Vec<Remark>,
    ) -> Result<(), crate::vmdq::Error> {
        let pool = self.pool(tenant.place);
        if pool >= card.layout.pools() {
            return Err(crate::vmdq::Error::NoPool(pool, card.layout.pools()));
        }
        let mut remark = |text: String| remarks.push(Remark { line: tenant.line, text });
        tenant.macs.iter().try_for_each(|mac| card.add_mac(*mac, pool))?;
        tenant.vlans.iter().try_for_each(|vid| card.add_vlan(*vid, pool))?;
        if let Some(tci) = tenant.port_vlan {
            card.add_vlan(tci & 0xfff, pool)?;
            card.insert[usize::from(pool)] = Insert::Always(tci);
        }
        if tenant.multicast == Groups::Listed {
            tenant.groups.iter().for_each(|mac| card.add_hash(*mac));
        }
        let mut all = (tenant.multicast == Groups::All, tenant.promiscuous);
        if (all.0 || all.1) && !tenant.is_privileged() {
            remark(format!(
                "{} is not trusted, so ixgbe gives it only its listed groups; write `trust on`",
                tenant.name
            ));
            all = (false, false);
        }
        if all.1 && !card.has_promiscuous() {
            remark(format!(
                "the pools of this adapter cannot be promiscuous (-EOPNOTSUPP), so {} gets only frames to its addresses",
                tenant.name
            ));
            all.1 = false;
        }
        card.port_multicast |= all.0;
        card.port_unicast |= all.1;
        let bit = 1_u64 << pool;
        if tenant.spoofchk {
            card.check_macs |= bit;
            card.check_vlans |= if card.filter_vlans { bit } else { 0 };
        }
        if !tenant.enabled {
            card.may_receive &= !bit;
            card.may_transmit &= !bit;
        }
        card.accept[usize::from(pool)] = Accept {
            untagged: tenant.untagged.unwrap_or(tenant.port_vlan.is_none()),
            multicast_hash: tenant.multicast == Groups::Listed && !tenant.groups.is_empty(),
            unicast_hash: false,
            broadcast: tenant.broadcast,
            all_multicast: all.0,
            all_unicast: all.1,
            all_vlans: false,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
