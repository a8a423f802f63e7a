//! Test data outside the repository, and a small random number generator.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::net::IpAddr;
use std::path::PathBuf;

use flowyard_frame::{FlowKey, Rng};

/// The rows of a CSV file of `../shared/vectors`, by column name; `None`, said aloud, without it.
pub fn vectors(name: &str) -> Option<Vec<Row>> {
    let shared = std::env::var_os("FLOWYARD_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let Ok(text) = std::fs::read_to_string(shared.join("vectors").join(name)) else {
        // Not println!, which the test runner keeps to itself while a test passes.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("skipped: needs ../shared/vectors/{name}\n"),
        );
        return None;
    };
    let mut lines = text.lines();
    let head: Vec<String> = lines.next()?.split(',').map(str::to_owned).collect();
    Some(lines.map(|line| Row { head: head.clone(), line: line.to_owned() }).collect())
}

pub struct Row {
    head: Vec<String>,
    line: String,
}

impl Row {
    pub fn text(&self, column: &str) -> &str {
        let at = self.head.iter().position(|h| h == column);
        let at = at.unwrap_or_else(|| panic!("no column {column}"));
        self.line.split(',').nth(at).unwrap_or_else(|| panic!("no {column} in {}", self.line))
    }

    pub fn hex(&self, column: &str) -> u32 {
        let text = self.text(column);
        u32::from_str_radix(text.trim_start_matches("0x"), 16)
            .unwrap_or_else(|_| panic!("{column} of {} is not hex", self.line))
    }

    pub fn number(&self, column: &str) -> u16 {
        self.text(column).parse().unwrap_or_else(|_| panic!("{column} of {}", self.line))
    }

    pub fn ip(&self, column: &str) -> IpAddr {
        self.text(column).parse().unwrap_or_else(|_| panic!("{column} of {}", self.line))
    }
}

/// Random waiting times and flows for Monte Carlo experiments.
pub struct Random(pub Rng);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// In (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// A TCP flow from a random client to one server.
    pub fn flow(&mut self) -> FlowKey {
        let (r, server) = (self.bits(), std::net::Ipv4Addr::new(10, 0, 0, 1));
        let client = std::net::Ipv4Addr::from(r as u32);
        let sport = (r >> 32) as u16;
        FlowKey::five_tuple(6, client.into(), sport, server.into(), 80)
    }
}
