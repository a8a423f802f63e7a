//! `NORMAL` with several cores: what one core learns, the other one knows.

use super::*;

const SECOND: Nanos = 1_000_000_000;

fn bed() -> Bed {
    let mut bed = Bed::new(4);
    (0..CORES).for_each(|core| bed.flows(core, &["actions=NORMAL"]));
    bed
}

/// The ports by which a frame leaves.
fn ports(bed: &mut Bed, now: Nanos, (core, came): (usize, u16), frame: Vec<u8>) -> Vec<u16> {
    let left = bed.pass_at(now, core, came, &[frame]).remove(0).expect("an output");
    let mut ports: Vec<_> = left.into_iter().map(|(port, _)| port).collect();
    ports.sort_unstable();
    ports
}

/// Two cores work on the two directions of a conversation: neither forgets the other's station while it lasts.
#[test]
fn a_station_that_one_core_sees_does_not_age_on_the_others() {
    let mut bed = bed();
    assert_eq!(ports(&mut bed, 0, (0, 0), frame(1, 2, 60)), [1, 2, 3]);
    for n in 0..1000 {
        assert_eq!(ports(&mut bed, n * SECOND, (1, 1), frame(2, 1, 60)), [0], "{n} s");
        assert_eq!(ports(&mut bed, n * SECOND + 9, (0, 0), frame(1, 2, 60)), [1], "{n} s");
    }
    // A move is announced at once.
    assert_eq!(ports(&mut bed, 1000 * SECOND, (1, 2), frame(2, 1, 60)), [0]);
    assert_eq!(ports(&mut bed, 1000 * SECOND, (0, 0), frame(1, 2, 60)), [2]);
}

/// Frames of `count` stations, in batches.
fn crowd(bed: &mut Bed, count: u16) {
    let from = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let mut frame = frame(9, 9, 60);
        frame[6..12].copy_from_slice(&[2, 0, 0, 1, high, low]);
        frame
    };
    let frames: Vec<_> = (0..count).map(from).collect();
    frames.chunks(LANES).for_each(|frames| drop(bed.pass_at(SECOND, 0, 0, frames)));
}

#[test]
fn a_station_that_found_a_full_mailbox_is_announced_again() {
    let mut bed = bed();
    crowd(&mut bed, STATIONS as u16);
    let _lost = ports(&mut bed, SECOND, (0, 0), frame(1, 9, 60));
    assert_eq!(ports(&mut bed, SECOND, (1, 1), frame(2, 1, 60)), [0, 2, 3], "not heard");
    let _again = ports(&mut bed, SECOND + SECOND / 100, (0, 0), frame(1, 9, 60));
    assert_eq!(ports(&mut bed, SECOND + SECOND / 50, (1, 1), frame(2, 1, 60)), [0]);
}

#[test]
fn a_core_without_frames_reads_its_mailbox() {
    let mut bed = bed();
    crowd(&mut bed, STATIONS as u16);
    bed.cores[1].speak(SECOND, &mut |_, _| panic!("a switch sends nothing of its own"));
    let _told = ports(&mut bed, SECOND, (0, 0), frame(1, 9, 60));
    assert_eq!(ports(&mut bed, SECOND, (1, 1), frame(2, 1, 60)), [0]);
}
