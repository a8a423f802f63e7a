//! Every key is in a class, and every difference is found and named.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use serde::de::value::{BorrowedStrDeserializer, Error, U64Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use proptest::prelude::*;

use super::*;

/// Reads a configuration as the reader would read a text, follows one path of keys, and notes the keys that the reader
/// knows at its end.
struct Tracer<'a> {
    path: &'a [String],
    found: &'a RefCell<Vec<String>>,
    is_over: &'a Cell<bool>,
}

/// The end of a trace.
fn over<T>() -> Result<T, Error> {
    Err(Error::custom("traced"))
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        over() // a value without keys that the reader knows
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Inside { tracer: self, fields: Vec::new() })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // The value of a `Spanned` comes last, behind its place.
        if fields.first().is_some_and(|field| field.starts_with("$__")) {
            return visitor.visit_map(Inside { tracer: self, fields: fields.to_vec() });
        }
        match self.path {
            [] => {
                let known = fields.iter().map(|field| (*field).to_owned());
                self.found.borrow_mut().extend(known);
                self.is_over.set(true);
                over()
            }
            [next, rest @ ..] => {
                let field = fields.iter().find(|field| *field == next).unwrap();
                let tracer = Tracer { path: rest, ..self };
                visitor.visit_map(Inside { tracer, fields: vec![field] })
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct tuple tuple_struct map enum identifier ignored_any
    }
}

struct Inside<'a> {
    tracer: Tracer<'a>,
    fields: Vec<&'static str>,
}

impl Inside<'_> {
    fn again(&self) -> Tracer<'_> {
        let Tracer { path, found, is_over } = self.tracer;
        Tracer { path, found, is_over }
    }
}

impl<'de> SeqAccess<'de> for Inside<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        seed.deserialize(self.again()).map(Some)
    }
}

impl<'de> MapAccess<'de> for Inside<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(field) = self.fields.first() else { return Ok(None) };
        let name = BorrowedStrDeserializer::<Error>::new(field);
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let field = self.fields.remove(0);
        if field.starts_with("$__") && !field.ends_with("value") {
            let place: U64Deserializer<Error> = 0_u64.into_deserializer();
            return seed.deserialize(place);
        }
        seed.deserialize(self.again())
    }
}

/// The keys that the reader knows below `path`.
fn below(path: &[String]) -> Vec<String> {
    let (found, is_over) = (RefCell::default(), Cell::new(false));
    let tracer = Tracer { path, found: &found, is_over: &is_over };
    assert!(Config::deserialize(tracer).is_err(), "a trace ends early");
    found.into_inner()
}

/// All paths of keys that the reader knows.
fn known() -> BTreeSet<String> {
    let (mut all, mut open) = (BTreeSet::new(), vec![Vec::new()]);
    while let Some(path) = open.pop() {
        for key in below(&path) {
            let inner: Vec<String> = path.iter().cloned().chain([key]).collect();
            all.insert(inner.join("."));
            open.push(inner);
        }
    }
    all
}

#[test]
fn every_key_belongs_to_a_class() {
    let (known, listed) = (known(), keys::all().collect::<Vec<_>>());
    for key in ["yard.cores", "port.offload.tso", "balance.announce.after_ms", "cluster.exit.port"]
    {
        assert!(known.contains(key), "the trace does not find {key}: {known:?}");
    }
    assert!(known.len() > 250, "{}", known.len());
    let mut names: Vec<_> = listed.iter().map(|(key, _)| *key).collect();
    for name in &names {
        assert!(known.contains(*name), "no such key: {name}");
    }
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "a key is in two classes");
    for key in &known {
        let above = key.match_indices('.').map(|(at, _)| &key[..at]);
        let classes = above.chain([key.as_str()]).filter(|path| keys::how(path).is_some()).count();
        // A key with keys of its own may leave its class to them.
        let has_inner = known.iter().any(|other| other.starts_with(&format!("{key}.")));
        assert!(classes > 0 || has_inner, "'{key}' is in no class: add it to change/keys.rs");
        assert!(classes < 2, "'{key}' and a key above it are in classes");
    }
}

/// A balancer between two interfaces.
const TEXT: &str = r#"
[yard]
cores = 1
seed = 77
[[port]]
name = "west"
kind = "af_packet"
interface = "eth0"
[[port]]
name = "east"
kind = "af_packet"
interface = "eth1"
[[queue]]
name = "q"
order = "direct"
consumers = [0]
[work]
kind = "balance"
[balance]
seed = 99
connections = 1000
clients = { port = "west", next_hop = "02:00:00:00:00:01" }
[[service]]
name = "web"
vip = "192.0.2.1"
proto = "tcp"
port = 80
mode = "dnat"
[[service.backend]]
name = "a"
addr = "10.0.1.1"
exit = { port = "east", next_hop = "02:00:00:00:00:02" }
"#;

