//! Table features, eviction and vacancy events: table-mod and table features messages (1.3.5,
//! sections 7.3.4.1 and 7.3.5.5; 1.4.0, sections 5.4 and 7.3.4.1).
//!
//! A controller may reduce the features of a table; then flow entries that need more are refused. A
//! table that was reduced stays so until a controller requests the complete features again.

use super::peers::TABLE_STATUS;
use super::table::Rule;
use super::{Agent, Ask, Out, memory};
use crate::act::Instruction;
use crate::flow::FlowMod;
use crate::multipart::Reply;
use crate::oxm::Field;
use crate::port::{Property, Text};
use crate::problem::{self, Problem};
use crate::table::{self, Feature, TableDesc, TableFeatures, TableMod, TableReason, TableStatus};
use crate::{Message, Version};

/// `OFPTC_EVICTION` and `OFPTC_VACANCY_EVENTS`.
const EVICTION: u32 = 4;
const VACANCY: u32 = 8;
/// `OFPTMPT_EVICTION` and `OFPTMPT_VACANCY`.
const EVICTION_PROPERTY: u16 = 2;
const VACANCY_PROPERTY: u16 = 3;
/// `OFPTMPEF_IMPORTANCE`: eviction is determined by importance.
const BY_IMPORTANCE: u32 = 2;

/// The numbers of all actions of 1.3.
pub(super) const ACTIONS: [u16; 16] =
    [0, 11, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27];
const INSTRUCTIONS: [u16; 6] = [1, 2, 3, 4, 5, 6];

impl Agent {
    pub(super) fn table_mod(
        &mut self,
        ask: Ask,
        m: &TableMod,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        let all = m.table == table::ALL;
        if !all && usize::from(m.table) >= self.tables.len() {
            return Err(problem::TABLE_BAD_TABLE);
        }
        // Before 1.4 the configuration has only two bits, which are deprecated.
        let known = if ask.version == Version::V14 { EVICTION | VACANCY } else { 3 };
        if m.config & !known != 0 {
            return Err(problem::TABLE_BAD_CONFIG);
        }
        let (mut eviction, mut vacancy) = (None, None);
        for Property { kind, data } in &m.properties {
            match (*kind, data.as_slice()) {
                (EVICTION_PROPERTY, [a, b, c, d]) => {
                    eviction = Some(u32::from_be_bytes([*a, *b, *c, *d]));
                }
                (VACANCY_PROPERTY, [down, up, _, _]) if down <= up && *up <= 100 => {
                    vacancy = Some((*down, *up));
                }
                (VACANCY_PROPERTY, [..]) if data.len() == 4 => {
                    return Err(problem::PROPERTY_BAD_VALUE);
                }
                (EVICTION_PROPERTY | VACANCY_PROPERTY, _) => return Err(problem::PROPERTY_BAD_LEN),
                (0xffff, _) => return Err(problem::PROPERTY_BAD_EXPERIMENTER),
                _ => return Err(problem::PROPERTY_BAD_TYPE),
            }
        }
        // Eviction is determined by importance; lifetime and other criteria are not implemented.
        if eviction.is_some_and(|flags| flags & !BY_IMPORTANCE != 0) {
            return Err(problem::PROPERTY_BAD_VALUE);
        }
        for number in 0..self.tables.len() {
            if !all && number != usize::from(m.table) {
                continue;
            }
            let table = &mut self.tables[number];
            table.settings.config = m.config;
            table.settings.eviction = eviction.unwrap_or(table.settings.eviction);
            table.settings.vacancy = vacancy.unwrap_or(table.settings.vacancy);
            table.settings.low = false;
            table.evicts(m.config & EVICTION != 0);
            self.vacancy(number as u8, out);
        }
        Ok(())
    }

    /// The free space of a table, in percent.
    fn room(&self, table: u8) -> u8 {
        let capacity = self.limits.flows.max(1);
        let used = self.tables[usize::from(table)].len().min(capacity);
        ((capacity - used) * 100 / capacity) as u8
    }

    /// Sends a vacancy event when the free space of a table crosses a limit.
    pub(super) fn vacancy(&mut self, number: u8, out: &mut Vec<Out>) {
        let settings = &self.tables[usize::from(number)].settings;
        if settings.config & VACANCY == 0 {
            return;
        }
        let (room, (down, up), low) = (self.room(number), settings.vacancy, settings.low);
        let reason = match low {
            false if room < down => TableReason::VacancyDown,
            true if room > up => TableReason::VacancyUp,
            _ => return,
        };
        self.tables[usize::from(number)].settings.low = !low;
        let word = TableStatus { reason, table: self.desc_of(number) };
        for (&to, peer) in &self.peers {
            if peer.version == Version::V14 && peer.wants(TABLE_STATUS, reason as u32) {
                let message = Message::TableStatus(word.clone());
                out.push(Out { to, xid: 0, message, after: self.changes, counts: None });
            }
        }
    }

