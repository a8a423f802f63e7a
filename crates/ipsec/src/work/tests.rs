//! Two gateways: what one seals, the other opens.

use flowyard_frame::{Action, Lanes, To};
use flowyard_pool::Meta;
use flowyard_works::{Hop, Routes};
use flowyard_yard::Arrivals;

use super::*;
use crate::hub::Settings;
use crate::xfrm;

mod refused;
mod unfinished;

const KEY: &str = "0x000102030405060708090a0b0c0d0e0f10111213";

/// SAs in both directions, and the policies of the gateway at 192.0.2.1 or of the other one.
fn hub(is_first: bool, more: &str, stamps: usize) -> Arc<IpsecHub> {
    let sa = |src: u8, spi: u32| {
        format!(
            "src 192.0.2.{src} dst 192.0.2.{}\n proto esp spi {spi} reqid 1 mode tunnel\n replay-window 64\n \
             aead rfc4106(gcm(aes)) {KEY} 128\n encap type espinudp sport 4500 dport 4500 addr 0.0.0.0\n",
            3 - src
        )
    };
    let states = format!("{}{}", sa(1, 0x1000), sa(2, 0x2000));
    let (here, there) = if is_first { (1, 2) } else { (2, 1) };
    let policies = format!(
        "src 10.{here}.0.0/16 dst 10.{there}.0.0/16\n dir out priority 10\n tmpl src 192.0.2.{here} dst \
         192.0.2.{there}\n proto esp reqid 1 mode tunnel\n\
         src 10.{there}.0.0/16 dst 10.{here}.0.0/16\n dir fwd priority 10\n tmpl src 192.0.2.{there} dst \
         192.0.2.{here}\n proto esp reqid 1 mode tunnel\n{more}"
    );
    let settings = Settings { stamps, ..settings(&states, &policies) };
    Arc::new(IpsecHub::new(&settings).unwrap())
}

/// The settings of a gateway whose frames are not numbered at arrival.
fn settings(states: &str, policies: &str) -> Settings {
    Settings {
        sas: xfrm::states(states).unwrap(),
        policies: xfrm::policies(policies).unwrap(),
        mtu: 1500,
        discards_unmatched: false,
        slack: 0,
        stamps: 0,
        seeds: [1, 2],
    }
}

fn gateway(hub: &Arc<IpsecHub>) -> Ipsec {
    let mut router = Routes::new(2);
    let hop = Hop { port: 1, src: [2; 6], dst: [4; 6] };
    router.put(&"0.0.0.0/0".parse().unwrap(), hop).unwrap();
    Ipsec::new(Arc::clone(hub), Router::new(router))
}

/// A UDP packet from 10.1.0.1 in an Ethernet frame.
fn frame(dst: [u8; 4], dport: u16, payload: usize) -> Vec<u8> {
    let mut packet = vec![0; 28 + payload];
    packet[..2].copy_from_slice(&[0x45, 0]);
    packet[2..4].copy_from_slice(&(28 + payload as u16).to_be_bytes());
    packet[6] = 0x40;
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&[10, 1, 0, 1]);
    packet[16..20].copy_from_slice(&dst);
    packet[20..24].copy_from_slice(&[[0x10, 0], dport.to_be_bytes()].concat());
    packet[24..26].copy_from_slice(&(8 + payload as u16).to_be_bytes());
    crate::ip::write_sum(&mut packet, 20);
    [&[2; 12][..], &[8, 0], &packet].concat()
}

fn batch(pool: &mut Pool, frames: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::default();
    for bytes in frames {
        let mut key = FlowKey::ZERO;
        if !parse::fast(bytes, 0, &mut key) {
            key = parse::key(&Headers::parse(LinkType::Ethernet, bytes), bytes, 0);
        }
        let meta = Meta { wire_len: bytes.len() as u32, ..Meta::default() };
        let lane = batch.push(pool.copy(bytes, meta).unwrap(), key).unwrap();
        batch.actions[lane] = Action::queue(0);
    }
    batch
}

/// What comes of frames: bytes that leave by port 1, or a reason.
fn worked(
    work: &mut Ipsec,
    pool: &mut Pool,
    frames: &[Vec<u8>],
) -> Vec<Result<Vec<u8>, DropReason>> {
    let mut batch = batch(pool, frames);
    work.work(&mut batch, pool, 0);
    results(&mut batch, pool)
}

fn results(batch: &mut Batch, pool: &mut Pool) -> Vec<Result<Vec<u8>, DropReason>> {
    let all = batch.lanes().map(|lane| match batch.actions[lane].to {
        To::Port(1) => Ok(pool.bytes(&batch.frames[lane]).to_vec()),
        To::Drop(code) => Err(DropReason::of(code)),
        other => panic!("{other:?}"),
    });
    let all = all.collect();
    pool.put_batch(batch);
    all
}

