//! Tables: one for each test, in the formats of RFC 2544 section 26 and RFC 9004 section 6.

use flowyard_frame::Nanos;
use flowyard_report::{Cell, Column, Table, Tone, Unit, num};

use super::data::{Document, Time, measured};
use crate::line::Load;
use crate::search::throughput::Answer;
use crate::suite::AtSize;
use crate::traffic::{Genome, Mix};

/// The tables of all tests that have results.
#[must_use]
pub fn tables(document: &Document) -> Vec<Table> {
    let all = [
        throughput(document),
        latency(document),
        loss(document),
        bursts(document),
        recovery(document),
        intervals(document),
        mlr(document),
        soak(document),
        skipped(document),
    ];
    all.into_iter().filter(|table| !table.is_empty()).collect()
}

fn time(document: &Document) -> &'static str {
    match document.time {
        Time::Virtual => "virtual time",
        Time::Real => "real time",
    }
}

pub(super) fn ns(value: f64) -> String {
    Unit::Nanos.show(value)
}

/// The name of a frame size.
pub(super) fn name(document: &Document, size: &Genome) -> String {
    document.results.profile.size_name(size)
}

fn pps(load: Load) -> String {
    format!("{:.1}", load.pps())
}

/// The number of lost frames; not a rounded ratio, so that one lost frame in a billion is visible.
fn lost(lost: u64, sent: u64) -> String {
    format!("{} of {}", num::exact(lost), num::exact(sent))
}

fn throughput(document: &Document) -> Table {
    let title = format!("Throughput without frame loss, per port ({})", time(document));
    let mut table = Table::new(title)
        .column(Column::number("size").unit("bytes"))
        .column(Column::number("line").unit("frames/s"))
        .column(Column::number("throughput").unit("frames/s"))
        .column(Column::number("of line"))
        .column(Column::number("lost at this rate").unit("frames"))
        .column(Column::number("loss from").unit("frames/s"))
        .column(Column::number("trials"))
        .column(Column::text("result"));
    for at in measured(&document.results) {
        let Some(answer) = at.throughput else { continue };
        let (mut rate, mut share) = answer.load.map_or(("none".into(), "-".into()), |load| {
            (pps(load), format!("{:.2} %", load.share_of(at.max) * 100.0))
        });
        let (word, tone) = regularity(at, &answer);
        if answer.tester_limit {
            (rate, share) = at_least(at, &answer);
        } else if let Some(spread) = &at.spread {
            // Print no more digits than the repetitions support.
            let [min, max] = spread.range_pps().map(|rate| digits(rate, 2));
            rate = if spread.irregular.is_some() {
                share = "-".into();
                format!("{min} to {max}")
            } else {
                format!("{} ± {:.1} %", digits(spread.median_pps, 3), spread.rsd_percent)
            };
        }
        table.push([
            Cell::new(name(document, &at.size)),
            Cell::new(pps(at.max)),
            Cell::new(rate).tone(Tone::Strong),
            Cell::new(share),
            Cell::new(lost(answer.counts.lost(), answer.counts.sent)),
            Cell::new(answer.lossy.map_or("-".into(), pps)),
            Cell::new(answer.trials.to_string()),
            Cell::new(word).tone(tone),
        ]);
    }
    table
}

/// A throughput that the tester limited, as a rate and as a share of the line: lower bounds.
fn at_least(at: &AtSize, answer: &Answer) -> (String, String) {
    let Some(load) = answer.load else { return ("unknown".into(), "-".into()) };
    // Rounded down: the device was not shown to forward more.
    let rate = if at.spread.is_some() { lower_digits(load.pps(), 3) } else { pps(load) };
    (format!("at least {rate}"), format!("at least {:.2} %", load.share_of(at.max) * 100.0))
}