    fn desc_of(&self, number: u8) -> TableDesc {
        let settings = &self.tables[usize::from(number)].settings;
        let mut properties = Vec::new();
        if settings.config & EVICTION != 0 {
            let data = BY_IMPORTANCE.to_be_bytes().to_vec();
            properties.push(Property { kind: EVICTION_PROPERTY, data });
        }
        if settings.config & VACANCY != 0 {
            let (down, up) = settings.vacancy;
            let data = vec![down, up, self.room(number), 0];
            properties.push(Property { kind: VACANCY_PROPERTY, data });
        }
        TableDesc { table: number, config: settings.config, properties }
    }

    pub(super) fn table_desc(&self) -> Vec<TableDesc> {
        (0..self.tables.len()).map(|number| self.desc_of(number as u8)).collect()
    }

    /// The complete features of a table.
    fn whole(&self, number: u8) -> TableFeatures {
        let fields = || Field::ALL.iter().filter(|field| **field != Field::PbbUca);
        let experimenter = |field: &Field| {
            let onf = matches!(field, Field::TcpFlags | Field::ActsetOutput);
            if onf { problem::ONF } else { 0 }
        };
        let list = |masks: bool, set: bool| -> Vec<(u32, u32)> {
            let fields = fields().filter(|field| !set || field.settable());
            let header =
                |field: &Field| (field.header(masks && field.maskable()), experimenter(field));
            fields.map(header).collect()
        };
        let plain = |numbers: &[u16]| numbers.iter().map(|number| (*number, 0)).collect();
        let last = usize::from(number) + 1 >= self.tables.len();
        let skip = if last { INSTRUCTIONS.split_at(1).1 } else { &INSTRUCTIONS[..] };
        let next = (number.saturating_add(1)..self.tables.len() as u8).collect();
        TableFeatures {
            table: number,
            name: Text::from(format!("table{number}").as_str()),
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            config: if self.peers.values().any(|peer| peer.version == Version::V14) {
                EVICTION | VACANCY
            } else {
                0
            },
            max_entries: self.limits.flows.min(u32::MAX as usize) as u32,
            properties: vec![
                Feature::Instructions { kind: 0, list: plain(skip) },
                Feature::Tables { kind: 2, list: next },
                Feature::Actions { kind: 4, list: plain(&ACTIONS) },
                Feature::Actions { kind: 6, list: plain(&ACTIONS) },
                Feature::Fields { kind: 8, list: list(true, false) },
                Feature::Fields { kind: 10, list: list(false, false) },
                Feature::Fields { kind: 12, list: list(false, true) },
                Feature::Fields { kind: 14, list: list(false, true) },
            ],
        }
    }

    /// An empty request reads the features; another one sets them.
    pub(super) fn table_features(
        &mut self,
        ask: Ask,
        wanted: &[TableFeatures],
        out: &mut Vec<Out>,
    ) -> Result<Reply, Problem> {
        if !wanted.is_empty() {
            self.writes(ask)?;
            for (at, table) in wanted.iter().enumerate() {
                let number = usize::from(table.table);
                let again = wanted[..at].iter().any(|other| other.table == table.table);
                if number >= self.tables.len() || again {
                    return Err(problem::FEATURES_BAD_TABLE);
                }
                cut(table, &self.whole(table.table), ask.version)?;
            }
            let old = |table: &TableFeatures| {
                let features = self.tables[usize::from(table.table)].settings.features.as_deref();
                features.map_or(0, memory::of_features)
            };
            let grows =
                |table: &TableFeatures| memory::of_features(table).saturating_sub(old(table));
            if !self.fits(wanted.iter().map(grows).sum()) {
                return Err(problem::FEATURES_OUT_OF_MEMORY);
            }
            for table in wanted {
                self.set_features(ask, table, out);
            }
        }
        let features = |number: usize| match &self.tables[number].settings.features {
            Some(cut) => (**cut).clone(),
            None => self.whole(number as u8),
        };
        let v14 = ask.version == Version::V14;
        let said = |number| {
            let features: TableFeatures = features(number);
            TableFeatures { config: if v14 { features.config } else { 0 }, ..features }
        };
        Ok(Reply::TableFeatures((0..self.tables.len()).map(said).collect()))
    }

