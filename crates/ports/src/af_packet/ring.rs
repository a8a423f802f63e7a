//! The receive ring: sockets, options, and the iteration over its slots.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use libc::{SOL_PACKET, tpacket_req, tpacket2_hdr};

use flowyard_wire::Offload;

use super::sys::Slots;
use super::{CAPABILITY, Seen, address, packet_socket};
use crate::live::sys::{self, Mapping};
use crate::live::{Interface, OpenError};

/// How several rings on one interface share its frames (packet(7), PACKET_FANOUT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fanout {
    /// By the kernel's flow hash.
    #[default]
    Hash,
    /// By the CPU that received the frame.
    Cpu,
    /// By the adapter queue that received the frame.
    Queue,
}

/// Parameters for opening rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How the rings share the frames.
    pub fanout: Fanout,
    /// Capacity of each ring in frames.
    pub frames: u32,
}

/// A receive ring.
#[derive(Debug)]
pub struct Ring {
    /// Shared with its silencer.
    fd: Arc<OwnedFd>,
    slots: Slots,
    /// The slot to read next.
    slot: usize,
    /// The frame that [`Ring::peek_start`] found in it.
    found: Option<Found>,
    /// The frame, if it is longer than its slot.
    long: Box<[u8]>,
}

/// A frame in a slot, or one that is longer than its slot.
#[derive(Clone, Copy, Debug)]
struct Found {
    place: Place,
    start: usize,
    len: usize,
    /// The length of the frame without its tag; more than `len` only if the rest waits.
    whole: usize,
    /// EtherType and tag.
    vlan: Option<[u8; 4]>,
    /// The kernel's description of what is left to do.
    vnet: Option<[u8; VNET]>,
    /// `None`: the description does not fit the frame, or its headers do not fit the slot.
    offload: Option<Offload>,
    wire_len: u32,
    is_cut: bool,
}

/// Where the bytes of a frame are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In its slot.
    Slot,
    /// The first bytes are in its slot, and all of them in the socket, from which they can be received once.
    Socket,
    /// In `Ring::long`.
    Long,
}

/// Length of the two MAC addresses, which precede the VLAN tag.
pub(super) const MACS: usize = 12;
/// Length of the header that describes pending offloads (struct virtio_net_hdr).
const VNET: usize = Offload::VIRTIO_LEN;
/// The longest possible frame: many coalesced segments (64 KiB), and headers.
const LONGEST: usize = (1 << 16) + 256;
/// Size of the receive buffer for frames longer than a slot, in bytes.
const LONG_BYTES: i32 = 32 << 20;

impl Ring {
    /// Opens `count` rings on `interface` that share its frames.
    ///
    /// # Errors
    /// When the kernel refuses, or has not enough memory.
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

    /// Continues with the ring of another process, which has the geometry of [`Ring::geometry`] there.
    ///
    /// # Errors
    /// The descriptor is not a ring of this geometry.
    pub fn adopt(fd: OwnedFd, [size, slot]: [usize; 2]) -> io::Result<Self> {
        if slot < 64 || !slot.is_multiple_of(16) || size < slot || !size.is_multiple_of(slot) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let slots = Slots::new(Mapping::new(&fd, size, 0)?, slot);
        Ok(Self { fd: Arc::new(fd), slots, slot: 0, found: None, long: vec![0; LONGEST].into() })
    }

    /// The sizes in bytes of the ring and of one of its slots.
    #[must_use]
    pub fn geometry(&self) -> [usize; 2] {
        [self.slots.bytes_in_all(), self.slots.slot_bytes()]
    }

