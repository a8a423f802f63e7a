//! The receive ring: sockets, options, and the walk over blocks and frames.

use std::io;
use std::os::fd::OwnedFd;

use libc::{SOL_PACKET, tpacket_req3};

use super::sys::Blocks;
use super::{CAPABILITY, address, packet_socket};
use crate::live::offload::{self, Cut, Offload};
use crate::live::sys::{self, Mapping};
use crate::live::{Interface, OpenError};

/// How several rings on one interface share its frames (packet(7), PACKET_FANOUT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fanout {
    /// By the kernel's flow hash.
    #[default]
    Hash,
    /// By the processor that received the frame.
    Cpu,
    /// By the queue of the adapter that received it.
    Queue,
}

/// How rings are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How the rings share the frames.
    pub fanout: Fanout,
    /// Room in each ring, in frames of 2 KiB; short frames take less.
    pub frames: u32,
}

/// A receive ring.
#[derive(Debug)]
pub struct Ring {
    fd: OwnedFd,
    blocks: Blocks,
    /// The block that is or will be read.
    block: usize,
    /// Frames left in it, once it is open, and where the next one stands.
    left: u32,
    at: usize,
    is_open: bool,
}

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its bytes, without the VLAN tag that stands beside them.
    data: &'a [u8],
    /// Type and tag.
    vlan: Option<[u8; 4]>,
    offload: Offload,
    /// Its length on the wire, tag included.
    pub wire_len: u32,
    /// The ring had no room for all of it.
    pub is_cut: bool,
}

/// Bytes of a frame before its VLAN tag.
const MACS: usize = 12;
/// Bytes of the header that says what offloads were left to do (struct virtio_net_hdr).
const VNET: usize = 10;
/// How long frames wait for their block to fill, in milliseconds: the least there is.
const RETIRE_MS: u32 = 1;

impl Ring {
    /// `count` rings on `interface` that share its frames.
    ///
    /// # Errors
    /// When the kernel does not let us, or has no memory.
    pub fn open(
        interface: &Interface,
        count: usize,
        settings: Settings,
    ) -> Result<Vec<Self>, OpenError> {
        let doing = format!("af_packet on '{}'", interface.name);
        let fail = |error: io::Error| OpenError::os(&doing, &error, CAPABILITY);
        let mut group = None;
        let rings = (0..count)
            .map(|_| {
                let ring = Self::one(interface, settings)?;
                if count > 1 {
                    ring.join(settings.fanout, &mut group).map_err(fail)?;
                }
                Ok(ring)
            })
            .collect::<Result<Vec<_>, OpenError>>()?;
        rings.iter().try_for_each(|ring| super::sys::listen(&ring.fd)).map_err(fail)?;
        Ok(rings)
    }

    fn one(interface: &Interface, settings: Settings) -> Result<Self, OpenError> {
        let fd = packet_socket()?;
        let doing = format!("af_packet on '{}'", interface.name);
        let fail = |error: io::Error| OpenError::os(&doing, &error, CAPABILITY);
        let set = |name, value: i32| sys::set(&fd, SOL_PACKET, name, &value);
        set(libc::PACKET_VERSION, V3).map_err(fail)?;
        set(libc::PACKET_VNET_HDR, 1).map_err(fail)?;
        // Since Linux 4.20; without it, what we transmit would come back.
        set(libc::PACKET_IGNORE_OUTGOING, 1).map_err(fail)?;
        let request = request(settings.frames);
        sys::set(&fd, SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(fail)?;
        let (size, count) = (request.tp_block_size as usize, request.tp_block_nr as usize);
        let blocks = Blocks::new(Mapping::new(&fd, size * count, 0).map_err(fail)?, size);
        // Before it shares them with others, a ring would get every frame.
        super::sys::deafen(&fd).map_err(fail)?;
        sys::bind(&fd, &address(interface, libc::ETH_P_ALL as u16)).map_err(fail)?;
        // By membership: it ends with the socket, and the interface's flags stay as they are.
        let all = libc::packet_mreq {
            mr_ifindex: interface.index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            ..sys::zeroed()
        };
        sys::set(&fd, SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all).map_err(fail)?;
        Ok(Self { fd, blocks, block: 0, left: 0, at: 0, is_open: false })
    }

    /// Joins the fanout group, a new one if there is none yet.
    fn join(&self, fanout: Fanout, group: &mut Option<u32>) -> io::Result<()> {
        let by = match fanout {
            Fanout::Hash => libc::PACKET_FANOUT_HASH,
            Fanout::Cpu => libc::PACKET_FANOUT_CPU,
            Fanout::Queue => libc::PACKET_FANOUT_QM,
        };
        // A group has its own word on what we transmit, whatever its sockets say.
        let mode = by | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let ask = match *group {
            Some(id) => mode << 16 | id,
            None => (mode | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
        };
        sys::set(&self.fd, SOL_PACKET, libc::PACKET_FANOUT, &ask)?;
        if group.is_none() {
            let got: u32 = sys::get(&self.fd, SOL_PACKET, libc::PACKET_FANOUT)?;
            *group = Some(got & 0xffff);
        }
        Ok(())
    }

    /// A ring on an interface that came back: the rings of a port are opened one by one then, and
    /// share its frames as the group `id`, which is the same for all of them.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn open_one(
        interface: &Interface,
        settings: Settings,
        id: Option<u16>,
    ) -> Result<Self, OpenError> {
        let doing = format!("af_packet on '{}'", interface.name);
        let fail = |error: io::Error| OpenError::os(&doing, &error, CAPABILITY);
        let ring = Self::one(interface, settings)?;
        if let Some(id) = id {
            ring.join(settings.fanout, &mut Some(id.into())).map_err(fail)?;
        }
        super::sys::listen(&ring.fd).map_err(fail)?;
        Ok(ring)
    }

    /// The next frame, if one has come.
    #[inline]
    pub fn peek(&mut self) -> Option<Seen<'_>> {
        while self.left == 0 {
            if self.is_open {
                self.blocks.give(self.block);
                self.block = (self.block + 1) % self.blocks.count();
                self.is_open = false;
            }
            (self.left, self.at) = self.blocks.open(self.block)?;
            self.is_open = true;
        }
        Some(self.seen().unwrap_or(Seen::NOTHING))
    }