/// Whether the result is regular, and whether the tester was the limit.
fn regularity(at: &AtSize, answer: &Answer) -> (String, Tone) {
    let why = at.spread.as_ref().and_then(|spread| spread.irregular.as_ref());
    if answer.tester_limit {
        let word = match (answer.load, answer.unreached) {
            (None, _) => "the tester's limit: it could not send even the lowest rate tried".into(),
            (_, Some(rate)) => format!("the tester's limit: it could not send {}", pps(rate)),
            (_, None) => "the tester's limit".into(),
        };
        return (word, Tone::Warn);
    }
    match why {
        Some(why) => (format!("irregular: {why}"), Tone::Warn),
        None => ("regular".into(), Tone::Good),
    }
}

/// Rounds to `count` significant digits.
fn digits(value: f64, count: i32) -> String {
    let unit = unit_of_digits(value, count);
    num::exact(((value / unit).round() * unit) as u64)
}

/// Rounds down to `count` significant digits.
fn lower_digits(value: f64, count: i32) -> String {
    let unit = unit_of_digits(value, count);
    num::exact(((value / unit).floor() * unit) as u64)
}

/// The value of the last of `count` significant digits of `value`, at least 1.
fn unit_of_digits(value: f64, count: i32) -> f64 {
    let digits = if value > 0.0 { value.log10().floor() as i32 + 1 } else { 0 };
    10_f64.powi((digits - count).max(0))
}

fn latency(document: &Document) -> Table {
    let mut table = Table::new(format!("Latency at the throughput ({})", time(document)))
        .column(Column::number("size").unit("bytes"))
        .column(Column::number("mean").unit("RFC 2544"))
        .column(Column::number("samples"))
        .column(Column::number("stddev"))
        .column(Column::number("typical").unit("RFC 8219"))
        .column(Column::number("worst case").unit("99.9 %"))
        .column(Column::number("PDV").unit("99.9 % - min"))
        .column(Column::number("IPDV").unit("min .. max"))
        .column(Column::number("tagged lost"));
    for at in &document.results.sizes {
        let (Some(delay), Some(variation)) = (&at.latency, &at.variation) else { continue };
        let of = |value: Nanos| ns(value as f64);
        let [min, _, max] = variation.ipdv_ns.map(|value| ns(value as f64));
        let samples = delay.samples_ns.len();
        let known = |text: String, least: usize| if samples < least { "-".into() } else { text };
        let lost = match variation.lost + u64::from(delay.lost) {
            0 => Cell::new("0"),
            _ => Cell::new(format!("{} (irregular)", variation.lost)).tone(Tone::Warn),
        };
        table.push([
            Cell::new(name(document, &at.size)),
            Cell::new(known(ns(delay.mean_ns), 1)).tone(Tone::Strong),
            Cell::new(samples.to_string()),
            Cell::new(known(ns(delay.stddev_ns), 2)),
            Cell::new(of(variation.tl_ns[0])),
            Cell::new(of(variation.wcl_ns[0])),
            Cell::new(of(variation.pdv_ns[0])),
            Cell::new(format!("{min} .. {max}")),
            lost,
        ]);
    }
    match table.is_empty() {
        true => table,
        false => table.note(
            "mean and stddev are of one tagged frame per stream; typical, worst case and IPDV of the tagged frames; \
             PDV of all frames",
        ),
    }
}

fn loss(document: &Document) -> Table {
    let mut table = Table::new(format!("Frame loss rate ({})", time(document)))
        .column(Column::number("size").unit("bytes"))
        .column(Column::number("load").unit("% of line"))
        .column(Column::number("frames/s"))
        .column(Column::number("lost").unit("frames"))
        .column(Column::number("loss").unit("%"))
        .column(Column::number("gaps"))
        .column(Column::text("tester"));
    for at in &document.results.sizes {
        for step in at.loss_rate.iter().flatten() {
            let counts = &step.counts;
            table.push([
                Cell::new(name(document, &at.size)),
                Cell::new(step.percent.to_string()),
                Cell::new(pps(step.load)),
                Cell::new(lost(counts.lost(), counts.sent)),
                // Enough digits for one frame in 10^9.
                Cell::new(format!("{:.7}", counts.loss_ratio() * 100.0)),
                Cell::new(num::exact(counts.gaps)),
                match counts.fault() {
                    Some(why) => Cell::new(why).tone(Tone::Warn),
                    None => Cell::new("ok"),
                },
            ]);
        }
    }
    table
}

