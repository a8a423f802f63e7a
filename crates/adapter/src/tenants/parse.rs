//! Reads a file of tenants, line by line. The head of `tenants.rs` has an example.

use super::{Groups, Place, Tenant, Tenants, ip_link};
use crate::manage::Bmc;
use crate::rules::ParseError;
use crate::rules::words::{Fault, Word, mac, number, words};
use crate::vmdq::{Layout, Mirror, Mirrored, VIRTUAL_FUNCTIONS};

/// The tenants of `text`. `file` is the name of the file for messages.
///
/// # Errors
/// All errors of the file.
pub fn parse(file: &str, text: &str) -> Result<Tenants, Vec<ParseError>> {
    let mut tenants = Tenants { file: file.to_owned(), ..Tenants::default() };
    let mut errors = Vec::new();
    for (number, raw) in (1..).zip(text.lines()) {
        let words = words(raw);
        let Some(last) = words.last() else { continue };
        let end = last.col + last.text.chars().count() as u32;
        let mut line = Line { file, number, words: &words, next: 0, end, errors: &mut errors };
        // `None` means that an error was reported.
        let _ = line.statement(&mut tenants);
    }
    if errors.is_empty() {
        conflicts(&tenants, &mut errors);
    }
    if errors.is_empty() { Ok(tenants) } else { Err(errors) }
}

/// The parser of one line.
pub(super) struct Line<'a, 'e> {
    file: &'a str,
    pub(super) number: u32,
    words: &'a [Word<'a>],
    next: usize,
    end: u32,
    errors: &'e mut Vec<ParseError>,
}

