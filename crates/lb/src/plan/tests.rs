//! The sequence of a weighted round-robin.

use flowyard_frame::proto;
use proptest::prelude::*;

use super::*;
use crate::Control;

#[test]
fn a_sequence_of_turns_is_as_short_as_the_weights_allow() {
    let of = |weights: &[u32]| turns(weights);
    assert_eq!(of(&[]), []);
    assert_eq!(of(&[0, 0]), []);
    assert_eq!(of(&[7]), [0]);
    assert_eq!(of(&[100, 100, 100]), [0, 1, 2]);
    assert_eq!(of(&[0, 500, 0]), [1]);
    assert_eq!(of(&[200, 100]), [0, 0, 1]);
    assert_eq!(of(&[100, 300]), [1, 1, 0, 1]);
    // The heavier ones come in every round, the others spread over the rounds.
    assert_eq!(of(&[400, 200]), [0, 0, 1]);
    assert_eq!(of(&[400, 200, 100]), [0, 0, 1, 0, 0, 1, 2]);
    // A sequence that would be too long is cut after 4096 rounds.
    assert_eq!(of(&[1, 4096]).len(), 4097);
    assert_eq!(of(&[1, 10_007]).len(), 4096);
}

/// Cores apply plans between batches, and a core must not allocate.
#[test]
fn the_positions_of_a_core_have_room_for_later_plans() {
    let mut turns = Plan::turns_for(64);
    let room = turns.0.capacity();
    assert!(room >= 64);
    let service = |port| {
        let vip = IpAddr::from([192, 0, 2, 1]);
        Service::new(&format!("s{port}"), vip, proto::TCP, port..=port, Mode::Dsr, vec![])
    };
    for count in [1, 64, 2] {
        let services = (1..=count).map(service).collect();
        Control::new(services, 7, 1).unwrap().plan().make_turns(3, &mut turns);
        assert_eq!((turns.0.len(), turns.0.capacity()), (usize::from(count), room));
    }
}

proptest! {
    /// Each backend has its share of a sequence, and of every part of it as nearly as whole turns can.
    #[test]
    fn every_part_of_a_sequence_has_the_shares_of_the_weights(
        weights in prop::collection::vec(0_u32..60, 1..8), factor in 1_u32..50,
    ) {
        let scaled: Vec<u32> = weights.iter().map(|weight| weight * factor).collect();
        let all = turns(&scaled);
        prop_assert_eq!(&all, &turns(&weights), "a common factor makes no difference");
        let heaviest = weights.iter().copied().max().unwrap_or(0);
        if heaviest == 0 {
            prop_assert!(all.is_empty());
            return Ok(());
        }
        let first = weights.iter().position(|weight| *weight == heaviest).expect("it is one of them");
        let mut counts = vec![0_u32; weights.len()];
        let mut rounds = 0;
        for turn in &all {
            counts[usize::from(*turn)] += 1;
            if usize::from(*turn) == first {
                rounds += 1;
                for (at, weight) in weights.iter().enumerate() {
                    // After each round of the heaviest: those before it have had their turn of the round.
                    let done = if at <= first { rounds } else { rounds - 1 };
                    prop_assert_eq!(counts[at], weight * done / heaviest, "{:?} of {:?}", at, weights);
                }
            }
        }
        // The whole sequence has the exact shares, and no shorter one could have them.
        prop_assert!(weights.iter().zip(&counts).all(|(w, n)| w * rounds == n * heaviest));
        let divisor = weights.iter().filter(|weight| **weight > 0).fold(0, |all, weight| gcd(all, *weight));
        prop_assert_eq!(rounds, heaviest / divisor);
    }
}
