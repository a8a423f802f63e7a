//! IMIX genomes (RFC 6985): a sequence of frame sizes written in letters.
//!
//! `a`=64 `b`=128 `c`=256 `d`=512 `e`=1024 `f`=1280 `g`=1518 `h`=2112 `i`=9000 `j`=16000. A number
//! before a letter repeats it (the run-length form of section 4). Sizes and counts, such as
//! `64x7+594x4+1518`, are accepted too; the capital letters of the standard are not. Documents of
//! earlier versions have commas in place of `+`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const LETTERS: [(char, u16); 10] = [
    ('a', 64),
    ('b', 128),
    ('c', 256),
    ('d', 512),
    ('e', 1024),
    ('f', 1280),
    ('g', 1518),
    ('h', 2112),
    ('i', 9000),
    ('j', 16_000),
];

/// The maximum number of sizes: the standard requires fewer than 100, run-length forms allow more.
const LONGEST: usize = 1024;

/// A sequence of frame sizes, repeated.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Genome(Vec<u16>);

/// A text that is not a sequence of frame sizes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' is not a sequence of frame sizes; write a size (64 to 16000), sizes and counts such \
     as 64x7+594x4+1518, letters of RFC 6985 such as aaafg, or imix, imix-csit"
)]
pub struct BadGenome(String);

impl Genome {
    /// A sequence of one size, limited to 64 to 16,000 bytes.
    #[must_use]
    pub fn fixed(size: u16) -> Self {
        Self(vec![size.clamp(64, 16_000)])
    }

    /// These sizes in this order; `None` unless there are 1 to 1,024 sizes from 64 to 16,000 bytes.
    #[must_use]
    pub fn of(sizes: Vec<u16>) -> Option<Self> {
        let fits = (1..=LONGEST).contains(&sizes.len())
            && sizes.iter().all(|size| (64..=16_000).contains(size));
        fits.then_some(Self(sizes))
    }

    /// Simple IMIX: IP packets of 40, 576 and 1500 bytes in the ratio 7 : 4 : 1.
    #[must_use]
    pub fn imix() -> Self {
        Self([vec![64; 7], vec![594; 4], vec![1518]].concat())
    }

    /// The IMIX of CSIT and `TRex`: 28 frames of 64 bytes, 16 of 570, 4 of 1518.
    #[must_use]
    pub fn imix_csit() -> Self {
        Self([vec![64; 28], vec![570; 16], vec![1518; 4]].concat())
    }

    /// The sizes in bytes with FCS; at least one.
    #[must_use]
    pub fn sizes(&self) -> &[u16] {
        &self.0
    }

    /// The size, if all frames have the same size.
    #[must_use]
    pub fn single(&self) -> Option<u16> {
        let first = *self.0.first()?;
        self.0.iter().all(|&size| size == first).then_some(first)
    }

    /// The runs of equal sizes, with their lengths.
    fn runs(&self) -> Vec<(u16, usize)> {
        let mut runs: Vec<(u16, usize)> = Vec::new();
        for &size in &self.0 {
            match runs.last_mut() {
                Some((last, count)) if *last == size => *count += 1,
                _ => runs.push((size, 1)),
            }
        }
        runs
    }
}

/// Writes the form `64x7+594x4+1518`, which [`Genome::from_str`] reads.
impl fmt::Display for Genome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (size, count)) in self.runs().into_iter().enumerate() {
            let plus = if at > 0 { "+" } else { "" };
            write!(out, "{plus}{size}")?;
            if count > 1 {
                write!(out, "x{count}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Genome {
    type Err = BadGenome;

    fn from_str(text: &str) -> Result<Self, BadGenome> {
        let bad = || BadGenome(text.into());
        match text {
            "imix" => return Ok(Self::imix()),
            "imix-csit" => return Ok(Self::imix_csit()),
            _ => {}
        }
        let sizes = if text.starts_with(|c: char| c.is_ascii_digit()) && !text.ends_with(letter) {
            listed(text)
        } else {
            lettered(text)
        };
        sizes.and_then(Self::of).ok_or_else(bad)
    }
}

fn letter(c: char) -> bool {
    LETTERS.iter().any(|(known, _)| *known == c)
}

/// `64x7+594x4+1518`.
fn listed(text: &str) -> Option<Vec<u16>> {
    let mut sizes = Vec::new();
    for part in text.split(['+', ',']) {
        let (size, count) = part.split_once('x').unwrap_or((part, "1"));
        let (size, count) = (size.parse::<u16>().ok()?, count.parse::<usize>().ok()?);
        if count > LONGEST - sizes.len() {
            return None;
        }
        sizes.extend(std::iter::repeat_n(size, count));
    }
    Some(sizes)
}

/// `aaafg`, `3afg`.
fn lettered(text: &str) -> Option<Vec<u16>> {
    let (mut sizes, mut count) = (Vec::new(), None);
    for c in text.chars() {
        if let Some(digit) = c.to_digit(10) {
            count = Some(count.unwrap_or(0_usize).checked_mul(10)?.checked_add(digit as usize)?);
            continue;
        }
        let size = LETTERS.iter().find(|(known, _)| *known == c)?.1;
        let run = count.take().unwrap_or(1);
        if run > LONGEST - sizes.len() {
            return None;
        }
        sizes.extend(std::iter::repeat_n(size, run));
    }
    count.is_none().then_some(sizes)
}

impl TryFrom<String> for Genome {
    type Error = BadGenome;

    fn try_from(text: String) -> Result<Self, BadGenome> {
        text.parse()
    }
}

impl From<Genome> for String {
    fn from(genome: Genome) -> Self {
        genome.to_string()
    }
}
