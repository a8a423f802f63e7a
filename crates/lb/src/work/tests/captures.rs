//! Captured frames with correct checksums have correct checksums after every mode.

use flowyard_ports::mem::Frames;
use flowyard_ports::pcap;

use super::*;

/// Every capture with every mode, with services for the most frequent destination addresses.
#[test]
fn captures_through_every_mode_have_right_checksums() {
    let shared = std::env::var_os("FLOWYARD_SHARED").map(std::path::PathBuf::from);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let dir = shared.unwrap_or_else(|| root.into()).join("captures");
    let Ok(found) = std::fs::read_dir(&dir) else {
        let text = format_args!("skipped: needs ../shared/captures\n");
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), text);
        return;
    };
    let mut files: Vec<_> = found.flatten().map(|entry| entry.path()).collect();
    files.extend(
        files
            .clone()
            .iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flatten()
            .flatten()
            .map(|e| e.path()),
    );
    let (mut changed, mut checked) = (0u64, 0u64);
    for path in files.iter().filter(|path| path.is_file()) {
        let Ok(mut reader) = pcap::open(path) else { continue };
        let Ok(frames) = Frames::read_all(&mut reader) else { continue };
        let frames: Vec<Vec<u8>> = some(frames, 2000);
        for mode in [Mode::Dsr, Mode::Dnat, Mode::FullNat, Mode::Ipip, Mode::Gue] {
            let mut work = group(services_of(&frames, mode), 1).1.remove(0);
            for data in frames.iter().filter(|data| data.len() <= 1800) {
                let (action, got) = balance(&mut work, data);
                if matches!(action.to, To::Port(1..=9)) {
                    changed += u64::from(&got != data);
                    checked += u64::from(right(data));
                    assert!(right(&got) || !right(data), "{} {mode:?}", path.display());
                }
            }
        }
    }
    let text = format_args!("{changed} frames changed, {checked} of them with right checksums\n");
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), text);
    assert!(checked > 1000, "{checked}");
}

/// The first frames of a capture; none if its link type is not Ethernet.
fn some(frames: Frames, most: usize) -> Vec<Vec<u8>> {
    use flowyard_ports::port::{Pace, SourceRx};
    use flowyard_yard::Rx;
    let mut rx = SourceRx::new(0, Box::new(frames), Pace::Fast);
    let (mut pool, mut batch, mut all) = (Pool::new(64, 65_535), Batch::default(), Vec::new());
    loop {
        let got = rx.rx(&mut batch, &mut pool, 0);
        for lane in batch.lanes() {
            if pool.meta(&batch.frames[lane]).link == LinkType::Ethernet {
                all.push(pool.bytes(&batch.frames[lane]).to_vec());
            }
        }
        let empty = batch.is_empty();
        batch.drain().for_each(|frame| pool.put(frame));
        if got.ended || empty || all.len() >= most {
            return all;
        }
    }
}

fn services_of(frames: &[Vec<u8>], mode: Mode) -> Vec<Service> {
    let mut vips = std::collections::BTreeMap::new();
    for data in frames {
        let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
        if let Some(vip) = key.dst_ip().filter(|_| proto::has_ports(key.proto)) {
            *vips.entry((vip, key.proto)).or_insert(0) += 1;
        }
    }
    let mut most: Vec<_> = vips.into_iter().collect();
    most.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
    let services = (0u8..).zip(most.into_iter().take(60)).map(|(n, ((vip, proto), _))| {
        let mut service = service(&n.to_string(), vip, proto, 1..=65_535, mode);
        service.mss = Some(900);
        let addr = |b: u8| match vip {
            IpAddr::V4(_) => IpAddr::from([10, 99, n, b]),
            IpAddr::V6(_) => IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n, b]),
        };
        service.backends = (1..=3).map(|b| backend(b, addr(b), None)).collect();
        service
    });
    services.collect()
}
