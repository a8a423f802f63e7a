//! Segments and completed checksums beside those of the kernel: frames with a virtio-net header go through a packet
//! socket into a veth without offloads, and what arrives at its other end is compared byte by byte.
//!
//! ```text
//!  Stack -> [virtio-net header | long frame] -> packet socket -> va === vb -> packet socket -> frames
//!      \--> Cut -> frames                            the kernel cuts in front of va           equal?
//! ```

use std::fs::File;
use std::io::Read;

use flowyard_livekit::{Net, sys};
use flowyard_testkit::harness::Need;
use flowyard_testkit::stacks::{Stack, Tunnel};
use flowyard_testkit::{Rng, note};
use flowyard_wire::offload::complete;
use flowyard_wire::segment::Cut;
use flowyard_wire::{Headers, LinkType, Offload, Segment};

const NEEDS: &[Need] =
    &[Need::Live, Need::Namespaces, Need::Program("ip"), Need::Program("ethtool")];

flowyard_testkit::tests! {
    a_thousand_frames_are_cut_as_by_the_kernel needs NEEDS,
    tunnels_are_cut_as_by_the_kernel needs NEEDS,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}

/// What the sender of `stack` asks for; without `size`, only its checksum.
fn offload(stack: &Stack, size: Option<u16>) -> Offload {
    let segment = match (stack.tcp, stack.v6) {
        (true, false) => Segment::Tcp4,
        (true, true) => Segment::Tcp6,
        (false, _) => Segment::Udp,
    };
    let transport_len = if stack.tcp { 20 + stack.tcp_options.len() as u8 } else { 8 };
    let ecn = if stack.tcp && stack.flags & 0x80 != 0 { Offload::ECN } else { 0 };
    let checksum = Offload {
        flags: Offload::PARTIAL,
        checksum_start: stack.l4() as u16,
        checksum_offset: if stack.tcp { 16 } else { 6 },
        ..Offload::NONE
    };
    match size {
        Some(segment_bytes) => {
            let flags = Offload::PARTIAL | ecn;
            Offload { segment, flags, segment_bytes, transport_len, ..checksum }
        }
        None => checksum,
    }
}

/// What comes of a frame on a wire, by ourselves.
fn ours(frame: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    if offload.segment == Segment::None {
        let mut frame = frame.to_vec();
        assert!(complete(&mut frame, offload));
        return vec![frame];
    }
    let cut = Cut::new(frame, offload).expect("the frame can be cut");
    let of = |n| {
        let mut out = vec![0; cut.len(n)];
        assert_eq!(cut.write(frame, n, &mut out), out.len());
        out
    };
    (0..cut.count()).map(of).collect()
}

/// Two namespaces with a veth between them, of which the sender's end has no offloads.
fn pair() -> (Net, Net) {
    let (a, b) = (Net::new().unwrap(), Net::new().unwrap());
    a.cable("va", &b, "vb", 1);
    a.sh("ethtool -K va tx off tso off; ethtool -K va tx-udp-segmentation off");
    b.sh("ethtool -K vb gro off");
    (a, b)
}

/// The next frame; fails if none comes.
fn receive(listener: &mut File) -> Vec<u8> {
    let mut bytes = vec![0; 70_000];
    let len = listener.read(&mut bytes).expect("the kernel sends as many frames as we do");
    bytes.truncate(len);
    bytes
}

/// A frame without tunnel or tag: the kernel takes tags out of received frames.
fn plain(rng: &mut Rng, payload: usize) -> Stack {
    Stack { vlan: None, tunnels: Vec::new(), ..Stack::random(rng, payload) }
}

fn a_thousand_frames_are_cut_as_by_the_kernel() {
    let (a, b) = pair();
    let mut listener = File::from(b.within(|| sys::packet_listener("vb")).unwrap());
    let sender = a.within(|| sys::packet_socket("va")).unwrap();
    sys::virtio_headers(&sender).unwrap();
    let mut rng = Rng::new(66);
    let (mut cut, mut segments, mut bytes) = (0, 0, 0);
    for n in 0..1100 {
        let size = 100 + rng.below(1300) as u16;
        let is_long = n % 11 != 0;
        let most = if is_long { 60_000.min(usize::from(size) * 120) } else { 1300 };
        let mut stack = plain(&mut rng, most);
        if is_long {
            stack.payload.resize(stack.payload.len().max(usize::from(size) + 1), 7);
        }
        let asked = offload(&stack, is_long.then_some(size));
        let frame = stack.partial();
        let header = asked.to_virtio();
        assert_eq!(Offload::from_virtio(&header, &frame), Ok(asked));
        let want = ours(&frame, asked);
        sys::send(&sender, &[&header[..], &frame].concat())
            .unwrap_or_else(|e| panic!("{e}: {asked:?}"));
        for (at, want) in want.iter().enumerate() {
            let got = receive(&mut listener);
            assert!(
                got == *want,
                "frame {n}, segment {at}: {got:02x?}, not {want:02x?}, {asked:?}"
            );
        }
        cut += usize::from(is_long);
        segments += if is_long { want.len() } else { 0 };
        bytes += want.iter().map(Vec::len).sum::<usize>();
    }
    note!(
        "{cut} frames became {segments} segments, {bytes} bytes, all equal to those of the kernel"
    );
    assert!(cut >= 1000);
}

