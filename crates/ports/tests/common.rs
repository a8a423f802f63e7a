//! An encoder of captures in every variant, written from the format drafts and independent of the
//! crate's writer; the reference for the decoders.
#![allow(unreachable_pub, reason = "items of a module of the test program")]

use std::io::Read;

use flowyard_ports::{Damage, Error, Skipped, Source, pcap::Reader};

/// A packet as expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    pub time: u64,
    pub wire_len: u32,
    pub interface: u32,
    pub data: Vec<u8>,
}

/// The result of reading a capture to its end.
#[derive(Debug, Default)]
pub struct Outcome {
    pub packets: Vec<Packet>,
    pub damage: Option<Damage>,
    pub skipped: Vec<Skipped>,
}

/// Reads `bytes` to the end, `chunk` bytes at a time.
pub fn read_chunked(bytes: &[u8], chunk: usize) -> Result<Outcome, Error> {
    let bytes = Chunks { bytes: bytes.to_vec(), at: 0, chunk };
    read_all(&mut Reader::new("test", Box::new(bytes), None)?)
}

pub fn read(bytes: &[u8]) -> Result<Outcome, Error> {
    read_chunked(bytes, usize::MAX)
}

pub fn read_all(source: &mut dyn Source) -> Result<Outcome, Error> {
    let mut packets = Vec::new();
    loop {
        let burst = source.read()?;
        if burst.is_empty() {
            break;
        }
        assert!(burst.len() <= 32);
        for (record, data) in burst.iter() {
            let (time, wire_len, interface) = (record.time, record.wire_len, record.interface);
            packets.push(Packet { time, wire_len, interface, data: data.to_vec() });
        }
    }
    assert!(source.read()?.is_empty(), "a source that has ended must stay at its end");
    Ok(Outcome { packets, damage: source.damage().cloned(), skipped: source.skipped() })
}

/// A reader that returns at most `chunk` bytes per call.
pub struct Chunks {
    pub bytes: Vec<u8>,
    pub at: usize,
    pub chunk: usize,
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.chunk.min(buf.len()).min(self.bytes.len() - self.at);
        buf[..n].copy_from_slice(&self.bytes[self.at..][..n]);
        self.at += n;
        Ok(n)
    }
}

/// A buffer for integers in one byte order.
pub struct Out {
    pub big: bool,
    pub bytes: Vec<u8>,
}

impl Out {
    pub fn new(big: bool) -> Self {
        Self { big, bytes: Vec::new() }
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.raw(&bytes)
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.raw(&bytes)
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.raw(&bytes)
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Writes a pcapng block whose body is written by `body`.
    pub fn block(&mut self, block: u32, body: impl FnOnce(&mut Self) -> &mut Self) -> &mut Self {
        let mut inner = Self::new(self.big);
        body(&mut inner);
        inner.bytes.resize(inner.bytes.len().next_multiple_of(4), 0);
        let total = inner.bytes.len() as u32 + 12;
        self.u32(block).u32(total).raw(&inner.bytes).u32(total)
    }

    pub fn section(&mut self, length: u64) -> &mut Self {
        self.block(0x0a0d_0d0a, |out| out.u32(0x1a2b_3c4d).u16(1).u16(0).u64(length))
    }

    /// Writes an interface with a comment, the time resolution, if any, and the offset in seconds.
    pub fn interface(&mut self, link: u16, snap: u32, res: Option<u8>, seconds: i64) -> &mut Self {
        self.block(1, |out| {
            out.u16(link).u16(0).u32(snap);
            out.u16(1).u16(5).raw(b"hello\0\0\0");
            if let Some(res) = res {
                out.u16(9).u16(1).raw(&[res, 0, 0, 0]);
            }
            if seconds != 0 {
                out.u16(14).u16(8).u64(seconds as u64);
            }
            out.u16(0).u16(0)
        })
    }

    pub fn enhanced(
        &mut self,
        interface: u32,
        ticks: u64,
        wire_len: u32,
        data: &[u8],
    ) -> &mut Self {
        self.block(6, |out| {
            out.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32);
            out.u32(data.len() as u32).u32(wire_len).raw(data);
            out.bytes.resize(out.bytes.len().next_multiple_of(4), 0);
            out.u16(2).u16(4).u32(7); // epb_flags
            out.u16(0).u16(0)
        })
    }

    pub fn obsolete(
        &mut self,
        interface: u16,
        ticks: u64,
        wire_len: u32,
        data: &[u8],
    ) -> &mut Self {
        self.block(2, |out| {
            out.u16(interface).u16(9).u32((ticks >> 32) as u32).u32(ticks as u32);
            out.u32(data.len() as u32).u32(wire_len).raw(data)
        })
    }

    pub fn simple(&mut self, wire_len: u32, data: &[u8]) -> &mut Self {
        self.block(3, |out| out.u32(wire_len).raw(data))
    }
}

/// A variant of pcap.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub big: bool,
    pub nanos: bool,
    pub modified: bool,
}

/// A pcap file. Times are truncated to the resolution of the variant.
pub fn pcap(variant: Variant, version: (u16, u16), link: u32, packets: &[Packet]) -> Vec<u8> {
    let Variant { big, nanos, modified } = variant;
    let mut out = Out::new(big);
    out.u32(if modified {
        0xa1b2_cd34
    } else if nanos {
        0xa1b2_3c4d
    } else {
        0xa1b2_c3d4
    });
    out.u16(version.0).u16(version.1).u32(0).u32(0).u32(65535).u32(link);
    for Packet { time, wire_len, data, .. } in packets {
        let unit = if nanos && !modified { 1 } else { 1000 };
        out.u32((time / 1_000_000_000) as u32).u32((time % 1_000_000_000 / unit) as u32);
        let len = data.len() as u32;
        let swap = version < (2, 3);
        let (first, second) = if swap { (*wire_len, len) } else { (len, *wire_len) };
        out.u32(first).u32(second);
        if modified {
            out.u32(3).u16(0x0800).raw(&[4, 0]);
        }
        out.raw(data);
    }
    out.bytes
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut out, bytes).unwrap();
    out.finish().unwrap()
}
