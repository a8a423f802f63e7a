//! Where the guest's adapter puts frames, and where the model says that it does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use flowyard_adapter::rss::{RssConfig, parse_ethtool};
use flowyard_adapter::{Profile, Rss};
use flowyard_frame::{FlowKey, Rng, proto};
use flowyard_livekit::guest::{Guest, Image, MAC, QUEUES, send};
use flowyard_testkit::{Build, note};

use crate::{cache, kernel, rounds};

flowyard_testkit::tests! {
    ten_thousand_flows_land_where_the_model_says_under_20_keys_and_tables,
}

const FLOWS: usize = 10_000;

/// A random frame to the guest: TCP, UDP, other protocols and fragments, over IPv4 and IPv6.
pub(crate) fn frame(random: &mut Rng) -> (FlowKey, Vec<u8>) {
    let is_ipv4 = random.below(2) == 0;
    let mut address = || -> IpAddr {
        if is_ipv4 {
            // 1 to 223: unicast
            Ipv4Addr::from(
                (random.bits() as u32 & 0xff_ffff) | (1 + random.below(223) as u32) << 24,
            )
            .into()
        } else {
            Ipv6Addr::from(u128::from(random.bits()) << 64 | u128::from(random.bits()) | 0x2 << 124)
                .into()
        }
    };
    let (src, dst) = (address(), address());
    let protocol =
        [proto::TCP, proto::TCP, proto::UDP, proto::UDP, proto::SCTP][random.below(5) as usize];
    let mut key =
        FlowKey::five_tuple(protocol, src, random.bits() as u16, dst, random.bits() as u16);
    (key.eth_dst, key.eth_src) = (MAC, [2, 0, 0, 0, 0, 1]);
    let build = Build::new(&key).frame_len(64);
    match random.below(16) {
        0 => {
            key.frag = 1;
            (key, build.fragment(0, true).bytes())
        }
        _ => (key, build.bytes()),
    }
}

/// The counters, once they have grown by `frames` or do not grow any more.
#[allow(clippy::disallowed_methods, reason = "the guest runs in real time")]
fn settled(guest: &mut Guest, before: &[u64], frames: u64) -> Vec<u64> {
    let mut last = (Instant::now(), 0);
    loop {
        let now = guest.received();
        let grown: Vec<u64> = now.iter().zip(before).map(|(now, before)| now - before).collect();
        let sum = grown.iter().sum();
        if sum >= frames || last.0.elapsed() > Duration::from_secs(3) {
            return grown;
        }
        if sum != last.1 {
            last = (Instant::now(), sum);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the guest runs in real time")]
fn ten_thousand_flows_land_where_the_model_says_under_20_keys_and_tables() {
    let started = Instant::now();
    let image = Image::new(&cache(), &kernel().unwrap(), &[]);
    let mut guest = Guest::boot(&image);
    image.delete();
    note!("booted after {:?}", started.elapsed());
    let mut random = Rng::new(18);
    let profile = Profile::find("virtio").unwrap();
    let keys = rounds(20, 5);
    for round in 0..keys {
        let key: Vec<String> = (0..40).map(|_| format!("{:02x}", random.below(256))).collect();
        let table = if round % 4 == 0 {
            format!("equal {}", 1 + random.below(QUEUES.into()))
        } else {
            let weights: Vec<_> = (0..QUEUES)
                .map(|queue| (random.below(5) + u64::from(queue == 0)).to_string())
                .collect();
            format!("weight {}", weights.join(" "))
        };
        guest.sh(&format!("ethtool -X eth0 hkey {} {table}", key.join(":")));
        let read = parse_ethtool("ethtool -x", &guest.sh("ethtool -x eth0")).unwrap();
        let bytes = read.key.clone().unwrap();
        assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>(), key);
        let config = RssConfig { key: bytes, reta: Some(read.reta), ..RssConfig::default() };
        let rss = Rss::new(profile, QUEUES, config).unwrap();
        let mut predicted = vec![0; QUEUES.into()];
        let mut frames = Vec::with_capacity(FLOWS);
        for _ in 0..FLOWS {
            let (key, bytes) = frame(&mut random);
            predicted[usize::from(rss.queue(rss.hash(&key)))] += 1;
            frames.push(bytes);
        }
        let mut pause = Duration::from_millis(5);
        let counted = loop {
            let before = guest.received();
            send(guest.net(), frames.clone(), pause);
            let counted = settled(&mut guest, &before, FLOWS as u64);
            // A frame that QEMU had no room for was never steered. Which one is not known, so all are sent again.
            if counted.iter().sum::<u64>() >= FLOWS as u64 || pause > Duration::from_millis(100) {
                break counted;
            }
            note!("round {round}: {counted:?} of {FLOWS} with a pause of {pause:?}");
            pause *= 2;
        };
        assert_eq!(counted, predicted, "round {round}: {table}, key {}", key.join(":"));
    }
    note!("{keys} keys and tables after {:?}", started.elapsed());
}
