//! Every key is in a class, and every difference is found and named.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use serde::de::value::{BorrowedStrDeserializer, Error, U64Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

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
