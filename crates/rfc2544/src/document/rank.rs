//! Ranking of several devices by throughput, as far as the differences are significant. The devices
//! must have been measured in turns.
//!
//! Two devices differ if every repetition of one is above every repetition of the other. With three
//! repetitions each, this happens by chance for two equal devices in one of ten cases, in either
//! direction. Otherwise the difference is not significant, however far apart the medians are. A
//! result that the tester limited is a lower bound, so its device is not shown to be slower.

use flowyard_report::{Cell, Column, Table, Tone, num};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::data::{Document, Time};
use crate::line::Load;
use crate::suite::Spread;
use crate::traffic::Genome;

/// A device with its repetitions at one frame size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ranked {
    /// The name of the device.
    pub name: String,
    /// Its throughput in frames per second per port.
    pub spread: Spread,
    /// One more than the number of devices that are significantly faster.
    pub place: u32,
}

/// The order at one frame size: by place, and by descending median among devices that share a
/// place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    /// The frame size.
    pub size: Genome,
    /// The devices in order.
    pub devices: Vec<Ranked>,
}

/// The order of `devices` at each frame size that all were tested with. Each device has a name and
/// the documents of its runs.
///
/// # Errors
/// When results of virtual and real time are mixed, or there is nothing to compare.
pub fn rank(devices: &[(String, Vec<Document>)]) -> Result<Vec<Order>, String> {
    let all = || devices.iter().flat_map(|(_, documents)| documents);
    let first = all().next().ok_or("nothing to rank")?;
    if all().any(|document| document.time != first.time) {
        return Err("some results are of virtual time and some of real time; these cannot be \
                    compared"
            .into());
    }
    let mut orders = Vec::new();
    for at in &first.results.sizes {
        let rates = |documents: &[Document]| {
            let found = documents.iter().flat_map(|document| &document.results.sizes);
            found.filter(|found| found.size == at.size).flat_map(runs).collect::<Vec<f64>>()
        };
        let limited = |documents: &[Document]| {
            let found = documents.iter().flat_map(|document| &document.results.sizes);
            found.filter(|found| found.size == at.size).map(tester_limited).sum::<u32>()
        };
        let spreads = devices.iter().map(|(name, documents)| {
            let spread = Spread::new(rates(documents))?;
            Some((name.clone(), Spread { tester_limited: limited(documents), ..spread }))
        });
        let Some(spreads) = spreads.collect::<Option<Vec<_>>>() else { continue };
        orders.push(Order { size: at.size.clone(), devices: order(spreads) });
    }
    if orders.is_empty() {
        return Err("the results have no frame size in common".into());
    }
    Ok(orders)
}

/// The results of all throughput searches at a frame size, in frames per second.
fn runs(at: &crate::suite::AtSize) -> Vec<f64> {
    match (&at.spread, &at.throughput) {
        (Some(spread), _) => spread.runs_pps.clone(),
        (None, Some(answer)) => vec![answer.load.map_or(0.0, Load::pps)],
        (None, None) => Vec::new(),
    }
}

/// The number of throughput searches at a frame size that the tester limited.
pub(super) fn tester_limited(at: &crate::suite::AtSize) -> u32 {
    match (&at.spread, &at.throughput) {
        (Some(spread), _) => spread.tester_limited,
        (None, Some(answer)) => u32::from(answer.tester_limit),
        (None, None) => 0,
    }
}

fn order(spreads: Vec<(String, Spread)>) -> Vec<Ranked> {
    let faster = |than: &Spread| {
        let is = |other: &&(String, Spread)| {
            differ(&other.1, than) && other.1.median_pps > than.median_pps
        };
        spreads.iter().filter(is).count() as u32
    };
    let places: Vec<u32> = spreads.iter().map(|(_, spread)| 1 + faster(spread)).collect();
    let mut ranked: Vec<Ranked> = spreads
        .into_iter()
        .zip(places)
        .map(|((name, spread), place)| Ranked { name, spread, place })
        .collect();
    ranked.sort_by(|a, b| {
        let by_median = b.spread.median_pps.total_cmp(&a.spread.median_pps);
        a.place.cmp(&b.place).then(by_median)
    });
    ranked
}

/// The least number of repetitions with which a device is ranked.
const REPETITIONS: usize = 3;

/// Whether all repetitions of one are above all of the other. With fewer than three repetitions
/// each, no difference is significant, nor is it if the tester limited the lower results.
#[must_use]
pub fn differ(a: &Spread, b: &Spread) -> bool {
    let ([a_least, a_most], [b_least, b_most]) = (a.range_pps(), b.range_pps());
    let enough = a.runs_pps.len().min(b.runs_pps.len()) >= REPETITIONS;
    let is_above =
        |least: f64, most: f64, lower: &Spread| least > most && lower.tester_limited == 0;
    enough && (is_above(a_least, b_most, b) || is_above(b_least, a_most, a))
}

