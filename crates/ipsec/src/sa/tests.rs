use super::*;

pub(crate) fn config(mode: Mode, suite: Suite) -> SaConfig {
    let len = if suite == Suite::AesGcm128 { 20 } else { 36 };
    SaConfig {
        src: "192.0.2.1".parse().unwrap(),
        dst: "192.0.2.2".parse().unwrap(),
        spi: 0x1000,
        reqid: 1,
        mode,
        suite,
        key: KeyMaterial::new((0..len).collect()),
        is_extended: false,
        window: 64,
        encap: None,
        limits: Limits::NONE,
        flags: Flags::default(),
        seq: 0,
        oseq: 0,
        line: 1,
    }
}

fn limited(limits: Limits, oseq: u64, is_extended: bool) -> Sa {
    let config = config(Mode::Tunnel, Suite::AesGcm128);
    Sa::new(SaConfig { limits, oseq, is_extended, ..config }, 0, 0).unwrap()
}

#[test]
fn numbers_are_taken_once_and_end_with_the_sa() {
    let sa = limited(Limits { hard_packets: 3, ..Limits::NONE }, 0, false);
    assert_eq!((sa.take(), sa.take()), (Some(1), Some(2)));
    assert!(!sa.give_back(1), "a number was taken after it");
    assert!(sa.give_back(2) && sa.sent() == 1 && sa.is_usable());
    assert_eq!((sa.take(), sa.take(), sa.take(), sa.take()), (Some(2), Some(3), None, None));
    assert!(!sa.is_usable() && sa.sent() == 3);

    let short = limited(Limits::NONE, u64::from(u32::MAX) - 1, false);
    assert_eq!(
        (short.take(), short.take()),
        (Some(u32::MAX.into()), None),
        "numbers do not wrap around"
    );
    let long = limited(Limits::NONE, u32::MAX.into(), true);
    assert_eq!(long.take(), Some(1 << 32));
    let full = limited(Limits::NONE, u64::MAX, true);
    assert_eq!((full.take(), full.take()), (None, None));
}

#[test]
fn a_run_ends_where_the_sa_ends() {
    let sa = limited(Limits { hard_packets: 50, ..Limits::NONE }, 7, false);
    assert_eq!(sa.take_run(45), Some((8, 45)));
    assert_eq!(sa.take_run(45), Some((53, 5)));
    assert_eq!((sa.take_run(45), sa.take(), sa.sent()), (None, None, 57));
    // Only the numbers that were taken last can be given back.
    assert!(!sa.give_back_run(8, 45) && sa.give_back_run(53, 5) && sa.give_back_run(8, 45));
    assert_eq!((sa.sent(), sa.take()), (7, Some(8)));
    let full = limited(Limits::NONE, u64::MAX - 3, true);
    assert_eq!(
        (full.take_run(9), full.take_run(9)),
        (Some((u64::MAX - 2, 2)), None),
        "numbers do not wrap around"
    );
    let bytes = limited(Limits { hard_bytes: 100, ..Limits::NONE }, 0, false);
    bytes.count(1, 100);
    assert_eq!(bytes.take_run(2), None);
}

#[test]
fn limits_of_bytes_end_an_sa_and_soft_limits_are_counted_once() {
    let limits =
        Limits { soft_packets: 2, soft_bytes: 250, hard_bytes: 400, hard_packets: u64::MAX };
    let sa = limited(limits, 0, false);
    let soft: Vec<u64> = (0..4)
        .map(|_| {
            Tally::default().add(&sa, 100);
            sa.counts.read().soft_limits
        })
        .collect();
    assert_eq!((soft, sa.take()), (vec![0, 1, 2, 2], None));
    assert_eq!((sa.counts.read().packets, sa.counts.read().bytes), (4, 400));
}

#[test]
fn a_tally_is_flushed_at_once_only_for_an_sa_with_limits() {
    let counted = |sa: &Sa| (sa.counts.read().packets, sa.counts.read().bytes);
    let (free, full) = (
        limited(Limits::NONE, 0, false),
        limited(Limits { hard_bytes: 1000, ..Limits::NONE }, 0, false),
    );
    let mut tally = Tally::default();
    (0..3).for_each(|_| tally.add(&free, 100));
    assert_eq!(counted(&free), (0, 0));
    tally.flush(&free);
    tally.flush(&full); // nothing is left
    assert_eq!((counted(&free), counted(&full)), ((3, 300), (0, 0)));
    tally.add(&full, 700);
    assert_eq!(counted(&full), (1, 700));
}

#[test]
fn the_iv_differs_from_packet_to_packet_and_the_key_is_hidden() {
    let sa = Sa::new(config(Mode::Tunnel, Suite::AesGcm256), u64::MAX, 0).unwrap();
    assert_eq!((sa.iv_of(1), sa.iv_of(2)), ([0; 8], [0, 0, 0, 0, 0, 0, 0, 1]));
    assert!(sa.config.key.is_empty());
    assert!(!format!("{sa:?}").contains("1, 2, 3, 4"));
}

#[test]
fn a_key_of_another_length_is_refused() {
    let config =
        SaConfig { key: KeyMaterial::new(vec![1; 35]), ..config(Mode::Tunnel, Suite::AesGcm256) };
    assert_eq!(Sa::new(config, 0, 0).unwrap_err(), BadKey::Length(35));
}
