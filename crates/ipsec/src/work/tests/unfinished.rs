//! Unfinished frames: what leaves is what leaves if each frame is finished in front of the gateway, byte for byte.
//!
//! ```text
//!  long and partial frames ──> gateway ──────────────────> finished by the port, if still unfinished
//!  the same ──> finished ────> gateway with equal keys ──> the same bytes by the same ports, in the same order
//! ```

use flowyard_testkit::Rng;
use flowyard_testkit::stacks::{Stack, Tunnel};
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment, offload};
use proptest::prelude::*;

use super::*;

/// A frame, and what is left to do to it.
type Unfinished = (Vec<u8>, Offload);

/// The frame of `stack`, to be cut into segments of `size` bytes, or not if that is 0.
fn unfinished(stack: &Stack, size: usize, is_partial: bool, fixed: u8) -> Unfinished {
    let size = if stack.payload.len() <= size { 0 } else { size as u16 };
    let is_partial = is_partial || size > 0 && !stack.tcp;
    let bytes = if is_partial { stack.partial() } else { stack.frame() };
    if size == 0 && !is_partial {
        return (bytes, Offload::NONE);
    }
    let (kind, checksum_offset, transport_len) = match (stack.tcp, stack.v6) {
        (true, false) => (Segment::Tcp4, 16, 20 + stack.tcp_options.len() as u8),
        (true, true) => (Segment::Tcp6, 16, 20 + stack.tcp_options.len() as u8),
        (false, _) => (Segment::Udp, 6, 8),
    };
    let flags = if is_partial { Offload::PARTIAL } else { 0 };
    let checksum_start = stack.l4() as u16;
    let alone = Offload { flags, checksum_start, checksum_offset, ..Offload::NONE };
    let left = match size {
        0 => alone,
        segment_bytes => {
            let flags = flags | fixed << 3;
            Offload { segment: kind, flags, segment_bytes, transport_len, ..alone }
        }
    };
    (bytes, left)
}

/// The frames that a port puts on a wire.
fn finished((bytes, left): &Unfinished) -> Vec<Vec<u8>> {
    if left.segment == Segment::None {
        let mut bytes = bytes.clone();
        assert!(offload::complete(&mut bytes, *left));
        return vec![bytes];
    }
    let cut = Cut::new(bytes, *left).unwrap();
    let one = |n: usize| {
        let mut out = vec![0; cut.len(n)];
        assert_eq!(cut.write(bytes, n, &mut out), out.len());
        out
    };
    (0..cut.count()).map(one).collect()
}

/// What came of frames: what left by which port, in order, and why the others did not.
#[derive(Clone, PartialEq, Debug, Default)]
struct Came {
    left: Vec<(u16, Vec<u8>)>,
    dropped: Vec<DropReason>,
    /// Frames that left unfinished.
    stayed: usize,
}

impl Came {
    fn leaves(&mut self, pool: &Pool, frame: &Frame, port: u16) {
        let meta = pool.meta(frame);
        assert_eq!(meta.wire_len as usize, frame.len());
        self.stayed += usize::from(!meta.offload.is_none());
        let all = finished(&(pool.bytes(frame).to_vec(), meta.offload));
        self.left.extend(all.into_iter().map(|bytes| (port, bytes)));
    }
}

/// A gateway, and the frames of its pool.
struct Bed {
    work: Ipsec,
    hub: Arc<IpsecHub>,
    pool: Pool,
}

impl Bed {
    fn new(settings: &Settings, buffers: usize) -> Self {
        let hub = Arc::new(IpsecHub::new(settings).unwrap());
        let mut routes = Routes::new(8);
        for (prefix, port) in [("0.0.0.0/0", 1), ("::/0", 2), ("10.0.0.0/16", 3), ("fd00::/16", 4)]
        {
            let hop = Hop { port, src: [2; 6], dst: [4; 6] };
            routes.put(&prefix.parse().unwrap(), hop).unwrap();
        }
        // A packet that no longer fits its buffer is dropped; segments are sealed in buffers of the right size.
        // The first handle gives its buffers back, so that all are free to the gateway.
        let pool = Pool::new(buffers, 4096).with_large(64).unwrap().share();
        Self { work: Ipsec::new(Arc::clone(&hub), Router::new(routes)), hub, pool }
    }