fn parse(text: &str) -> Config {
    Config::parse("y.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// The changes by these replacements.
fn changed(pairs: &[(&str, &str)]) -> Changes {
    let mut text = TEXT.to_owned();
    for (from, to) in pairs {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    parse(TEXT).changes(&parse(&text))
}

fn said(changes: &Changes) -> Vec<String> {
    changes.keys.iter().map(Change::to_string).collect()
}

#[test]
fn equal_values_are_no_change() {
    for (from, to) in [
        ("cores = 1", "cores = 1 # the same"),
        ("[[queue]]", "[switch_]\n[[queue]]"),
        ("cores = 1", "cores = 1\nidle = \"sleep\""),
        ("connections = 1000", "connections = 1000\nopen_ms = 300000"),
    ] {
        let to = to.replace("[switch_]\n", "");
        let changes = changed(&[(from, &to)]);
        let of_default = to.contains("open_ms"); // whatever the default is
        assert!(of_default || changes.needs() == Needs::Nothing, "{to}: {changes:?}");
    }
    assert_eq!(changed(&[]), Changes::default());
    // A section that has only defaults.
    let route = TEXT.replace("[balance]\nseed", "[balance] # no keys\nseed");
    assert_eq!(parse(TEXT).changes(&parse(&route)), Changes::default());
}

#[test]
fn each_change_is_named_with_its_values_and_class() {
    let one = |from: &str, to: &str| {
        let changes = changed(&[(from, to)]);
        assert_eq!(changes.keys.len(), 1, "{changes:?}");
        (said(&changes).remove(0), changes.needs())
    };
    let is = |text: &str, needs: Needs| (text.to_owned(), needs);
    assert_eq!(
        one("connections = 1000", "connections = 2000"),
        is("'connections' in [balance] (1000 to 2000)", Needs::TakeOver)
    );
    assert_eq!(
        one("connections = 1000", "connections = 1000\nclosing_ms = 7"),
        is("'closing_ms' in [balance] (30000 to 7)", Needs::Reload)
    );
    assert_eq!(one("cores = 1", "cores = 2"), is("'cores' in [yard] (1 to 2)", Needs::Restart));
    assert_eq!(
        one("cores = 1", "cores = 1\nmetrics = \"9464\""),
        is("'metrics' in [yard] (not set to \"9464\")", Needs::Reload)
    );
    assert_eq!(
        one("interface = \"eth1\"", "interface = \"eth2\""),
        is("'interface' in [[port]] 'east' (\"eth1\" to \"eth2\")", Needs::TakeOver)
    );
    assert_eq!(
        one("addr = \"10.0.1.1\"", "addr = \"10.0.1.9\""),
        is("'addr' in [[service]] 'web' backend 'a' (\"10.0.1.1\" to \"10.0.1.9\")", Needs::Reload)
    );
    // What nobody may read in a log.
    assert_eq!(one("seed = 77", "seed = 78"), is("'seed' in [yard] (a secret)", Needs::TakeOver));
    assert_eq!(
        one("seed = 99", "seed = 98"),
        is("'seed' in [balance] (a secret)", Needs::TakeOver)
    );
}

#[test]
fn an_announcement_that_begins_needs_a_process_and_its_times_do_not() {
    let with = |after: u32| format!("connections = 1000\nannounce = {{ after_ms = {after} }}");
    let text = |after| parse(&TEXT.replace("connections = 1000", &with(after)));
    let changes = text(5).changes(&text(6));
    assert_eq!(said(&changes), ["'announce.after_ms' in [balance] (5 to 6)"]);
    assert_eq!(changes.needs(), Needs::Reload);
    assert_eq!(parse(TEXT).changes(&text(5)).needs(), Needs::TakeOver);
}

#[test]
fn ports_come_and_go_by_a_process_that_takes_over() {
    let third = "[[port]]\nname = \"south\"\nkind = \"tap\"\ninterface = \"fy0\"\n[[queue]]";
    let changes = changed(&[("[[queue]]", third)]);
    let names = "'name' in [[port]] ([\"west\",\"east\"] to [\"west\",\"east\",\"south\"])";
    assert_eq!((said(&changes), changes.needs()), (vec![names.to_owned()], Needs::TakeOver));
    let (what, fix) = changes.refusal("CMD").unwrap();
    assert_eq!(what, format!("a reload cannot change {names}"));
    assert_eq!(fix, "run 'CMD' to apply them without losing a frame");
}

#[test]
fn what_a_hand_over_cannot_do_is_said_before_anything_is_changed() {
    let refused = |pairs: &[(&str, &str)]| {
        let changes = changed(pairs);
        assert_eq!(changes.needs(), Needs::Restart, "{changes:?}");
        changes.refusal("CMD").unwrap().1
    };
    // Two processes would receive the same frames.
    let fix =
        refused(&[("name = \"west\"", "name = \"wild\""), ("port = \"west\"", "port = \"wild\"")]);
    assert!(fix.contains("interface 'eth0' of port 'wild' is in use by port 'west'"), "{fix}");
    let fix = refused(&[
        ("interface = \"eth0\"", "interface = \"eth1\""),
        ("interface = \"eth1\"\n[[queue]]", "interface = \"eth0\"\n[[queue]]"),
    ]);
    assert!(fix.contains("is in use by port"), "{fix}");
    let fix = refused(&[("interface = \"eth0\"", "interface = \"eth0\"\nring_frames = 512")]);
    assert!(
        fix.contains("a process that takes over cannot change 'ring_frames' in [[port]] 'west'"),
        "{fix}"
    );
    // What is pinned bypasses queueing disciplines, which is said to the kernel when the port is opened.
    let fix = refused(&[("cores = 1", "cores = 1\npin = [0]")]);
    assert!(fix.contains("port 'west' is open with another 'pin'"), "{fix}");
    let local = |all: &str| parse(&TEXT.replace("connections = 1000", &format!("local = [{all}]")));
    let old = local("\"10.9.0.1\", \"10.9.0.2\"");
    let needs = |all: &str| old.changes(&local(all)).needs();
    assert_eq!(needs("\"10.9.0.1\", \"10.9.0.2\", \"10.9.0.3\""), Needs::TakeOver);
    assert_eq!(needs("\"10.9.0.2\", \"10.9.0.1\""), Needs::Restart);
    assert_eq!(needs("\"10.9.0.1\""), Needs::Restart);
    let fix = refused(&[("cores = 1", "cores = 2"), ("connections = 1000", "connections = 9")]);
    assert!(fix.contains("cannot change 'cores' in [yard]"), "{fix}");
}

#[test]
fn a_port_goes_on_only_with_the_interface_that_it_had() {
    let (old, new) = (parse(TEXT), parse(&TEXT.replace("eth1", "eth2")));
    let (open, next) = (old.opened(), new.opened());
    assert_eq!(new.unfit(&open), Ok(()));
    let stays = |at: usize| open[at].is_continued_by(&next[at]);
    assert_eq!((stays(0), stays(1)), (true, false));
    let xdp = TEXT.replace("\"af_packet\"", "\"af_xdp\"\nmatch = [\"all\"]");
    let error = parse(&xdp.replace("eth1", "eth2")).unfit(&parse(&xdp).opened()).unwrap_err();
    assert!(error.contains("port 'east' does not stay"), "{error}");
}

proptest! {
    /// For any two values of some keys: what is found is what differs, and a reload accepts exactly what is live.
    #[test]
    fn what_differs_is_found_and_nothing_else(
        old in (1_u64..3, 1_u64..3, 1_u64..3, 1_u64..3),
        new in (1_u64..3, 1_u64..3, 1_u64..3, 1_u64..3),
    ) {
        let text = |(open, full, entries, idle): (u64, u64, u64, u64)| {
            let full = ["stateless", "drop"][full as usize - 1];
            let idle = ["sleep", "busy"][idle as usize - 1];
            let keys = format!("connections = {entries}000\nopen_ms = {open}\nfull = \"{full}\"");
            let text = TEXT.replace("connections = 1000", &keys);
            parse(&text.replace("cores = 1", &format!("cores = 1\nidle = \"{idle}\"")))
        };
        let (a, b) = (text(old), text(new));
        let changes = a.changes(&b);
        let found: BTreeSet<_> = changes.keys.iter().map(|one| one.key.as_str()).collect();
        let all = [
            ("'open_ms' in [balance]", old.0 != new.0),
            ("'full' in [balance]", old.1 != new.1),
            ("'connections' in [balance]", old.2 != new.2),
            ("'idle' in [yard]", old.3 != new.3),
        ];
        let differ: BTreeSet<_> = all.iter().filter(|(_, is)| *is).map(|(key, _)| *key).collect();
        prop_assert_eq!(&found, &differ);
        let reload = a.reload(&b);
        let is_live = old.2 == new.2 && old.3 == new.3;
        prop_assert_eq!(reload.is_ok(), is_live);
        if let Ok(plan) = reload {
            prop_assert_eq!(plan.settings.is_some(), old.0 != new.0 || old.1 != new.1);
        }
    }
}
