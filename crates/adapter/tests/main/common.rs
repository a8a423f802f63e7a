//! Test data outside the repository, and random flows.
#![allow(unreachable_pub, reason = "shared by the test modules")]

use std::net::{IpAddr, Ipv4Addr};

use flowyard_frame::Rng;
use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::harness;

/// The rows of a CSV file in `../shared`.
pub fn rows(path: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(harness::shared(path)).unwrap();
    let mut lines = text.lines();
    let head: Vec<String> =
        lines.next().unwrap_or_default().split(',').map(str::to_owned).collect();
    lines.map(|line| Row { head: head.clone(), line: line.to_owned() }).collect()
}

/// A row of a CSV file, whose values are selected by the name of the column.
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

/// A number from an exponential distribution.
pub fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    let unit = ((rng.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64; // in (0, 1]
    -mean * unit.ln()
}

/// A TCP flow from a random client to one server.
pub fn random_flow(rng: &mut Rng) -> FlowKey {
    let (r, server) = (rng.bits(), Ipv4Addr::new(10, 0, 0, 1));
    let client = Ipv4Addr::from(r as u32);
    let sport = (r >> 32) as u16;
    FlowKey::five_tuple(proto::TCP, client.into(), sport, server.into(), 80)
}