    fn batch(&mut self, frames: &[Unfinished]) -> Batch {
        let mut batch = Batch::default();
        for (bytes, offload) in frames {
            let meta = Meta { wire_len: bytes.len() as u32, offload: *offload, ..Meta::default() };
            let frame = self.pool.copy(bytes, meta).unwrap();
            let lane = batch.push(frame, key_of(bytes, 0)).unwrap();
            batch.actions[lane] = Action::queue(0);
        }
        batch
    }

    /// One batch. Frames of an ordered queue are numbered in front of the work.
    fn pass(&mut self, frames: &[Unfinished]) -> Came {
        let mut batch = self.batch(frames);
        if self.hub.has_stamps() {
            self.hub.look(&self.pool, &batch, batch.lanes());
            self.hub.number(&self.pool, &batch, batch.lanes());
        }
        self.work.work(&mut batch, &self.pool, 5);
        self.end(&mut batch)
    }

    fn end(&mut self, batch: &mut Batch) -> Came {
        let mut came = Came::default();
        let actions = batch.actions;
        for (lane, mut frame) in batch.drain().enumerate() {
            match actions[lane].to {
                To::Port(port) => came.leaves(&self.pool, &frame, port),
                To::Drop(code) => came.dropped.push(DropReason::of(code)),
                to => {
                    assert_eq!(to, To::CHAIN);
                    while let Some((segment, port)) = self.pool.untie(&mut frame) {
                        came.leaves(&self.pool, &segment, port);
                        self.pool.put(segment);
                    }
                    let (port, (missing, why)) = self.pool.last(&mut frame);
                    came.dropped.extend((0..missing).map(|_| DropReason::of(why)));
                    came.leaves(&self.pool, &frame, port);
                }
            }
            self.pool.put_all(frame);
        }
        came
    }

    /// No frame is lost.
    fn all_are_back(self) {
        drop(self.work);
        assert_eq!(self.pool.held(), 0);
    }
}

/// An address of [`Stack`].
fn address(v6: bool, last: u8) -> String {
    if v6 { format!("fd00::{last:x}") } else { format!("10.0.0.{last}") }
}

/// A gateway for frames of [`Stack`].
#[derive(Clone, Debug)]
struct World {
    /// Whether the tunnel is IPv6, and whether it is in UDP.
    outer: (bool, bool),
    is_transport: bool,
    is_extended: bool,
    /// The limit of the first SA, in packets; others follow.
    hard: Option<u32>,
    /// Selectors and actions of policies: protocol, whether packets are protected, pass or are dropped.
    policies: Vec<(Option<&'static str>, u8)>,
    discards: bool,
    mtu: usize,
    has_stamps: bool,
}

impl World {
    fn random(rng: &mut Rng) -> Self {
        let mut pick = |limit: u64| rng.below(limit);
        let is_transport = pick(4) == 0;
        let proto = [None, Some("tcp"), Some("udp"), Some("udp dport 80")];
        Self {
            outer: (pick(2) == 0, pick(2) == 0 && !is_transport),
            is_transport,
            is_extended: pick(2) == 0,
            hard: (pick(4) == 0).then(|| 1 + pick(70) as u32),
            policies: (0..1 + pick(2))
                .map(|_| (proto[pick(4) as usize], [0, 0, 0, 0, 1, 2][pick(6) as usize]))
                .collect(),
            discards: pick(3) == 0,
            mtu: [1280, 1500, 1500, 9000, 65_535][pick(5) as usize],
            has_stamps: pick(2) == 0,
        }
    }