    /// Takes the frame that [`Ring::peek`] showed.
    #[inline]
    pub fn advance(&mut self) {
        let Some(header) = self.blocks.header(self.block, self.at) else {
            self.left = 0;
            return;
        };
        self.at += header.tp_next_offset as usize;
        self.left = self.left.saturating_sub(1);
    }

    fn seen(&self) -> Option<Seen<'_>> {
        let header = self.blocks.header(self.block, self.at)?;
        let (start, len) = (self.at + usize::from(header.tp_mac), header.tp_snaplen as usize);
        let data = self.blocks.bytes(self.block, start, len)?;
        let vnet = self.blocks.bytes(self.block, start.checked_sub(VNET)?, VNET)?;
        let known = header.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        let vlan = (known && len >= MACS).then(|| {
            let [a, b] = if header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
                header.hv1.tp_vlan_tpid.to_be_bytes()
            } else {
                (libc::ETH_P_8021Q as u16).to_be_bytes()
            };
            let [c, d] = (header.hv1.tp_vlan_tci as u16).to_be_bytes();
            [a, b, c, d]
        });
        let tag = if vlan.is_some() { 4 } else { 0 };
        Some(Seen {
            data,
            vlan,
            offload: offload(vnet, header.tp_status),
            wire_len: header.tp_len + tag,
            is_cut: header.tp_snaplen < header.tp_len,
        })
    }

    /// Frames that the ring had no room for, since this was last asked.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn drops(&mut self) -> io::Result<u32> {
        let seen: libc::tpacket_stats_v3 = sys::get(&self.fd, SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(seen.tp_drops)
    }

    /// Clears what the socket has to say of its interface: down, gone.
    pub fn clear(&mut self) {
        let _said: io::Result<i32> = sys::get(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR);
    }
}

/// The third version of the ring (enum tpacket_versions).
const V3: i32 = 2;

/// Memory for `frames` frames, in many small blocks: each goes after [`RETIRE_MS`], full or not, so
/// that their number is how long nobody may look. A block holds the longest frame there is.
fn request(frames: u32) -> tpacket_req3 {
    const FRAME: u32 = 2048;
    const BLOCK: u32 = 1 << 17;
    let count = (frames.clamp(1, 1 << 20) / (BLOCK / FRAME)).max(2);
    tpacket_req3 {
        tp_block_size: BLOCK,
        tp_block_nr: count,
        tp_frame_size: FRAME,
        tp_frame_nr: BLOCK / FRAME * count,
        tp_retire_blk_tov: RETIRE_MS,
        ..sys::zeroed()
    }
}

/// What the header of ten bytes before a frame says (virtio 1.2 section 5.1.6, in the machine's
/// byte order).
fn offload(vnet: &[u8], status: u32) -> Offload {
    let word = |at: usize| u16::from_ne_bytes([vnet[at], vnet[at + 1]]);
    const NEEDS_SUM: u8 = 1;
    // Without the flag in the status, the kernel had no room for the header.
    let sum = vnet[0] & NEEDS_SUM != 0 && status & libc::TP_STATUS_CSUMNOTREADY != 0;
    let cut = matches!(vnet[1] & 0x7f, 1 | 3 | 4 | 5) && word(4) != 0;
    Offload { checksum: sum.then(|| (word(6), word(8))), segment: cut.then(|| word(4)) }
}

impl Seen<'_> {
    /// A place in the ring that makes no sense: an empty frame.
    const NOTHING: Self = Self {
        data: &[],
        vlan: None,
        offload: Offload { checksum: None, segment: None },
        wire_len: 0,
        is_cut: false,
    };

    /// Into how many frames it is cut: one, unless the sender left that to an adapter. `None` if
    /// it would have to be, and cannot.
    #[must_use]
    pub fn cut(&self) -> Option<Option<Cut>> {
        match self.offload.segment {
            None => Some(None),
            Some(size) => Cut::new(self.data, size.into()).map(Some),
        }
    }

    /// How long segment `n` of `cut` is, or the whole frame without one.
    #[must_use]
    pub fn len(&self, cut: Option<&Cut>, n: usize) -> usize {
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        tag + cut.map_or(self.data.len(), |cut| cut.len(n))
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Writes segment `n` of `cut`, or the whole frame without one, as on the wire into `out`,
    /// which is as long as [`Seen::len`] says.
    pub fn write(&self, cut: Option<&Cut>, n: usize, out: &mut [u8]) {
        // The tag goes in last: everything behind the addresses is written four bytes later, and
        // the addresses then moved to the front.
        let tag =
            out.len().saturating_sub(self.len(cut, n) - if self.vlan.is_some() { 4 } else { 0 });
        let plain = &mut out[tag..];
        match cut {
            Some(cut) => cut.write(self.data, n, plain),
            None => {
                plain.copy_from_slice(self.data);
                if let Some((start, offset)) = self.offload.checksum {
                    offload::complete(plain, start.into(), offset.into());
                }
            }
        }
        if let Some(vlan) = self.vlan {
            out.copy_within(4..4 + MACS, 0);
            out[MACS..MACS + 4].copy_from_slice(&vlan);
        }
    }
}