fn bursts(document: &Document) -> Table {
    let mut table = Table::new(format!("Back-to-back frames, RFC 9004 ({})", time(document)))
        .column(Column::number("size").unit("bytes"))
        .column(Column::number("mean").unit("frames"))
        .column(Column::number("min"))
        .column(Column::number("max"))
        .column(Column::number("stddev"))
        .column(Column::number("repeats"))
        .column(Column::number("corrected buffer").unit("s"));
    for at in &document.results.sizes {
        let Some(answer) = &at.back_to_back else { continue };
        let note = match (answer.is_unlimited, answer.tester_limit) {
            (true, _) => " or more",
            (false, true) => " or more: the tester's limit",
            (false, false) => "",
        };
        table.push([
            Cell::new(name(document, &at.size)),
            Cell::new(format!("{:.1}{note}", answer.mean)).tone(Tone::Strong),
            Cell::new(num::exact(answer.min)),
            Cell::new(num::exact(answer.max)),
            Cell::new(format!("{:.1}", answer.stddev)),
            Cell::new(answer.bursts.len().to_string()),
            Cell::new(format!("{:.9}", answer.corrected_buffer_s)),
        ]);
    }
    let steps = document.results.sizes.iter().find_map(|at| at.back_to_back.as_ref());
    match steps {
        Some(answer) => table.note(format!(
            "resolution {} frame, longest burst tried {} frames (at size {})",
            answer.step_frames,
            num::exact(answer.limit_frames),
            document.results.sizes.first().map_or(String::new(), |at| name(document, &at.size))
        )),
        None => table,
    }
}

fn recovery(document: &Document) -> Table {
    let mut table = Table::new(format!("Recovery and reset ({})", time(document)))
        .column(Column::number("size").unit("bytes"))
        .column(Column::number("recovery").unit("RFC 2544 26.5"))
        .column(Column::number("reset by frames").unit("RFC 6201"))
        .column(Column::number("reset by time").unit("RFC 6201"));
    let mut is_limited = false;
    for at in &document.results.sizes {
        if at.recovery_ns.is_none() && at.reset.is_none() {
            continue;
        }
        let first = |times: &Option<Vec<Nanos>>| {
            times.as_ref().and_then(|t| t.first()).map_or("-".into(), |t| ns(*t as f64))
        };
        let reset = at.reset.as_ref().and_then(|times| times.first());
        let of = |value: Option<Nanos>| value.map_or("-".into(), |value| ns(value as f64));
        // Of a load that the tester did not reach, fewer frames were lost.
        let least = |is_limited: bool| if is_limited { "at least " } else { "" };
        let recovery = first(&at.recovery_ns);
        let by_frames = of(reset.map(|r| r.by_frames_ns));
        is_limited |= at.recovery_tester_limit || reset.is_some_and(|r| r.tester_limit);
        table.push([
            Cell::new(name(document, &at.size)),
            Cell::new(format!("{}{recovery}", least(at.recovery_tester_limit))),
            Cell::new(format!("{}{by_frames}", least(reset.is_some_and(|r| r.tester_limit)))),
            Cell::new(of(reset.map(|r| r.by_time_ns))),
        ]);
    }
    match is_limited {
        true => table.note(
            "\"at least\": the tester's limit. It sent less than the load, and the device may take longer to recover \
             from the whole load.",
        ),
        false => table,
    }
}

