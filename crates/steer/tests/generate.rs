//! Frames of every kind that the parser knows, from a seed: rows of headers that mostly fit together, some damaged.

use flowyard_testkit::Rng;

/// A generator of frames.
pub(crate) struct Frames {
    random: Rng,
    bytes: Vec<u8>,
    levels: u32,
}

impl Frames {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Rng::new(seed), bytes: Vec::new(), levels: 0 }
    }

    /// The next frame, of 14 to 1800 bytes.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        self.bytes.clear();
        self.levels = 0;
        self.ethernet();
        self.fill(14);
        if self.one_in(8) {
            let cut = 14 + self.below(self.bytes.len() as u64 - 13) as usize;
            self.bytes.truncate(cut);
        }
        if self.one_in(6) {
            for _ in 0..1 + self.below(3) {
                let at = self.below(self.bytes.len() as u64) as usize;
                self.bytes[at] = self.random.bits() as u8;
            }
        }
        self.bytes.truncate(1800);
        self.bytes.clone()
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn short(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn noise(&mut self, n: usize) {
        for _ in 0..n {
            let byte = self.random.bits() as u8;
            self.bytes.push(byte);
        }
    }

    /// Bytes until the frame is at least this long.
    fn fill(&mut self, least: usize) {
        let more = least.saturating_sub(self.bytes.len());
        self.noise(more);
    }

    fn ethernet(&mut self) {
        self.levels += 1;
        self.noise(12);
        self.tags();
        self.typed();
    }

    fn tags(&mut self) {
        let tags = if self.one_in(3) { self.of(&[1, 1, 2, 3, 15, 16, 17]) } else { 0 };
        for _ in 0..tags {
            let tpid = self.of(&[0x8100, 0x88a8, 0x9100, 0x9200, 0x9300]);
            self.short(tpid);
            self.noise(2);
        }
    }

    /// An EtherType and what follows.
    fn typed(&mut self) {
        match self.below(16) {
            0..6 => {
                self.short(0x0800);
                self.ipv4();
            }
            6..12 => {
                self.short(0x86dd);
                self.ipv6();
            }
            12 => {
                let length = self.below(1501) as u16;
                self.short(length);
                let snap = self.of(&[[0xaa, 0xaa, 3, 0, 0, 0], [0xaa, 0xaa, 3, 0, 0, 0xf8]]);
                self.put(&snap);
                if self.bytes.len() < 300 {
                    self.tags();
                    self.typed();
                }
            }
            13 => self.labels(),
            14 => {
                self.short(0x8864);
                self.put(&[0x11, 0, 0, 7, 0, 100]);
                self.ppp();
            }
            _ => {
                let other = self.random.bits() as u16;
                self.short(other);
                self.noise(40);
            }
        }
    }

    fn labels(&mut self) {
        let eth_type = self.of(&[0x8847, 0x8848]);
        self.short(eth_type);
        for left in (0..self.of(&[1, 1, 2, 5, 16, 17])).rev() {
            self.noise(2);
            let byte = self.random.bits() as u8;
            self.put(&[byte & 0xfe | u8::from(left == 0), 64]);
        }
        match self.below(4) {
            0 => self.ipv4(),
            1 => self.ipv6(),
            2 if self.levels < 3 => {
                if self.one_in(2) {
                    self.put(&[0; 4]);
                }
                self.ethernet();
            }
            _ => self.noise(20),
        }
    }

    fn ppp(&mut self) {
        if self.one_in(3) {
            self.put(&[0xff, 3]);
        }
        match self.below(6) {
            0 | 1 => {
                self.short(0x21);
                self.ipv4();
            }
            2 => {
                self.put(&[0x21]);
                self.ipv4();
            }
            3 | 4 => {
                self.short(0x57);
                self.ipv6();
            }
            _ => self.noise(30),
        }
    }

    /// Sets the length field at `at` to the number of bytes from `from` on, or mostly.
    fn length(&mut self, at: usize, from: usize) {
        let wrong = if self.one_in(12) { self.below(9) as i64 - 4 } else { 0 };
        let length = if self.one_in(20) { 0 } else { (self.bytes.len() - from) as i64 + wrong };
        let length = (length.max(0) as u16).to_be_bytes();
        self.bytes[at..at + 2].copy_from_slice(&length);
        if self.one_in(5) {
            self.noise(6); // padding
        }
    }

    /// Few addresses and ports, so that rules match.
    fn address(&mut self, front: &[u8], width: usize) {
        let last = self.below(4) as u8;
        self.put(front);
        self.put(&vec![0; width - front.len() - 1]);
        self.put(&[last]);
    }

    fn ipv4(&mut self) {
        let start = self.bytes.len();
        let words = if self.one_in(5) { self.of(&[4, 6, 8, 15]) } else { 5 };
        let fragment =
            if self.one_in(5) { self.of(&[0x2000, 0x2010, 0x0010, 0x8000, 0x4000]) } else { 0 };
        let tos = self.of(&[0, 0, 0x10, 0xff]);
        self.put(&[0x40 | words, tos, 0, 0, 0, 1]);
        self.short(fragment);
        let protocol = self.protocol();
        self.put(&[64, protocol, 0, 0]);
        self.address(&[10, 0], 4);
        self.address(&[10, 0], 4);
        self.noise((usize::from(words) * 4).saturating_sub(20));
        self.above(protocol);
        self.length(start + 2, start);
    }

    fn ipv6(&mut self) {
        let start = self.bytes.len();
        let class = self.of(&[0x00, 0x0f]);
        let protocol = if self.one_in(3) { self.of(&EXTENSIONS) } else { self.protocol() };
        self.put(&[0x60 | class, 0, 0, 0, 0, 0, protocol, 64]);
        self.address(&[0xfd, 9], 16);
        self.address(&[0xfd, 9], 16);
        self.above(protocol);
        self.length(start + 4, start + 40);
    }

    fn protocol(&mut self) -> u8 {
        self.of(&[6, 6, 6, 17, 17, 17, 132, 1, 58, 47, 4, 41, 51, 137, 143, 97, 50, 59])
    }

    fn above(&mut self, protocol: u8) {
        let mut next = protocol;
        for _ in 0..20 {
            if !EXTENSIONS.contains(&next) {
                break;
            }
            next = self.extension(next);
        }
        let deep = self.levels > 3 || self.bytes.len() > 900;
        match next {
            6 => self.tcp(),
            17 => self.udp(deep),
            132 => {
                self.ports();
                self.noise(8);
            }
            4 if !deep => self.ipv4(),
            41 if !deep => self.ipv6(),
            143 if !deep => self.ethernet(),
            97 if !deep => {
                self.put(&[0x30, 0]);
                self.ethernet();
            }
            137 if !deep => self.labels(),
            47 if !deep => self.gre(),
            _ => self.noise(24),
        }
    }

    /// An extension header; returns the protocol of the next.
    fn extension(&mut self, kind: u8) -> u8 {
        let next = if self.one_in(2) { self.of(&EXTENSIONS) } else { self.protocol() };
        match kind {
            44 => {
                self.put(&[next, 0]);
                let word = self.of(&[0, 0, 1, 8, 9, 6]);
                self.short(word);
                self.noise(4);
            }
            51 => {
                let words = self.of(&[4, 1, 0, 6]);
                self.put(&[next, words]);
                self.noise((usize::from(words) + 2) * 4 - 2);
            }
            0 | 60 => self.options(next),
            43 => {
                let [words, kind] = [self.of(&[0, 2, 2, 4]), self.of(&[2, 2, 0, 4])];
                self.put(&[next, words, kind]);
                self.noise((usize::from(words) + 1) * 8 - 3);
            }
            _ => {
                let words = self.of(&[0, 0, 1, 3, 40]);
                self.put(&[next, words]);
                self.noise((usize::from(words) + 1) * 8 - 2);
            }
        }
        next
    }

    /// Options, among them jumbo payloads and home addresses.
    fn options(&mut self, next: u8) {
        let words = self.of(&[0, 1, 2, 20]);
        let size = (usize::from(words) + 1) * 8;
        self.put(&[next, words]);
        let end = self.bytes.len() + size - 2;
        while self.bytes.len() < end {
            match self.below(7) {
                0 => self.put(&[0]),
                1 => self.put(&[0xc2, 4, 0, 1, 0, 0]),
                2 => self.put(&[0xc2, 4, 0, 0, 0xff, 0xff]),
                3 => self.put(&[5, 2, 0, 0]),
                4 | 5 => {
                    let size = self.of(&[16, 16, 16, 15]);
                    self.put(&[0xc9, size]);
                    self.noise(size.into());
                }
                _ => {
                    let size = self.below(9) as u8;
                    self.put(&[1, size]);
                    self.noise(size.into());
                }
            }
        }
        self.bytes.truncate(end);
    }

    fn ports(&mut self) {
        for _ in 0..2 {
            let port =
                if self.one_in(4) { self.random.bits() as u16 } else { self.of(&[80, 443, 11211]) };
            self.short(port);
        }
    }

    fn tcp(&mut self) {
        self.ports();
        self.noise(8);
        let offset = if self.one_in(8) { self.of(&[0x40, 0x80, 0xf0]) } else { 0x50 };
        let flags = self.of(&[0x02, 0x10, 0x11, 0x18]);
        self.put(&[offset, flags]);
        let more = 6 + self.below(30) as usize;
        self.noise(more);
    }

    fn udp(&mut self, deep: bool) {
        let start = self.bytes.len();
        if deep || self.one_in(2) {
            if self.one_in(2) {
                let port = self.of(&[443, 443, 11211, 80]);
                self.noise(2);
                self.short(port);
                self.put(&[0; 4]);
                self.quic();
            } else {
                self.ports();
                self.put(&[0; 4]);
                let more = self.below(30) as usize;
                self.noise(more);
            }
        } else {
            let port = self.of(&[2152, 4789, 8472, 4790, 6081]);
            self.noise(2);
            self.short(port);
            self.put(&[0; 4]);
            match port {
                2152 => self.gtp(),
                6081 => self.geneve(),
                _ => self.vxlan(),
            }
        }
        self.length(start + 4, start);
    }

    /// A QUIC packet with a connection ID, which may be cut.
    fn quic(&mut self) {
        let mut id = self.of(&[0, 3, 7, 8, 8, 20, 255]);
        if self.one_in(2) {
            let first = self.of(&[0xc0, 0xe3]);
            self.put(&[first, 0, 0, 0, 1, id]);
            id = if self.one_in(4) { id / 2 } else { id.saturating_add(12) };
        } else {
            self.put(&[0x41]);
        }
        self.noise(id.into());
    }

    fn gtp(&mut self) {
        let flags = self.of(&[0x30, 0x30, 0x32, 0x34, 0x36, 0x20]);
        let kind = self.of(&[255, 255, 255, 1]);
        self.put(&[flags, kind, 0, 0]);
        self.noise(4);
        if flags & 7 != 0 {
            let extensions = self.of(&[0, 1, 2, 8, 9]);
            self.put(&[0, 0, 0, u8::from(extensions > 0) * 0x85]);
            for left in (0..extensions).rev() {
                let words = self.of(&[1, 1, 2, 0]);
                self.put(&[words]);
                self.noise((4 * usize::from(words)).saturating_sub(2));
                self.put(&[u8::from(left > 0) * 0xc0]);
            }
        }
        self.ip();
    }

    fn ip(&mut self) {
        if self.one_in(2) { self.ipv4() } else { self.ipv6() }
    }

    fn vxlan(&mut self) {
        let flags = self.of(&[0x08, 0x0c, 0x0c, 0x04]);
        let next = self.of(&[1, 2, 3, 4, 5]);
        self.put(&[flags, 0, 0, next]);
        self.noise(4);
        match next {
            1 => self.ipv4(),
            2 => self.ipv6(),
            _ => self.ethernet(),
        }
    }

    fn geneve(&mut self) {
        let words = self.of(&[0, 0, 1, 4]);
        self.put(&[words, 0]);
        let kind = self.of(&[0x6558, 0x0800, 0x86dd, 0x8847, 100]);
        self.short(kind);
        self.noise(4 + 4 * usize::from(words));
        match kind {
            0x0800 => self.ipv4(),
            0x86dd => self.ipv6(),
            _ => self.ethernet(),
        }
    }

    fn gre(&mut self) {
        let flags: u16 = self.of(&[0, 0x2000, 0xb000, 0x1000, 0x4000, 0x2001, 0x3081, 0x0002]);
        let kind = self.of(&[0x6558, 0x0800, 0x86dd, 0x880b, 0x88be, 0x22eb, 0x8847, 9]);
        self.short(flags);
        self.short(kind);
        for bit in [0xc000, 0x2000, 0x1000] {
            if flags & bit != 0 {
                self.noise(4);
            }
        }
        if flags & 0x4000 != 0 {
            self.put(&[0, 1, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0]);
        }
        match kind {
            0x0800 => self.ipv4(),
            0x86dd => self.ipv6(),
            0x880b => self.ppp(),
            0x88be | 0x22eb => {
                let version = self.of(&[0x10, 0x20, 0x30]);
                self.put(&[version]);
                self.noise(9);
                let last = self.of(&[0, 1]);
                self.put(&[0, last]);
                self.ethernet();
            }
            _ => self.ethernet(),
        }
    }
}

/// Extension headers of IPv6.
const EXTENSIONS: [u8; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