/// The ranking as a table.
#[must_use]
pub fn table(orders: &[Order], time: Time) -> Table {
    let time = if time == Time::Virtual { "virtual time" } else { "real time" };
    let mut table = Table::new(format!("Ranking by throughput, per port ({time})"))
        .column(Column::number("size").unit("bytes"))
        .column(Column::number("place"))
        .column(Column::text("device"))
        .column(Column::number("median").unit("frames/s"))
        .column(Column::number("min .. max").unit("frames/s"))
        .column(Column::number("runs"))
        .column(Column::text("compared with the previous"));
    for order in orders {
        let is_ranked = |one: &&Ranked| one.spread.runs_pps.len() >= REPETITIONS;
        let mut before: Option<&Spread> = None;
        for ranked in &order.devices {
            let runs = ranked.spread.runs_pps.len();
            let same = |other: &&Ranked| is_ranked(other) && other.place == ranked.place;
            let shared = order.devices.iter().filter(same).count();
            let place = match (is_ranked(&ranked), shared > 1) {
                (false, _) => "-".to_owned(),
                (true, false) => ranked.place.to_string(),
                (true, true) => format!("{}=", ranked.place),
            };
            let word = match before.map(|before| differ(before, &ranked.spread)) {
                _ if runs < REPETITIONS => {
                    let runs = if runs == 1 { "1 run".into() } else { format!("{runs} runs") };
                    format!("not ranked: {runs}, at least {REPETITIONS} are needed")
                }
                None => String::new(),
                Some(false) => "no significant difference".into(),
                Some(true) => "slower".into(),
            };
            before = if is_ranked(&ranked) { Some(&ranked.spread) } else { before };
            let [min, max] = ranked.spread.range_pps().map(|rate| num::exact(rate as u64));
            let least = if ranked.spread.tester_limited > 0 { "at least " } else { "" };
            table.push([
                Cell::new(order.size.to_string()),
                Cell::new(place),
                Cell::new(ranked.name.as_str()).tone(Tone::Strong),
                Cell::new(format!("{least}{}", num::exact(ranked.spread.median_pps as u64))),
                Cell::new(format!("{min} .. {max}")),
                Cell::new(runs.to_string()),
                Cell::new(word),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_ordered_only_where_repetitions_do_not_overlap() {
        let spread = |rates: [f64; 3]| Spread::new(rates.to_vec()).unwrap();
        let named = |name: &str, rates| (name.to_owned(), spread(rates));
        let ranked = order(vec![
            named("slow", [10.0, 11.0, 12.0]),
            named("fast", [100.0, 120.0, 90.0]),
            named("fast too", [95.0, 130.0, 91.0]),
            named("none", [0.0; 3]),
        ]);
        let places: Vec<_> = ranked.iter().map(|r| (r.name.as_str(), r.place)).collect();
        assert_eq!(places, [("fast", 1), ("fast too", 1), ("slow", 3), ("none", 4)]);
        // `wide` overlaps with both others, so no device is significantly faster than it.
        let wide = order(vec![
            named("high", [9.0, 9.0, 10.0]),
            named("low", [1.0, 1.0, 2.0]),
            named("wide", [1.5, 3.0, 20.0]),
        ]);
        let places: Vec<_> = wide.iter().map(|r| (r.name.as_str(), r.place)).collect();
        assert_eq!(places, [("high", 1), ("wide", 1), ("low", 2)]);
        // The tester limited `limited`: its device may be as fast as the other.
        let limited = Spread { tester_limited: 1, ..spread([1.0, 2.0, 3.0]) };
        let bounded =
            order(vec![("fast".to_owned(), spread([9.0; 3])), ("limited".to_owned(), limited)]);
        assert_eq!(bounded.iter().map(|r| r.place).collect::<Vec<_>>(), [1, 1]);
        let once = |name: &str, rate| (name.to_owned(), Spread::new(vec![rate]).unwrap());
        let order = Order {
            size: Genome::fixed(64),
            devices: order(vec![once("a", 9755.0), once("b", 14880.0), named("c", [7.0; 3])]),
        };
        let text = table(&[order], Time::Virtual).to_text(&flowyard_report::Style::plain());
        assert_eq!(text.matches("not ranked: 1 run, at least 3 are needed").count(), 2, "{text}");
        assert!(!text.contains("no significant difference") && !text.contains("1="), "{text}");
        let two = Spread::new(vec![1.0, 1.0]).unwrap();
        assert!(!differ(&two, &spread([9.0; 3])), "two repetitions are not enough");
    }
}