#[test]
fn one_gateway_seals_and_the_other_opens() {
    let (one, two) = (hub(true, "", 0), hub(false, "", 0));
    let (mut a, mut b) = (gateway(&one), gateway(&two));
    let mut pool = Pool::new(64, 2048);
    let mut sent: Vec<_> = (0..20).map(|n| frame([10, 2, 0, 1], 53, n * 50)).collect();
    sent[0].resize(60, 0xee); // padding of Ethernet
    let sealed: Vec<_> = worked(&mut a, &mut pool, &sent).into_iter().map(Result::unwrap).collect();
    for sealed in &sealed {
        assert_eq!(
            (&sealed[..6], &sealed[26..34]),
            (&[4; 6][..], &[192, 0, 2, 1, 192, 0, 2, 2][..])
        );
        assert_eq!(
            (sealed[22], sealed[23], &sealed[36..38]),
            (64, 17, &4500_u16.to_be_bytes()[..])
        );
    }
    let opened = worked(&mut b, &mut pool, &sealed);
    for (sent, opened) in sent.iter().zip(&opened) {
        let opened = opened.as_ref().unwrap();
        let total = 14 + usize::from(u16::from_be_bytes([sent[16], sent[17]]));
        assert_eq!(opened.len(), total);
        assert_eq!(opened[22], 62, "two routers");
        assert_eq!(opened[26..total], sent[26..total]);
    }
    let again = worked(&mut b, &mut pool, &sealed);
    assert!(again.iter().all(|result| *result == Err(DropReason::Replayed)));
    let counts = two.sas()[0].counts.read();
    assert_eq!((counts.packets, counts.replayed), (20, 20));
    assert!(two.is_inbound(0) && !two.is_inbound(1) && !one.is_inbound(0));
    assert_eq!(pool.held(), 0);
}

#[test]
fn policies_decide() {
    let more = "src 10.1.0.0/16 dst 10.3.0.0/16\n dir out action block priority 1\n\
                src 10.1.0.0/16 dst 10.2.0.0/16 proto udp dport 22\n dir out priority 1\n\
                src 10.1.0.0/16 dst 10.4.0.0/16\n dir out priority 1\n tmpl src 192.0.2.1 dst 192.0.2.9\n proto esp \
                reqid 7 mode tunnel\n";
    let (one, two) = (hub(true, more, 0), hub(false, "", 0));
    let (mut a, mut b) = (gateway(&one), gateway(&two));
    let mut pool = Pool::new(64, 2048);
    let mut fragment = frame([10, 2, 0, 1], 22, 8);
    fragment[20] = 0x20;
    crate::ip::write_sum(&mut fragment[14..], 20);
    let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
    let sent = [
        frame([10, 3, 0, 1], 53, 8),
        frame([10, 2, 0, 1], 22, 8),
        frame([10, 4, 0, 1], 53, 8),
        fragment,
        arp,
        frame([10, 9, 0, 1], 53, 8),
    ];
    let got = worked(&mut a, &mut pool, &sent);
    let reasons: Vec<_> = got.iter().map(|result| result.as_ref().err().copied()).collect();
    let wanted = [
        Some(DropReason::Policy),
        None,
        Some(DropReason::NoSa),
        Some(DropReason::IpsecFragment),
        Some(DropReason::NotIp),
        None,
    ];
    assert_eq!(reasons, wanted);
    assert_eq!(got[1].as_ref().unwrap()[26..], sent[1][26..], "a more urgent policy lets it pass");
    // What must come protected, and did not.
    assert_eq!(
        worked(&mut b, &mut pool, &[frame([10, 2, 0, 1], 53, 8)]),
        [Err(DropReason::Policy)]
    );
}

#[test]
fn what_does_not_fit_into_the_tunnel_is_reported_to_its_sender() {
    let one = hub(true, "", 0);
    let mut a = gateway(&one);
    let mut pool = Pool::new(64, 2048);
    let longest = |len: usize| frame([10, 2, 0, 1], 53, len - 28);
    let mut may_be_cut = longest(1472);
    may_be_cut[20] = 0;
    crate::ip::write_sum(&mut may_be_cut[14..], 20);
    let got = worked(&mut a, &mut pool, &[longest(1472), may_be_cut]);
    assert_eq!(got[1], Err(DropReason::TooBig));
    let error = got[0].as_ref().unwrap();
    assert_eq!(
        (&error[26..30], &error[30..34], &error[34..36]),
        (&[192, 0, 2, 1][..], &[10, 1, 0, 1][..], &[3, 4][..])
    );
    assert_eq!((flowyard_wire::checksum::checksum(&error[34..]), error.len()), (0, 14 + 576));
    let mtu = usize::from(u16::from_be_bytes([error[40], error[41]]));
    let got = worked(&mut a, &mut pool, &[longest(mtu)]);
    assert!((1497..=1500).contains(&(got[0].as_ref().unwrap().len() - 14)), "{mtu}");
    assert_eq!(one.totals.values()[3], ("too_big_sent", 1));
    // No error about an error.
    let mut icmp = longest(1480);
    icmp[23] = 1;
    icmp[34] = 3;
    crate::ip::write_sum(&mut icmp[14..], 20);
    assert_eq!(worked(&mut a, &mut pool, &[icmp]), [Err(DropReason::TooBig)]);
}

