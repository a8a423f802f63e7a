use flowyard_report::Style;

use super::*;
use crate::compliance::judge;
use crate::dut::YardSpec;
use crate::line::{Line, Load};
use crate::profile::Profile;
use crate::suite::{NoJournal, Spread, run};
use crate::traffic::{Capture, Family, Genome, Mix, Plan, Step};
use crate::trial::{Counts, SECOND};
use crate::virtual_bench::YardBench;

fn document(frame_ns: u64) -> Document {
    let line = Line::MBIT_10;
    let profile = Profile {
        sizes: vec![Genome::fixed(512), Genome::fixed(1518)],
        short: SECOND / 5,
        full: SECOND,
        latency: SECOND,
        latency_repeats: 1,
        burst: SECOND,
        burst_repeats: 1,
        ..Profile::rfc2544(line)
    };
    let spec = YardSpec { frame_ns, ring_frames: 64, ..YardSpec::new(line) };
    let results =
        run(&profile, &mut YardBench(spec), &mut NoJournal, &mut |_: &crate::suite::Progress| {})
            .unwrap();
    Document {
        time: Time::Virtual,
        device: format!("yard {frame_ns}"),
        version: "0".into(),
        machine: Machine::default(),
        tester: Vec::new(),
        compliance: judge(&results),
        deviations: deviations(Time::Virtual, &results),
        drops: Vec::new(),
        results,
    }
}

#[test]
fn the_notes_describe_the_frames() {
    let mut results = document(400_000).results;
    assert!(deviations(Time::Virtual, &results)[0].contains("UDP checksum 0 (none)"));
    results.profile.family = Family::Ipv6;
    let note = &deviations(Time::Virtual, &results)[0];
    assert!(note.contains("2001:2::/48") && !note.contains("checksum 0"), "{note}");
}

/// A capture of 4,000 long frames in a second: 49 Mbit/s.
fn replayed(line: Line) -> Document {
    let steps = vec![Step { flow: 0, size: 1518, broadcast: false }; 4000];
    let times = (0..4000).map(|frame| frame * 250_000).collect();
    let capture = Capture::new("fast.pcap", Plan::timed(steps, times, SECOND));
    let mut profile = Profile { speed: Some(100), ..Profile::soak(line, 2, SECOND, 40) };
    profile.set_mix(Mix::Replay(capture)).unwrap();
    let spec = YardSpec { frame_ns: 1, batch_ns: 0, byte_ps: 0, ..YardSpec::new(line) };
    let results =
        run(&profile, &mut YardBench(spec), &mut NoJournal, &mut |_: &crate::suite::Progress| {})
            .unwrap();
    Document {
        compliance: judge(&results),
        deviations: deviations(Time::Virtual, &results),
        results,
        ..document(400_000)
    }
}

/// Frames that wait for the line are not lost, and the report says that the line is too slow.
#[test]
fn a_replay_faster_than_the_line_loses_no_frame_and_is_reported() {
    let slow = replayed(Line::MBIT_10);
    let result = slow.results.sizes[0].soak.as_ref().unwrap();
    let counts = &result.counts;
    assert_eq!((counts.sent, counts.lost()), (8000, 0), "{counts:?}");
    // 1538 bytes on a line of 10 Mbit/s.
    assert!((812.0..813.0).contains(&result.sent_pps(2)), "{}", result.sent_pps(2));
    assert!(result.timing.late_frames > 7900 && result.timing.max_ns > 3 * SECOND);
    let text: String = tables(&slow).iter().map(|table| table.to_text(&Style::plain())).collect();
    assert!(text.contains("812.") && !text.contains("4000.0"), "{text}");
    let notes = slow.deviations.join("\n");
    assert!(notes.contains("needs 49.216 Mbit/s on average"), "{notes}");
    assert!(
        notes.contains("the line carries 10.000 Mbit/s") && notes.contains("--line 100M"),
        "{notes}"
    );
    // The notes are those of a soak test.
    assert!(!notes.contains("Lanner") && !notes.contains("throughput was searched"), "{notes}");
    let fast = replayed(Line { bps: 100_000_000 });
    let result = fast.results.sizes[0].soak.as_ref().unwrap();
    assert_eq!((result.counts.lost(), result.timing.late_frames), (0, 0));
    let notes = fast.deviations.join("\n");
    assert!(!notes.contains("--line"), "{notes}");
}