impl<'a> Line<'a, '_> {
    pub(super) fn fault(&mut self, at: Word<'_>, what: impl Into<String>, fix: impl Into<String>) {
        let (file, line) = (self.file.to_owned(), self.number);
        let error = ParseError { file, line, col: at.col, what: what.into(), fix: fix.into() };
        self.errors.push(error);
    }

    pub(super) fn word(&mut self) -> Option<Word<'a>> {
        let word = self.words.get(self.next).copied();
        self.next += usize::from(word.is_some());
        word
    }

    pub(super) fn take(&mut self, text: &str) -> bool {
        let found = self.words.get(self.next).is_some_and(|word| word.text == text);
        self.next += usize::from(found);
        found
    }

    /// The word after `option`; an error if the line ends.
    pub(super) fn operand(&mut self, option: &str) -> Option<Word<'a>> {
        let word = self.word();
        if word.is_none() {
            let end = Word { text: "", col: self.end };
            self.fault(
                end,
                format!("`{option}` has no value"),
                "add a value, or remove the option",
            );
        }
        word
    }

    /// The value of `option`; an error if it cannot be read.
    fn value<T>(&mut self, option: &str, read: impl Fn(&str) -> Result<T, Fault>) -> Option<T> {
        let word = self.operand(option)?;
        match read(word.text) {
            Ok(value) => Some(value),
            Err(Fault { what, fix }) => {
                self.fault(word, what, fix);
                None
            }
        }
    }

    pub(super) fn number(&mut self, option: &str, max: u64) -> Option<u64> {
        self.value(option, |text| number(text, max))
    }

    pub(super) fn on(&mut self, option: &str) -> Option<bool> {
        self.value(option, |text| match text {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(Fault {
                what: format!("`{option}` is on or off, not `{text}`"),
                fix: format!("write `{option} on` or `{option} off`"),
            }),
        })
    }

    pub(super) fn mac(&mut self, option: &str) -> Option<[u8; 6]> {
        let value = self.value(option, mac)?;
        Some(std::array::from_fn(|i| (value >> (40 - 8 * i)) as u8))
    }

    /// A VLAN ID of 1 to 4094.
    fn vlan(&mut self, option: &str) -> Option<u16> {
        self.value(option, |text| match number(text, 4094)? {
            0 => Err(Fault {
                what: "VLAN 0 is no VLAN".to_owned(),
                fix: "use 1 to 4094, or `untagged on`".to_owned(),
            }),
            vid => Ok(vid as u16),
        })
    }

    /// One of the words in `choices`, which has what each stands for.
    fn one_of<T: Copy>(&mut self, option: &str, choices: &[(&str, T)]) -> Option<T> {
        self.value(option, |text| {
            let found = choices.iter().find(|(name, _)| *name == text);
            found.map(|(_, value)| *value).ok_or_else(|| Fault {
                what: format!("`{text}` is not a {option}"),
                fix: format!(
                    "use one of {}",
                    choices.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ")
                ),
            })
        })
    }

    fn statement(&mut self, tenants: &mut Tenants) -> Option<()> {
        let first = self.word()?;
        match first.text {
            "layout" => tenants.layout = Some(self.one_of("layout", &Layout::ALL)?),
            "replication" => tenants.no_replication = !self.on("replication")?,
            "loopback" => tenants.no_loopback = !self.on("loopback")?,
            "promiscuous" => tenants.promiscuous = self.on("promiscuous")?,
            "default" => {
                tenants.default_line = self.number;
                tenants.default = Some(match self.take("none") {
                    true => None,
                    false => Some(self.pool("default")?),
                });
            }
            "mirror" => self.mirror(tenants)?,
            "bmc" => tenants.bmc = Some(self.bmc()?),
            "tenant" => self.tenant(tenants)?,
            "ip" => ip_link::read(self, first, tenants)?,
            other => {
                self.fault(
                    first,
                    format!("`{other}` does not start a line"),
                    "start with tenant, `ip link set`, layout, default, mirror, bmc, replication, loopback or promiscuous",
                );
                return None;
            }
        }
        if let Some(extra) = self.word() {
            self.fault(extra, format!("unexpected word `{}`", extra.text), "remove it");
        }
        Some(())
    }

    /// `pool N` or `pf`-less number of a pool.
    fn pool(&mut self, option: &str) -> Option<u8> {
        let _ = self.take("pool");
        self.number(option, 63).map(|pool| pool as u8)
    }

    /// `mirror pool N|vlan V|uplink|downlink to pool N`
    fn mirror(&mut self, tenants: &mut Tenants) -> Option<()> {
        let kind = self.operand("mirror")?;
        let mut vlan = None;
        let what = match kind.text {
            "pool" => Mirrored::Pools(1 << self.number("mirror pool", 63)?),
            "vlan" => {
                vlan = Some(self.vlan("mirror vlan")?);
                Mirrored::Vlans(0)
            }
            "uplink" => Mirrored::Uplink,
            "downlink" => Mirrored::Downlink,
            other => {
                self.fault(
                    kind,
                    format!("`{other}` cannot be mirrored"),
                    "use one of pool, vlan, uplink, downlink",
                );
                return None;
            }
        };
        if !self.take("to") {
            let at = self.operand("mirror")?;
            self.fault(
                at,
                "a mirroring rule ends with `to pool N`",
                "write `mirror pool 1 to pool 9`",
            );
            return None;
        }
        let to = self.pool("to")?;
        match vlan {
            Some(vid) => tenants.mirror_vlans.push((vid, to, self.number)),
            None => tenants.mirrors.push(Mirror { to, what }),
        }
        Some(())
    }

    fn bmc(&mut self) -> Option<Bmc> {
        let mut bmc = Bmc::default();
        while let Some(option) = self.word() {
            match option.text {
                "mac" if bmc.macs.len() < 4 => bmc.macs.push(self.mac("mac")?),
                "vlan" if bmc.vlans.len() < 8 => bmc.vlans.push(self.vlan("vlan")?),
                "port" if bmc.ports.len() < 16 => {
                    bmc.ports.push(self.number("port", 0xffff)? as u16);
                }
                "arp" => bmc.arp = self.on("arp")?,
                "rmcp" => bmc.rmcp = self.on("rmcp")?,
                "broadcast" => bmc.broadcast = self.on("broadcast")?,
                "neighbors" => bmc.neighbors = self.on("neighbors")?,
                "exclusive" => bmc.exclusive = self.on("exclusive")?,
                "mac" | "vlan" | "port" => {
                    self.fault(
                        option,
                        "the adapter has 4 addresses, 8 VLANs and 16 ports for management",
                        "remove this one",
                    );
                    return None;
                }
                other => {
                    self.fault(
                        option,
                        format!("bmc has no option `{other}`"),
                        "use mac, vlan, port, arp, rmcp, broadcast, neighbors, exclusive",
                    );
                    return None;
                }
            }
        }
        Some(bmc)
    }

    /// `pool N`, `vf N` or `pf`.
    fn place(&mut self) -> Option<Place> {
        let word = self.operand("tenant NAME")?;
        match word.text {
            "pool" => self.number("pool", 63).map(|pool| Place::Pool(pool as u8)),
            "vf" => self.vf().map(Place::Vf),
            "pf" => Some(Place::Physical),
            other => {
                self.fault(
                    word,
                    format!("`{other}` is not a place"),
                    "write `tenant NAME pool N`, `tenant NAME vf N` or `tenant NAME pf`",
                );
                None
            }
        }
    }

    pub(super) fn vf(&mut self) -> Option<u8> {
        self.number("vf", u64::from(VIRTUAL_FUNCTIONS) - 1).map(|vf| vf as u8)
    }

    fn tenant(&mut self, tenants: &mut Tenants) -> Option<()> {
        let name = self.operand("tenant")?;
        let place = self.place()?;
        let number = self.number;
        let known = tenants.tenants.iter().position(|tenant| tenant.place == place);
        if let Some(before) = known.map(|at| &tenants.tenants[at])
            && before.is_declared
        {
            let fix = format!("remove it, or choose another place than `{}` has", before.name);
            self.fault(name, format!("line {} has this place already", before.line), fix);
            return None;
        }
        let at = known.unwrap_or(tenants.tenants.len());
        if known.is_none() {
            tenants.tenants.push(Tenant::new(name.text, place, number));
        }
        let tenant = &mut tenants.tenants[at];
        name.text.clone_into(&mut tenant.name);
        tenant.is_declared = true;
        while let Some(option) = self.word() {
            self.option(option, tenant)?;
        }
        Some(())
    }

    fn option(&mut self, option: Word<'a>, tenant: &mut Tenant) -> Option<()> {
        match option.text {
            "mac" => {
                let mac = self.mac("mac")?;
                if mac == [0xff; 6] || mac == [0; 6] {
                    self.fault(
                        option,
                        "this is no address of a station or group",
                        "remove it; `broadcast on` is the default",
                    );
                    return None;
                }
                match mac[0] & 1 {
                    0 => tenant.macs.push(mac),
                    _ => tenant.groups.push(mac),
                }
            }
            "vlan" => tenant.vlans.push(self.vlan("vlan")?),
            "port-vlan" => tenant.port_vlan = Some(self.vlan("port-vlan")?),
            "queues" => {
                tenant.queues = Some(self.one_of("queues", &[("1", 1), ("2", 2), ("4", 4)])?);
            }
            "rate" => tenant.rate = Some(self.rate("rate")?),
            "spoofchk" => tenant.spoofchk = self.on("spoofchk")?,
            "trust" => tenant.trust = self.on("trust")?,
            "broadcast" => tenant.broadcast = self.on("broadcast")?,
            "promiscuous" => tenant.promiscuous = self.on("promiscuous")?,
            "untagged" => tenant.untagged = Some(self.on("untagged")?),
            "multicast" => {
                let choices =
                    [("none", Groups::None), ("listed", Groups::Listed), ("all", Groups::All)];
                tenant.multicast = self.one_of("multicast", &choices)?;
            }
            other => {
                self.fault(
                    option,
                    format!("a tenant has no option `{other}`"),
                    "use mac, vlan, port-vlan, queues, rate, spoofchk, trust, broadcast, multicast, promiscuous, untagged",
                );
                return None;
            }
        }
        Some(())
    }

    /// A rate in Mbit/s. ixgbe refuses rates of at most 10 (`ixgbe_ndo_set_vf_bw`); 0 removes the limit.
    pub(super) fn rate(&mut self, option: &str) -> Option<u32> {
        self.value(option, |text| match number(text, 10_000)? as u32 {
            rate @ 1..=10 => Err(Fault {
                what: format!("ixgbe refuses a rate of {rate} Mbit/s (-EINVAL)"),
                fix: "use 11 to the speed of the link, or 0 for no limit".to_owned(),
            }),
            rate => Ok(rate),
        })
    }
}