    fn settings(&self, v6: bool, host: u8) -> Settings {
        let (outer_v6, is_udp) = self.outer;
        let (src, dst, mode) = match (self.is_transport, outer_v6) {
            (true, _) => (address(v6, host), address(v6, 200), "transport"),
            (_, true) => ("2001:db8::1".to_owned(), "2001:db8::2".to_owned(), "tunnel"),
            (_, false) => ("192.0.2.1".to_owned(), "192.0.2.2".to_owned(), "tunnel"),
        };
        let flag = if self.is_extended { " flag esn" } else { "" };
        let encap =
            if is_udp { " encap type espinudp sport 4500 dport 4500 addr 0.0.0.0\n" } else { "" };
        let sa = |n: u32, limit: Option<u32>| {
            let hard = limit.map_or("(INF)".to_owned(), |hard| hard.to_string());
            format!(
                "src {src} dst {dst}\n proto esp spi {} reqid 1 mode {mode}\n replay-window 64{flag}\n aead \
                 rfc4106(gcm(aes)) {KEY} 128\n{encap} limit: soft (INF)(packets), hard {hard}(packets)\n",
                0x1000 + n
            )
        };
        let states = [sa(0, self.hard), sa(1, None)].concat();
        let net = |last: &str| if v6 { "fd00::/16".to_owned() } else { format!("10.0.0.0/{last}") };
        let one = |(n, (proto, kind)): (usize, &(Option<&str>, u8))| {
            let proto = proto.map_or(String::new(), |proto| format!(" proto {proto}"));
            let tail = match kind {
                0 => format!(" tmpl src {src} dst {dst}\n proto esp reqid 1 mode {mode}\n"),
                1 => String::new(),
                _ => "block".to_owned(),
            };
            let block = if tail == "block" { " action block" } else { "" };
            let tail = if tail == "block" { String::new() } else { tail };
            format!(
                "src {} dst {}{proto}\n dir out{block} priority {n}\n{tail}",
                net("24"),
                net("16")
            )
        };
        let policies: String = self.policies.iter().enumerate().map(one).collect();
        Settings {
            sas: xfrm::states(&states).unwrap(),
            policies: xfrm::policies(&policies).unwrap(),
            mtu: self.mtu,
            discards_unmatched: self.discards,
            slack: 0,
            stamps: if self.has_stamps { BUFFERS + 64 } else { 0 },
            seeds: [1, 2],
        }
    }
}

const BUFFERS: usize = 4000;

/// Passes frames through one gateway, and what comes of finishing them through an equal one. Returns what came of both, and
/// what was sealed.
fn compare(settings: &Settings, frames: &[Unfinished]) -> (Came, u64) {
    let (mut one, mut twin) = (Bed::new(settings, BUFFERS), Bed::new(settings, BUFFERS));
    let got = one.pass(frames);
    let mut want = Came::default();
    let all: Vec<_> =
        frames.iter().flat_map(finished).map(|bytes| (bytes, Offload::NONE)).collect();
    for part in all.chunks(32) {
        let came = twin.pass(part);
        want.left.extend(came.left);
        want.dropped.extend(came.dropped);
    }
    assert_eq!(got.left.len(), want.left.len(), "{:?} {:?}", got.dropped, want.dropped);
    for (n, (got, want)) in got.left.iter().zip(&want.left).enumerate() {
        assert_eq!(got, want, "packet {n}");
    }
    // A frame of which nothing leaves is one drop, with the reason of its first segment.
    let kinds = |came: &Came| {
        let mut kinds = came.dropped.clone();
        kinds.dedup();
        kinds
    };
    let (mine, its) = (kinds(&got), kinds(&want));
    let mut rest = its.iter();
    let is_part = mine.iter().all(|kind| rest.any(|other| other == kind));
    assert!(is_part && mine.first() == its.first(), "{mine:?} {its:?}");
    let counts = |bed: &Bed| bed.hub.sas().iter().map(|sa| sa.counts.read()).collect::<Vec<_>>();
    let (mine, its) = (counts(&one), counts(&twin));
    for (mine, its) in mine.iter().zip(&its) {
        assert_eq!((mine.packets, mine.bytes), (its.packets, its.bytes));
    }
    let next = |bed: &Bed| bed.hub.sas().iter().map(crate::sa::Sa::sent).collect::<Vec<_>>();
    assert_eq!(next(&one), next(&twin), "sequence numbers");
    one.all_are_back();
    twin.all_are_back();
    (got, mine.iter().map(|sa| sa.packets).sum())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_frame_may_be_finished_before_or_after(seed: u64, sizes in prop::collection::vec((400usize..3000, any::<bool>(), 0u8..4), 1..4)) {
        random(seed, &sizes);
    }
}

/// Compares for random frames, of which `sizes` has the size of a segment, whether the checksum is partial, and what a
/// virtio-net header leaves out, and a random gateway.
fn random(seed: u64, sizes: &[(usize, bool, u8)]) {
    let mut rng = Rng::new(seed);
    let first = Stack::random(&mut rng, 40_000);
    let frame = |&(size, is_partial, fixed): &(usize, bool, u8)| {
        let most = if rng.below(3) == 0 { 40_000 } else { 2000 };
        let stack = Stack { v6: first.v6, host: first.host, ..Stack::random(&mut rng, most) };
        let keeps = rng.below(4) == 0;
        let stack = if keeps { stack } else { Stack { tunnels: Vec::new(), ..stack } };
        // A virtio-net header does not describe what is in most tunnels, but other ports may.
        unfinished(&stack, size, is_partial, fixed)
    };
    let frames: Vec<_> = sizes.iter().map(frame).collect();
    let world = World::random(&mut rng);
    compare(&world.settings(first.v6, first.host), &frames);
}

/// The first segments are too long for the tunnel, and the last one has no hop left.
#[test]
fn a_frame_of_which_nothing_leaves_has_the_reason_of_its_first_segment() {
    random(6_476_580_175_540_371_132, &[(1427, false, 0), (400, false, 0)]);
}

fn tunnel(has_stamps: bool) -> World {
    World {
        outer: (false, false),
        is_transport: false,
        is_extended: true,
        hard: None,
        policies: vec![(Some("tcp"), 0)],
        discards: false,
        mtu: 9000,
        has_stamps,
    }
}

fn long(tcp: bool) -> Unfinished {
    let stack = Stack { tcp, payload: (0..50_000).map(|n| n as u8).collect(), ..Stack::tcp4() };
    unfinished(&stack, 1400, true, 0)
}

#[test]
fn only_what_is_sealed_is_cut() {
    for has_stamps in [false, true] {
        let settings = tunnel(has_stamps).settings(false, 1);
        let short = unfinished(&Stack { payload: vec![1; 99], ..Stack::tcp4() }, 0, true, 0);
        let (came, sealed) = compare(&settings, &[long(true), long(false), short]);
        assert_eq!((came.left.len(), sealed, came.stayed), (36 + 36 + 1, 36 + 1, 1));
        let mut bed = Bed::new(&settings, 100);
        bed.pass(&[long(true)]);
        let totals = bed.hub.totals.values();
        assert_eq!(totals[4..], [("cut", 1), ("segments", 36), ("checksums", 0)]);
    }
}

#[test]
fn an_sa_may_end_in_the_middle_of_a_frame() {
    for has_stamps in [false, true] {
        for hard in [1, 35, 36, 37] {
            let settings = World { hard: Some(hard), ..tunnel(has_stamps) }.settings(false, 1);
            let (came, sealed) = compare(&settings, &[long(true), long(true)]);
            assert_eq!((came.left.len(), sealed, came.dropped.len()), (72, 72, 0), "{hard}");
            // Without a second one, the rest is dropped.
            let only = Settings { sas: settings.sas[..1].to_vec(), ..settings };
            let (came, _) = compare(&only, &[long(true)]);
            let missing = 36_usize.saturating_sub(hard as usize);
            assert_eq!(came.left.len(), 36 - missing);
            assert_eq!(came.dropped, vec![DropReason::SaExpired; missing]);
        }
    }
}

/// Without buffers for all segments, those that have one leave, and the others are counted.
#[test]
fn a_segment_without_a_buffer_is_a_drop() {
    for buffers in [1, 10, 32, 36] {
        let mut bed = Bed::new(&tunnel(false).settings(false, 1), buffers);
        let came = bed.pass(&[long(true)]);
        let missing = 36 - buffers;
        assert_eq!((came.left.len(), came.dropped.len()), (buffers, missing));
        assert_eq!(came.dropped, vec![DropReason::NoBuffer; missing]);
        bed.all_are_back();
    }
    let mut bed = Bed::new(&tunnel(false).settings(false, 1), 1);
    let kept = bed.pool.take(9, Meta::default()).unwrap();
    let came = bed.pass(&[long(true)]);
    assert_eq!((came.left.len(), came.dropped), (0, vec![DropReason::NoBuffer]));
    bed.pool.put(kept);
    bed.all_are_back();
}

/// Numbers of frames that found the queue full are used again.
#[test]
fn a_long_frame_that_finds_the_queue_full_gives_its_numbers_back() {
    let settings = World { hard: Some(50), ..tunnel(true) }.settings(false, 1);
    let mut bed = Bed::new(&settings, BUFFERS);
    let mut batch = bed.batch(&[long(true), long(true)]);
    for _ in 0..3 {
        bed.hub.look(&bed.pool, &batch, batch.lanes());
        bed.hub.number(&bed.pool, &batch, batch.lanes());
        assert_eq!(bed.hub.sas().iter().map(crate::sa::Sa::sent).collect::<Vec<_>>(), [50, 22]);
        bed.hub.refused(&bed.pool, &batch, batch.lanes());
        assert_eq!(bed.hub.sas().iter().map(crate::sa::Sa::sent).collect::<Vec<_>>(), [0, 0]);
    }
    let came = bed.end(&mut batch_of_drops(&mut batch));
    assert_eq!(came.left.len(), 0);
    bed.all_are_back();
}

/// The frames of `batch`, dropped.
fn batch_of_drops(batch: &mut Batch) -> Batch {
    (0..batch.len()).for_each(|lane| refuse(batch, lane, DropReason::QueueFull));
    std::mem::take(batch)
}

/// A host sends several packets of NAT traversal in one long frame: each is opened.
#[test]
fn a_long_frame_of_esp_is_cut_and_each_packet_opened() {
    let out = World { outer: (false, true), ..tunnel(false) };
    let mut settings = out.settings(false, 1);
    let mut bed = Bed::new(&settings, BUFFERS);
    let small = |n: u8| Stack { payload: vec![n; 700], ..Stack::tcp4() };
    let sealed = bed.pass(&[1, 2, 3, 4].map(|n| unfinished(&small(n), 0, false, 0)));
    let esp: Vec<u8> = sealed.left.iter().flat_map(|(_, frame)| frame[42..].to_vec()).collect();
    let size = esp.len() / 4;
    // The other gateway has the addresses of a host of `Stack`.
    for sa in &mut settings.sas {
        (sa.src, sa.dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 200].into());
    }
    let policy = "src 10.0.0.0/24 dst 10.0.0.0/16\n dir fwd priority 1\n tmpl src 10.0.0.1 dst 10.0.0.200\n proto esp \
                  reqid 1 mode tunnel\n";
    settings.policies = xfrm::policies(policy).unwrap();
    let around = Stack { tcp: false, ports: (4500, 4500), payload: esp, ..Stack::tcp4() };
    for has_stamps in [false, true] {
        settings.stamps = if has_stamps { BUFFERS + 64 } else { 0 };
        let (came, opened) = compare(&settings, &[unfinished(&around, size, true, 0)]);
        assert_eq!((came.left.len(), opened, came.stayed), (4, 4, 0));
        for (n, (port, frame)) in (1..).zip(&came.left) {
            assert_eq!((*port, &frame[54..]), (3, &[n; 700][..]));
        }
    }
}