#[test]
fn frames_of_an_ordered_queue_are_sealed_with_the_numbers_of_their_arrival() {
    let (one, two) = (hub(true, "", 64), hub(false, "", 0));
    let mut pool = Pool::new(64, 2048);
    let sent: Vec<_> =
        (0..8).map(|n| frame([10, if n == 3 { 9 } else { 2 }, 0, 1], 53, n)).collect();
    let (mut first, mut second) = (batch(&mut pool, &sent), batch(&mut pool, &sent));
    for batch in [&first, &second] {
        one.look(&pool, batch, batch.lanes());
        one.number(&pool, batch, batch.lanes());
    }
    // The last two found the queue full, and enter later.
    let late = Lanes(0b1100_0000);
    one.refused(&pool, &second, late);
    one.look(&pool, &second, late);
    one.number(&pool, &second, late);
    // The later batch is worked on first.
    let (mut a, mut other, mut b) = (gateway(&one), gateway(&one), gateway(&two));
    a.work(&mut second, &pool, 0);
    other.work(&mut first, &pool, 0);
    let [first, second] = [&mut first, &mut second].map(|batch| results(batch, &mut pool));
    let number = |frame: &Result<Vec<u8>, DropReason>| {
        let frame = frame.as_ref().unwrap();
        (frame[23] == 17 && frame[36..38] == 4500_u16.to_be_bytes())
            .then(|| u32::from_be_bytes(*frame[46..].first_chunk().unwrap()))
    };
    let numbers: Vec<_> = first.iter().chain(&second).filter_map(number).collect();
    assert_eq!(numbers, (1..=14).collect::<Vec<u32>>());
    let all: Vec<_> = first.into_iter().chain(second).map(Result::unwrap).collect();
    let protected: Vec<_> = all.into_iter().filter(|frame| frame[26] == 192).collect();
    assert!(worked(&mut b, &mut pool, &protected).iter().all(Result::is_ok));
}

#[test]
fn an_sa_that_has_ended_is_followed_by_the_next() {
    let state = |spi: u32, hard: &str| {
        format!(
            "src 192.0.2.1 dst 192.0.2.2\n proto esp spi {spi} reqid 1 mode tunnel\n aead rfc4106(gcm(aes)) {KEY} 128\n \
             limit: soft (INF)(bytes), hard (INF)(bytes)\n limit: soft 1(packets), hard {hard}(packets)\n"
        )
    };
    let policy = "src 10.1.0.0/16 dst 10.2.0.0/16\n dir out priority 10\n tmpl src 192.0.2.1 dst 192.0.2.2\n proto esp \
                  reqid 1 mode tunnel\n";
    let states = format!("{}{}", state(0x1000, "2"), state(0x1001, "3"));
    let settings = Settings { discards_unmatched: true, ..settings(&states, policy) };
    let one = Arc::new(IpsecHub::new(&settings).unwrap());
    let mut pool = Pool::new(64, 2048);
    let sent: Vec<_> = (0..6).map(|n| frame([10, 2, 0, 1], 53, n)).collect();
    let got = worked(&mut gateway(&one), &mut pool, &sent);
    let spis: Vec<_> = got
        .iter()
        .map(|r| r.as_ref().map(|f| u32::from_be_bytes(*f[34..].first_chunk().unwrap())))
        .collect();
    let ended = &DropReason::SaExpired;
    assert_eq!(spis, [Ok(0x1000), Ok(0x1000), Ok(0x1001), Ok(0x1001), Ok(0x1001), Err(ended)]);
    let counts = one.sas().iter().map(|sa| sa.counts.read()).collect::<Vec<_>>();
    assert_eq!((counts[0].soft_limits, counts[1].soft_limits), (1, 1));
    assert_eq!((counts[0].expired, counts[1].expired), (0, 1));
    // Packets without a policy are dropped by these settings.
    assert_eq!(
        worked(&mut gateway(&one), &mut pool, &[frame([10, 9, 0, 1], 53, 1)]),
        [Err(DropReason::Policy)]
    );
}