/// What no line says alone: two tenants with one pool, or with one address and a common VLAN.
fn conflicts(tenants: &Tenants, errors: &mut Vec<ParseError>) {
    let mut error = |line, what: String, fix: &str| {
        errors.push(ParseError {
            file: tenants.file.clone(),
            line,
            col: 1,
            what,
            fix: fix.to_owned(),
        });
    };
    let mut pools = std::collections::HashMap::new();
    let mut macs = std::collections::HashMap::<[u8; 6], Vec<&Tenant>>::new();
    for tenant in &tenants.tenants {
        let pool = tenants.pool(tenant.place);
        if let Some(before) = pools.insert(pool, &tenant.name) {
            let what = format!("{} and {before} both have pool {pool}", tenant.name);
            error(
                tenant.line,
                what,
                "virtual function N has pool N, and pf the first pool after them; choose another pool",
            );
        }
        for mac in &tenant.macs {
            let owners = macs.entry(*mac).or_default();
            if let Some(before) = owners.iter().find(|before| overlap(before, tenant)) {
                let what = format!(
                    "{} and {} have the same address and a VLAN in common",
                    before.name, tenant.name
                );
                error(tenant.line, what, "give each its own address, or each its own VLANs");
            }
            owners.push(tenant);
        }
    }
}

/// Whether a frame to a common address could be for both.
fn overlap(one: &Tenant, other: &Tenant) -> bool {
    let vlans = |tenant: &Tenant| -> Vec<u16> {
        tenant.vlans.iter().copied().chain(tenant.port_vlan.map(|tci| tci & 0xfff)).collect()
    };
    let untagged = |tenant: &Tenant| tenant.untagged.unwrap_or(tenant.port_vlan.is_none());
    let (one_vlans, other_vlans) = (vlans(one), vlans(other));
    let common = one_vlans.iter().any(|vid| other_vlans.contains(vid));
    common || (untagged(one) && untagged(other))
}