/// The device that makes tunnel `tunnel` over va, if the kernel has it, and the frame's link there.
fn device(tunnel: Tunnel) -> Option<&'static str> {
    Some(match tunnel {
        Tunnel::Vxlan(false) => "vxlan id 5 dev va remote 10.9.0.2 dstport 4789 noudpcsum",
        Tunnel::Vxlan(true) => "vxlan id 5 dev va remote 10.9.0.2 dstport 4789 udpcsum",
        Tunnel::Geneve(false) => "geneve id 5 remote 10.9.0.2 dstport 6081 noudpcsum",
        Tunnel::Geneve(true) => "geneve id 5 remote 10.9.0.2 dstport 6081 udpcsum",
        Tunnel::GreEthernet(false) => "gretap remote 10.9.0.2 local 10.9.0.1 key 7 nopmtudisc",
        Tunnel::GreEthernet(true) => "gretap remote 10.9.0.2 local 10.9.0.1 key 7 csum",
        _ => return None,
    })
}

/// The kernel puts a long frame into a tunnel and cuts it. Its first segment has the headers around it; with these and
/// the long frame we make the same segments.
fn tunnels_are_cut_as_by_the_kernel() {
    let mut missing = Vec::new();
    let mut compared = 0;
    for tunnel in Tunnel::ALL {
        let Some(device) = device(tunnel) else { continue };
        let (a, b) = pair();
        a.sh("ip addr add 10.9.0.1/24 dev va");
        b.sh("ip link set vb address 02:00:00:00:00:09");
        a.sh("ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:09 dev va");
        if !a.run(&format!("ip link add tun type {device} && ip link set tun up")).status.success()
        {
            missing.push(device.split(' ').next().unwrap_or_default());
            continue;
        }
        let mut listener = File::from(b.within(|| sys::packet_listener("vb")).unwrap());
        let sender = a.within(|| sys::packet_socket("tun")).unwrap();
        sys::virtio_headers(&sender).unwrap();
        let mut rng = Rng::new(67);
        for n in 0..100 {
            let size = 100 + rng.below(1100) as u16;
            let mut stack = plain(&mut rng, 50_000.min(usize::from(size) * 100));
            stack.payload.resize(stack.payload.len().max(usize::from(size) + 1), 7);
            let (frame, asked) = (stack.partial(), offload(&stack, Some(size)));
            sys::send(&sender, &[&asked.to_virtio()[..], &frame].concat()).unwrap();
            let first = receive(&mut listener);
            let outer = first.len() - (asked.headers_len() + usize::from(size));
            let mut long = [&first[..outer], &frame].concat();
            set_lengths(&mut long, outer);
            // The kernel counts the identification of the tunnel up, or leaves it 0 if DF is set: see the second.
            let second = receive(&mut listener);
            let fixed = second[18..20] == first[18..20];
            let mut asked = asked.shifted(outer as isize).unwrap();
            asked.flags |= if fixed { Offload::FIXED_OUTER_ID } else { 0 };
            let want = ours(&long, asked);
            for (at, want) in want.iter().enumerate() {
                let got = match at {
                    0 => first.clone(),
                    1 => second.clone(),
                    _ => receive(&mut listener),
                };
                assert!(
                    got == *want,
                    "{tunnel:?}, frame {n}, segment {at}: {got:02x?}, not {want:02x?}"
                );
            }
            compared += want.len();
        }
    }
    note!("{compared} segments in tunnels are equal to those of the kernel; it has no {missing:?}");
    assert!(compared > 0 || !missing.is_empty());
}

/// The lengths of the headers in front of `inner`, which are those of a segment.
fn set_lengths(frame: &mut [u8], inner: usize) {
    let headers = Headers::parse(LinkType::Ethernet, &frame[..inner]);
    let (l3, l4, len) = (headers.l3 as usize, headers.l4 as usize, frame.len());
    frame[l3 + 2..l3 + 4].copy_from_slice(&((len - l3) as u16).to_be_bytes());
    if headers.proto == 17 {
        frame[l4 + 4..l4 + 6].copy_from_slice(&((len - l4) as u16).to_be_bytes());
    }
}