/// A sender may describe the checksum field so that finishing the frame changes where it goes.
#[test]
fn a_description_does_not_carry_a_frame_past_a_policy() {
    for has_stamps in [false, true] {
        let settings = tunnel(has_stamps).settings(false, 1);
        // The policy is about 10.0.0.0/16; the field is in the destination address.
        let mut bytes = Stack { payload: vec![0; 500], ..Stack::tcp4() }.frame();
        bytes[30..34].copy_from_slice(&[10, 0, 0, 200]);
        for (start, offset) in [(34, 0), (34, 2), (20, 10), (14, 16), (34, 12), (14, 9)] {
            let left = Offload {
                flags: Offload::PARTIAL,
                checksum_start: start,
                checksum_offset: offset,
                ..Offload::NONE
            };
            compare(&settings, &[(bytes.clone(), left)]);
        }
    }
}

/// Packets in a tunnel of another kind are cut as the innermost headers say, and sealed by the outermost.
#[test]
fn long_frames_in_tunnels_are_sealed() {
    for kind in Tunnel::ALL {
        for outer_v6 in [false, true] {
            let stack =
                Stack { tunnels: vec![(outer_v6, kind)], payload: vec![9; 9000], ..Stack::tcp4() };
            let world = World { policies: vec![(None, 0)], ..tunnel(true) };
            let (came, sealed) =
                compare(&world.settings(outer_v6, 1), &[unfinished(&stack, 1000, true, 0)]);
            assert_eq!((came.left.len(), sealed), (9, 9), "{kind:?}");
        }
    }
}

#[test]
fn a_verdict_does_not_outlive_the_packet_that_it_is_about() {
    let settings = tunnel(false).settings(false, 1);
    let mut bed = Bed::new(&settings, 10);
    let valid = Offload { flags: Offload::VALID, ..Offload::NONE };
    for (tcp, want) in [(true, Offload::NONE), (false, valid)] {
        let frame = Stack { tcp, payload: vec![1; 50], ..Stack::tcp4() }.frame();
        let mut batch = bed.batch(&[(frame, valid)]);
        bed.work.work(&mut batch, &bed.pool, 0);
        assert_eq!(bed.pool.meta(&batch.frames[0]).offload, want);
        bed.pool.put_batch(&mut batch);
    }
}
