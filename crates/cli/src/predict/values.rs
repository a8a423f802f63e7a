//! Parsers of the values of options.

use flowyard_hostsim::Machine;
use flowyard_hostsim::server::Steering;

use super::{Interrupts, WAYS};

pub(super) fn way(text: &str) -> Result<Steering, String> {
    let found = WAYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, way)| *way).ok_or_else(|| {
        let names = WAYS.map(|(name, _)| name);
        format!("there is no such way; choose one of {}", names.join(", "))
    })
}

/// A time in nanoseconds.
pub(super) fn time(text: &str) -> Result<f64, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() {
        return Err("must be more than 0".to_owned());
    }
    Ok(time.as_nanos() as f64)
}

pub(super) fn interrupts(text: &str) -> Result<Interrupts, String> {
    match text {
        "off" => Ok(Interrupts::Off),
        "ixgbe" => Ok(Interrupts::Ixgbe),
        text => {
            let wrong = |error| format!("write off, ixgbe, or a time such as 50us: {error}");
            time(text).map(|ns| Interrupts::Gap(ns as u64)).map_err(wrong)
        }
    }
}

/// A cost and its value: a number, or a time if the name ends with `_ns`.
pub(super) fn cost(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| "write the name, =, and the value, such as stack_ns=700".to_owned())?;
    let number = value.parse::<f64>().ok();
    let time = || if name.ends_with("_ns") { time(value).ok() } else { None };
    let value = number.or_else(time).filter(|value| value.is_finite() && *value >= 0.0);
    let value = value.ok_or_else(|| {
        "the value must be a number of at least 0, or for names that end with _ns a time such as 2us"
            .to_owned()
    })?;
    Ok((name.trim().to_owned(), value))
}

/// Sockets, cores and threads, as in `2x8x2`.
pub(super) fn machine(text: &str) -> Result<Machine, String> {
    let wrong =
        || "write sockets x cores x threads, such as 2x8x2: at most 8, 128 and 2".to_owned();
    let numbers: Vec<u16> =
        text.split('x').map(|word| word.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    match numbers[..] {
        [sockets @ 1..=8, cores @ 1..=128, threads @ 1..=2] => {
            Ok(Machine { sockets, cores, threads })
        }
        _ => Err(wrong()),
    }
}

/// The option that sets a setting.
pub(super) fn option(setting: &str) -> String {
    match setting {
        "cores" => "--threads".to_owned(),
        "latency_limit_us" => "--latency".to_owned(),
        "interrupt_gap_ns" => "--itr".to_owned(),
        "work_ns" => "--work".to_owned(),
        name => format!("--{name}"),
    }
}