#[test]
fn a_document_is_text_page_and_json_and_compares() {
    let (slow, fast) = (document(500_000), document(400_000));
    let text: String = tables(&slow).iter().map(|table| table.to_text(&Style::plain())).collect();
    for word in [
        "Throughput without frame loss",
        "Latency at",
        "Frame loss rate",
        "Back-to-back",
        "virtual time",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    // The deviation of one sample is not known.
    let samples = slow.results.sizes[0].latency.as_ref().unwrap();
    assert_eq!((samples.samples_ns.len(), samples.lost), (1, 0));
    let mut rows = text.lines().skip_while(|line| !line.contains("Latency at"));
    let row = rows.find(|line| line.trim_start().starts_with("512 ")).unwrap_or_default();
    let cells = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let row: Vec<&str> = cells.collect();
    assert_eq!(row.get(2..4), Some(&["1", "-"][..]), "{text}");
    let html = page(&slow, "flowyard bench rfc2544", "now").to_html();
    assert!(!html.contains("one frame in 0"));
    for word in ["theoretical", "RFC 2544 section 26.3", "not compliant", "Every trial"] {
        assert!(html.contains(word), "{word}");
    }
    let json = serde_json::to_string(&slow).unwrap();
    let back: Document = serde_json::from_str(&json).unwrap();
    assert_eq!(back, slow);

    let both = compare(&slow, &fast).unwrap();
    let ratio = both.sizes[0].ratio.unwrap();
    assert!((1.05..1.35).contains(&ratio), "{ratio}");
    assert!(both.differences.is_empty());
    assert!(both.table().to_text(&Style::plain()).contains("B / A"));
    let mut other = fast.clone();
    let profile = &mut other.results.profile;
    (profile.addresses, profile.broadcast_every) = (crate::traffic::Addresses::Random, 100);
    assert_eq!(compare(&slow, &other).unwrap().differences, ["addresses", "broadcasts"]);
    let real = Document { time: Time::Real, ..fast };
    assert!(compare(&slow, &real).unwrap_err().contains("cannot be compared"));
}

/// The median of repeated searches is a lower bound if the tester limited a search at or below it.
#[test]
fn a_rate_limited_by_the_tester_is_printed_as_at_least() {
    let mut document = document(500_000);
    let at = &mut document.results.sizes[0];
    let mut spread = Spread::new(vec![96_000.0, 142_999.0, 190_000.0]).unwrap();
    spread.tester_limited = 3;
    at.spread = Some(spread);
    let answer = at.throughput.as_mut().unwrap();
    (answer.load, answer.lossy) = (Some(Load::from_pps(142_999.0)), None);
    (answer.unreached, answer.tester_limit) = (Some(Load::from_pps(149_000.0)), true);
    (at.recovery_ns, at.recovery_tester_limit) = (Some(vec![7_000_000_000]), true);
    let text: String =
        tables(&document).iter().map(|table| table.to_text(&Style::plain())).collect();
    assert!(text.contains("at least 142,000"), "{text}");
    assert!(text.contains("the tester's limit: it could not send 149000.0"), "{text}");
    assert!(text.contains("at least 7"), "{text}");
    assert!(text.contains("It sent less than the load"), "{text}");
    assert!(!text.contains("irregular") && !text.contains("96,000 to"), "{text}");
    let both = compare(&document, &document).unwrap().table().to_text(&Style::plain());
    assert!(both.contains("the tester's limit"), "{both}");
}

#[test]
fn one_lost_frame_in_a_billion_prints_as_one() {
    let mut document = document(500_000);
    let counts = Counts { sent: 1_000_000_000, good: 999_999_999, ..Counts::default() };
    let at = &mut document.results.sizes[0];
    at.loss_rate.as_mut().unwrap()[0].counts = counts;
    let text: String =
        tables(&document).iter().map(|table| table.to_text(&Style::plain())).collect();
    assert!(text.contains("1 of 1,000,000,000") && text.contains("0.0000001"), "{text}");
}