    /// Gives a table other features. Its flow entries end, without a flow-removed message (1.4.0,
    /// section 7.3.5.6).
    fn set_features(&mut self, ask: Ask, features: &TableFeatures, out: &mut Vec<Out>) {
        let number = features.table;
        // The size of a table is read-only.
        let max_entries = self.limits.flows.min(u32::MAX as usize) as u32;
        // Versions before 1.4 do not say whether the table can evict flows.
        let new = ask.version == Version::V14;
        let config = if new { features.config } else { self.whole(number).config };
        let features = TableFeatures { max_entries, config, ..features.clone() };
        let settings = &mut self.tables[usize::from(number)].settings;
        let old = settings.features.replace(Box::new(features.clone()));
        if features == old.map_or_else(|| self.whole(number), |old| *old) {
            return;
        }
        let flows = self.tables[usize::from(number)].iter();
        let gone: Vec<Rule> = flows.map(|flow| Rule::of(&flow.entry)).collect();
        for rule in &gone {
            self.discard(number, rule, Some((ask.main, ask.xid)), out);
        }
        self.vacancy(number, out);
    }

    /// Whether a table with reduced features supports a flow entry.
    pub(super) fn check_features(&self, m: &FlowMod) -> Result<(), Problem> {
        let features = &self.tables[usize::from(m.table)].settings.features;
        let Some(cut) = features else { return Ok(()) };
        let empty = m.matching.0.is_empty() && m.priority == 0;
        // A table-miss entry has feature lists of its own; if there are none, the general lists
        // apply.
        let kind = |kind: u16| {
            let own = kind + 1;
            let has = |property: &&Feature| property.kind() == own;
            if empty && cut.properties.iter().any(|p| has(&p)) { own } else { kind }
        };
        let fields = |kind: u16, field: Field| {
            cut.properties.iter().any(|property| match property {
                Feature::Fields { kind: found, list } if *found == kind => {
                    list.iter().any(|(header, _)| header >> 9 == field.header(false) >> 9)
                }
                _ => false,
            })
        };
        if m.matching.0.iter().any(|oxm| !fields(8, oxm.field)) {
            return Err(problem::MATCH_BAD_FIELD);
        }
        let has = |kind: u16, wanted: u16| {
            cut.properties.iter().any(|property| match property {
                Feature::Instructions { kind: found, list }
                | Feature::Actions { kind: found, list } => {
                    *found == kind && list.iter().any(|(number, _)| *number == wanted)
                }
                Feature::Tables { kind: found, list } => {
                    *found == kind && list.iter().any(|table| u16::from(*table) == wanted)
                }
                _ => false,
            })
        };
        for instruction in &m.instructions {
            if !has(kind(0), instruction.number()) {
                return Err(problem::INSTRUCTION_UNSUPPORTED);
            }
            let (of, sets, list) = match instruction {
                Instruction::GotoTable(to) if !has(kind(2), (*to).into()) => {
                    return Err(problem::INSTRUCTION_BAD_TABLE);
                }
                Instruction::WriteActions(list) => (4, 12, list),
                Instruction::ApplyActions(list) => (6, 14, list),
                _ => continue,
            };
            for action in list {
                let known = action.number(Version::V13).is_none_or(|number| has(kind(of), number));
                let sets = match action {
                    crate::act::Action::SetField(oxm) => fields(kind(sets), oxm.field),
                    _ => true,
                };
                if !known || !sets {
                    return Err(problem::ACTION_BAD_TYPE);
                }
            }
        }
        Ok(())
    }
}

/// Whether `wanted` is a subset of `whole`. A list for table misses must be a subset of the general
/// list.
fn cut(wanted: &TableFeatures, whole: &TableFeatures, version: Version) -> Result<(), Problem> {
    let metadata = wanted.metadata_match | wanted.metadata_write;
    if metadata & !(whole.metadata_match & whole.metadata_write) != 0 {
        return Err(problem::FEATURES_BAD_METADATA);
    }
    let all = |kind: u16| whole.properties.iter().find(move |one| one.kind() == kind);
    for (at, property) in wanted.properties.iter().enumerate() {
        let kind = property.kind();
        if wanted.properties[..at].iter().any(|other| other.kind() == kind) {
            // 1.3 has no errors for properties.
            let new = version == Version::V14;
            return Err(if new { problem::PROPERTY_DUPLICATE } else { problem::FEATURES_EPERM });
        }
        let usual = if kind % 2 == 1 { kind - 1 } else { kind };
        let within = match (property, all(usual)) {
            (Feature::Instructions { list, .. }, Some(Feature::Instructions { list: all, .. }))
            | (Feature::Actions { list, .. }, Some(Feature::Actions { list: all, .. })) => {
                list.iter().all(|one| all.contains(one))
            }
            (Feature::Tables { list, .. }, Some(Feature::Tables { list: all, .. })) => {
                list.iter().all(|one| all.contains(one))
            }
            (Feature::Fields { list, .. }, Some(Feature::Fields { list: all, .. })) => {
                list.iter().all(|(header, _)| all.iter().any(|(one, _)| one >> 9 == header >> 9))
            }
            _ => false,
        };
        if !within {
            return Err(problem::FEATURES_EPERM);
        }
    }
    Ok(())
}
