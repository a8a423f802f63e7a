//! Agreed health: a backend is up or down if most nodes say so.
//!
//! ```text
//!  own checks ──rise, fall──> own verdict ──┬──> other nodes ([balance.sync])
//!  other nodes ──their verdicts──> votes ───┴──> agreed ──> plan
//! ```
//!
//! Invariants: with the votes of a majority of the nodes, the state changes only if more than half of the votes are against it; with
//! less votes, it is the node's own verdict. The order of votes does not matter.
//! Thread-safety: plain functions.

/// Whether a backend is up. `own` is the verdict of this node's checks, `votes` are those of the other nodes, as far as they are
/// known, `is_up` is the present state, and `nodes` is the number of all nodes.
pub(crate) fn agreed(
    own: bool,
    votes: impl IntoIterator<Item = bool>,
    is_up: bool,
    nodes: usize,
) -> bool {
    let (mut all, mut up) = (1, usize::from(own));
    for vote in votes {
        all += 1;
        up += usize::from(vote);
    }
    match () {
        () if all * 2 <= nodes => own, // this node is cut off from most others
        () if up * 2 > all => true,
        () if up * 2 < all => false,
        () => is_up,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::agreed;

    #[test]
    fn most_votes_decide() {
        for (own, votes, is_up, nodes, wanted) in [
            (true, &[][..], false, 1, true),
            (false, &[true, true], true, 3, true),
            (true, &[false, false], true, 3, false),
            // As many for as against: it stays as it is.
            (true, &[false], true, 3, true),
            (true, &[false], false, 3, false),
            // The votes of two of four nodes are no majority.
            (true, &[false], false, 4, true),
            (false, &[], true, 3, false),
        ] {
            assert_eq!(agreed(own, votes.iter().copied(), is_up, nodes), wanted, "{own} {votes:?}");
        }
    }

    proptest! {
        /// Nodes that know the same votes, and had the same state, agree, whatever their own verdict is.
        #[test]
        fn nodes_with_the_same_votes_agree(votes in prop::collection::vec(any::<bool>(), 1..8), is_up: bool) {
            let all = votes.len();
            let of = |node: usize| {
                let others = (0..all).filter(|other| *other != node).map(|other| votes[other]);
                agreed(votes[node], others, is_up, all)
            };
            prop_assert!((0..all).all(|node| of(node) == of(0)));
        }

        /// One node alone cannot change what the others say.
        #[test]
        fn a_minority_changes_nothing(others in 2usize..8, is_up: bool, own: bool) {
            prop_assert_eq!(agreed(own, vec![is_up; others], is_up, others + 1), is_up);
        }
    }
}