    /// A duplicate of its descriptor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The slot that is read next; `None` if its frame has been taken out of the kernel already, which is the case for a
    /// frame longer than a slot.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        let is_taken = self.found.is_some_and(|found| found.place == Place::Long);
        (!is_taken).then_some(self.slot as u64)
    }

    /// Reads next from `slot`; returns whether there is such a slot.
    pub fn go_on(&mut self, slot: u64) -> bool {
        let exists = (slot as usize) < self.slots.count();
        if exists {
            (self.slot, self.found) = (slot as usize, None);
        }
        exists
    }

    fn one(interface: &Interface, settings: Settings) -> Result<Self, OpenError> {
        let fd = packet_socket()?;
        let doing = format!("af_packet on '{}'", interface.name);
        let fail = |error: io::Error| OpenError::os(&doing, &error, CAPABILITY);
        let set = |name, value: i32| sys::set(&fd, SOL_PACKET, name, &value);
        set(libc::PACKET_VERSION, V2).map_err(fail)?;
        set(libc::PACKET_VNET_HDR, 1).map_err(fail)?;
        // Frames longer than a slot are also queued on the socket, complete.
        set(libc::PACKET_COPY_THRESH, 1).map_err(fail)?;
        let _less = sys::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &LONG_BYTES);
        // Since Linux 4.20; without it, the ring would receive our own transmitted frames.
        set(libc::PACKET_IGNORE_OUTGOING, 1).map_err(fail)?;
        let request = request(settings.frames, interface.mtu);
        sys::set(&fd, SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(fail)?;
        let size = request.tp_block_size as usize * request.tp_block_nr as usize;
        let map = Mapping::new(&fd, size, 0).map_err(fail)?;
        let slots = Slots::new(map, request.tp_frame_size as usize);
        // Before it joins the fanout group, a ring would receive every frame.
        super::sys::drop_all(&fd).map_err(fail)?;
        sys::bind(&fd, &address(interface, libc::ETH_P_ALL as u16)).map_err(fail)?;
        // Promiscuous mode by membership ends with the socket and does not change the interface's
        // flags.
        let all = libc::packet_mreq {
            mr_ifindex: interface.index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            ..sys::zeroed()
        };
        sys::set(&fd, SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all).map_err(fail)?;
        Ok(Self { fd: Arc::new(fd), slots, slot: 0, found: None, long: vec![0; LONGEST].into() })
    }

    /// Joins the fanout group, or creates it if there is none yet.
    fn join(&self, fanout: Fanout, group: &mut Option<u32>) -> io::Result<()> {
        let by = match fanout {
            Fanout::Hash => libc::PACKET_FANOUT_HASH,
            Fanout::Cpu => libc::PACKET_FANOUT_CPU,
            Fanout::Queue => libc::PACKET_FANOUT_QM,
        };
        // A group has its own setting for outgoing frames, independent of its sockets.
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

    /// The next frame, if one was received, with all of its bytes.
    #[inline]
    pub fn peek(&mut self) -> Option<Seen<'_>> {
        if self.peek_start()?.is_waiting() {
            self.gather();
        }
        self.peek_start()
    }

    /// The next frame, if one was received. Of a frame that is longer than its slot, it has the first bytes only
    /// ([`Seen::is_waiting`]), until [`Ring::gather`].
    #[inline]
    pub fn peek_start(&mut self) -> Option<Seen<'_>> {
        if self.found.is_none() {
            let header = self.slots.open(self.slot)?;
            // A slot with invalid offsets is treated as an empty frame.
            self.found = Some(self.find(&header).unwrap_or(Found::NOTHING));
        }
        let found = self.found?;
        let data = if found.place == Place::Long {
            self.long.get(found.start..found.start + found.len)
        } else {
            self.slots.bytes(self.slot, found.start, found.len)
        };
        let Found { whole, vlan, offload, wire_len, is_cut, .. } = found;
        Some(Seen { data: data.unwrap_or(&[]), whole, vlan, offload, wire_len, is_cut })
    }

    /// Writes the frame that [`Ring::peek_start`] returned, with its tag, and with what is left to do, into `out`, which must have
    /// the length [`Seen::len`] of the whole frame. A frame that waits in the socket is received right there. Returns whether
    /// it could be received; if not, it is cut from now on.
    pub fn write_whole(&mut self, out: &mut [u8]) -> bool {
        match self.found {
            Some(found) if found.place == Place::Socket => self.receive_into(&found, out),
            _ => self.peek_start().map(|seen| seen.write_whole(out)).is_some(),
        }
    }

    /// Receives the frame that [`Ring::peek_start`] returned, if it waits in the socket, so that all of its bytes can be seen.
    #[cold]
    pub fn gather(&mut self) {
        let Some(found) = self.found.filter(|found| found.place == Place::Socket) else { return };
        let mut long = std::mem::take(&mut self.long);
        let plain = Found { vlan: None, ..found };
        let room = found.whole.min(long.len());
        let is_here = self.receive_into(&plain, &mut long[..room]);
        self.long = long;
        if let (true, Some(found)) = (is_here, &mut self.found) {
            (found.place, found.start, found.len) = (Place::Long, 0, found.whole);
            if found.offload.is_none() {
                let all = &self.long[..found.whole];
                found.offload = found.vnet.and_then(|vnet| Offload::from_virtio(&vnet, all).ok());
            }
        }
    }

    /// Receives a frame from the socket, and writes it with its tag into `out`. In the socket it has a virtio-net header in
    /// front. If it has no other user, the kernel has removed its Ethernet header, which is taken from the slot then.
    fn receive_into(&mut self, found: &Found, out: &mut [u8]) -> bool {
        let tag = found.vlan.map_or(0, |tag| tag.len());
        let behind = ETHERNET + tag;
        let ethernet = self.slots.bytes(self.slot, found.start, ETHERNET);
        let ethernet = ethernet.and_then(|bytes| bytes.first_chunk().copied());
        let (mut vnet, mut spare) = ([0; VNET], [0; ETHERNET]);
        let got = match out.get_mut(behind..) {
            Some(rest) => super::sys::receive(&self.fd, [&mut vnet, rest, &mut spare]),
            None => Ok(0),
        };
        let got = got.unwrap_or(0).checked_sub(VNET);
        let header: Option<[u8; ETHERNET]> = match (got, ethernet) {
            _ if out.len() != found.whole + tag => None,
            (Some(got), Some(header)) if got + ETHERNET == found.whole => Some(header),
            (Some(got), Some(_)) if got == found.whole => {
                let header = out[behind..].first_chunk().copied();
                out.copy_within(behind + ETHERNET.., behind);
                let end = out.len() - ETHERNET;
                out[end..].copy_from_slice(&spare);
                header
            }
            _ => None,
        };
        let Some(header) = header else {
            // The socket had another frame or none, so the rest is lost.
            if let Some(found) = &mut self.found {
                (found.place, found.whole, found.is_cut) = (Place::Slot, found.len, true);
            }
            return false;
        };
        out[..MACS].copy_from_slice(&header[..MACS]);
        out[MACS..MACS + tag].copy_from_slice(found.vlan.as_ref().map_or(&[], |tag| &tag[..]));
        out[MACS + tag..behind].copy_from_slice(&header[MACS..]);
        true
    }

    /// Releases the frame that [`Ring::peek`] returned.
    #[inline]
    pub fn advance(&mut self) {
        if self.found.take().is_some() {
            self.slots.give(self.slot);
            self.slot = (self.slot + 1) % self.slots.count();
        }
    }

    fn find(&self, header: &tpacket2_hdr) -> Option<Found> {
        let (start, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let data = self.slots.bytes(self.slot, start, len)?;
        let vnet = *self.slots.bytes(self.slot, start.checked_sub(VNET)?, VNET)?.first_chunk()?;
        let known = header.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        let vlan = (known && len >= MACS).then(|| {
            let [a, b] = if header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
                header.tp_vlan_tpid.to_be_bytes()
            } else {
                (libc::ETH_P_8021Q as u16).to_be_bytes()
            };
            let [c, d] = header.tp_vlan_tci.to_be_bytes();
            [a, b, c, d]
        });
        let tag = if vlan.is_some() { 4 } else { 0 };
        let is_longer = header.tp_snaplen < header.tp_len;
        let waits = is_longer && header.tp_status & libc::TP_STATUS_COPY != 0;
        let whole = if waits { header.tp_len as usize } else { len };
        Some(Found {
            place: if waits { Place::Socket } else { Place::Slot },
            start,
            len,
            whole,
            vlan,
            vnet: Some(vnet),
            offload: Offload::from_virtio_front(&vnet, data, whole).ok(),
            wire_len: header.tp_len + tag,
            is_cut: is_longer && !waits,
        })
    }

    /// The number of frames dropped since the last call because the ring was full.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn drops(&mut self) -> io::Result<u32> {
        let seen: libc::tpacket_stats = sys::get(&self.fd, SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(seen.tp_drops)
    }

    /// Whether the ring is still bound to the interface with this index. A call that fails is no
    /// evidence that it is not.
    #[must_use]
    pub fn is_bound(&self, index: u32) -> bool {
        super::is_bound(&self.fd, index)
    }

    /// A function that ends the reception, from any thread; received frames stay in the ring.
    pub fn silencer(&self) -> impl Fn() + Send + 'static {
        // Not a duplicate of the descriptor, which could not be made without a free one.
        let fd = Arc::downgrade(&self.fd);
        move || {
            let _result = fd.upgrade().map(|fd| super::sys::drop_all(&fd));
        }
    }

    /// Clears the pending error of the socket (interface down or gone).
    pub fn clear(&mut self) {
        let _cleared: io::Result<i32> = sys::get(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR);
    }
}

/// TPACKET_V2 (enum tpacket_versions).
const V2: i32 = 1;
/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// The ring geometry for `frames` frames on an interface with this MTU, one frame per slot.
fn request(frames: u32, mtu: u32) -> tpacket_req {
    // The headers before a frame in its slot take less than 128 bytes. Frames longer than jumbo
    // frames are received through the socket, like coalesced ones.
    let slot = (mtu.min(9216) + 128).next_power_of_two().max(2048);
    let block = slot.max(1 << 16);
    let count = frames.clamp(64, 1 << 20).next_power_of_two() / (block / slot);
    tpacket_req {
        tp_block_size: block,
        tp_block_nr: count,
        tp_frame_size: slot,
        tp_frame_nr: block / slot * count,
    }
}

impl Found {
    const NOTHING: Self = Self {
        place: Place::Slot,
        start: 0,
        len: 0,
        whole: 0,
        vlan: None,
        vnet: None,
        offload: Some(Offload::NONE),
        wire_len: 0,
        is_cut: false,
    };
}