fn intervals(document: &Document) -> Table {
    let title = format!("Bursts: shortest interval without loss, RFC 2544 21 ({})", time(document));
    let mut table = Table::new(title)
        .column(Column::number("size").unit("bytes"))
        .column(Column::number("burst").unit("frames"))
        .column(Column::number("interval").unit("start to start"))
        .column(Column::number("load").unit("frames/s"))
        .column(Column::number("of line"));
    for at in &document.results.sizes {
        for answer in at.bursts.iter().flatten() {
            let (load, share) = answer.search.load.map_or(("-".into(), "-".into()), |load| {
                (pps(load), format!("{:.2} %", load.share_of(at.max) * 100.0))
            });
            let at_most = if answer.search.tester_limit { "at most " } else { "" };
            let interval = answer.interval_ns.map_or("none".into(), ns);
            table.push([
                Cell::new(name(document, &at.size)),
                Cell::new(answer.frames.to_string()),
                Cell::new(format!("{at_most}{interval}")).tone(Tone::Strong),
                Cell::new(load),
                Cell::new(share),
            ]);
        }
    }
    table
}

fn mlr(document: &Document) -> Table {
    let mut table = Table::new(format!("MLRsearch, per port ({})", time(document)))
        .column(Column::text("size"))
        .column(Column::text("goal"))
        .column(Column::number("lower bound").unit("frames/s"))
        .column(Column::number("upper bound").unit("frames/s"))
        .column(Column::number("conditional").unit("frames/s"))
        .column(Column::text("result"));
    for at in &document.results.sizes {
        for found in at.mlr.iter().flatten() {
            let goal = &found.goal;
            let words = format!(
                "{} (loss {} %, {} s of {} s, exceed {} %)",
                goal.name,
                goal.loss_ratio * 100.0,
                goal.duration_sum / 1_000_000_000,
                goal.final_trial / 1_000_000_000,
                goal.exceed_ratio * 100.0
            );
            let (word, tone) = match &found.irregular {
                None => ("regular".to_owned(), Tone::Good),
                Some(why) => (format!("irregular: {why}"), Tone::Warn),
            };
            table.push([
                Cell::new(name(document, &at.size)),
                Cell::new(words),
                Cell::new(found.lower.map_or("-".into(), pps)).tone(Tone::Strong),
                Cell::new(found.upper.map_or("-".into(), pps)),
                Cell::new(found.throughput_pps.map_or("-".into(), |pps| format!("{pps:.1}"))),
                Cell::new(word).tone(tone),
            ]);
        }
    }
    table
}

fn soak(document: &Document) -> Table {
    let mut table = Table::new(format!("Soak ({})", time(document)))
        .column(Column::number("size").unit("bytes"))
        .column(Column::number("load").unit("frames/s, per port"))
        .column(Column::number("duration"))
        .column(Column::number("sent").unit("frames"))
        .column(Column::number("lost").unit("frames"))
        .column(Column::number("reordered"))
        .column(Column::number("duplicate"))
        .column(Column::number("99.9 % latency"));
    for at in &document.results.sizes {
        let Some(result) = &at.soak else { continue };
        let counts = &result.counts;
        let ports = document.results.profile.topology.senders();
        // A replay has no rate of its own: this is the rate at which its frames left.
        let rate = match document.results.profile.mix {
            Mix::Replay(_) => format!("{:.1}", result.sent_pps(usize::from(ports))),
            _ => pps(result.trial.load),
        };
        table.push([
            Cell::new(name(document, &at.size)),
            Cell::new(rate),
            Cell::new(ns(result.sent_for() as f64)),
            Cell::new(num::exact(counts.sent)),
            Cell::new(num::exact(counts.lost())).tone(if counts.lost() > 0 {
                Tone::Warn
            } else {
                Tone::Good
            }),
            Cell::new(num::exact(counts.reordered)),
            Cell::new(num::exact(counts.duplicates)),
            Cell::new(ns(result.latency.p999_ns as f64)),
        ]);
    }
    table
}

fn skipped(document: &Document) -> Table {
    let mut table = Table::new("Skipped tests")
        .column(Column::text("size"))
        .column(Column::text("test"))
        .column(Column::text("reason"));
    for at in &document.results.sizes {
        let AtSize { size, skipped, .. } = at;
        for (test, why) in skipped {
            table.push([
                Cell::new(name(document, size)),
                Cell::new(test.to_string()),
                Cell::new(why.as_str()),
            ]);
        }
    }
    table
}
