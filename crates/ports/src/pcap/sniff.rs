//! Detection of the capture format from the first bytes of a file.

use super::{
    classic::{Classic, FILE_HEADER},
    decode::{array, u16_at, u32_at},
    input::{Filled, Input},
    ng::{self, Ng},
};
use crate::{
    error::{Damage, Error, Fault},
    linktype,
};

/// Files that are often given in place of a capture: first bytes, description, and how to fix it.
const OTHERS: &[(&[u8], &str, &str)] = &[
    (b"\x28\xb5\x2f\xfd", "zstd-compressed data", "pipe it in: zstd -dc FILE | flowyard ... -"),
    (b"\xfd7zXZ\0", "xz-compressed data", "pipe it in: xz -dc FILE | flowyard ... -"),
    (b"BZh", "bzip2-compressed data", "pipe it in: bzip2 -dc FILE | flowyard ... -"),
    (b"\x04\x22\x4d\x18", "lz4-compressed data", "pipe it in: lz4 -dc FILE | flowyard ... -"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\xab\x01\x00\x1c", "an IXIA software capture (lcap)", EDITCAP),
    (b"\x1c\x00\x01\xab", "an IXIA software capture (lcap)", EDITCAP),
    (b"\xac\x01\x00\x1c", "an IXIA hardware capture (lcap)", EDITCAP),
    (b"\x1c\x00\x01\xac", "an IXIA hardware capture (lcap)", EDITCAP),
    (b"\x12\xcb\xe2\xa1", "a pcap file from before libpcap 0.4", EDITCAP),
    (b"\xa1\xe2\xcb\x12", "a pcap file from before libpcap 0.4", EDITCAP),
    (b"\xcd\x34\xb2\xa1", "a pcap file in Navtel's variant", EDITCAP),
    (b"\xa1\xb2\x34\xcd", "a pcap file in Navtel's variant", EDITCAP),
    (b"snoop\0\0\0", "a snoop capture (RFC 1761)", EDITCAP),
    (b"GMBU", "a Microsoft Network Monitor capture", EDITCAP),
    (b"RTSS", "a Microsoft Network Monitor capture", EDITCAP),
    (b"TRSNIFF data", "a Network General Sniffer capture", EDITCAP),
];

/// The decoder of a capture, by its format.
#[derive(Debug)]
pub(super) enum Kind {
    Classic(Classic),
    Ng(Ng),
}

const EDITCAP: &str = "convert it with editcap -F pcapng";
const GIVE: &str = "give a pcap or pcapng file, plain or gzip-compressed";

/// Chooses the decoder for `input`.
pub(super) fn sniff(name: &str, input: &mut Input) -> Result<Kind, Error> {
    whole(name, input, 2, "the file's magic number")?;
    if input.shown().starts_with(&[0x1f, 0x8b]) {
        input.gunzip();
    }
    whole(name, input, 4, "the file's magic number")?;
    let magic = u32_at(array(input.shown(), 0), false);
    let (big_endian, magic) = match magic {
        0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34 => (false, magic),
        0xd4c3_b2a1 | 0x4d3c_b2a1 | 0x34cd_b2a1 => (true, magic.swap_bytes()),
        ng::SECTION => return section(name, input),
        _ => return Err(other(name, input)),
    };
    whole(name, input, FILE_HEADER, "the file header")?;
    let head: [u8; FILE_HEADER] = array(input.shown(), 0);
    let version = [4, 6].map(|at| u16_at(array(&head, at), big_endian));
    if version[0] > 2 {
        let what = format!("pcap version {}.{} is not supported", version[0], version[1]);
        return Err(Error::Format { file: name.to_owned(), what, fix: EDITCAP.to_owned() });
    }
    // The upper 6 bits are the length of the frame check sequence, the lower 26 the link type.
    let number = u32_at(array(&head, 20), big_endian) & 0x03ff_ffff;
    let Some(link) = linktype::read(number) else {
        return Err(Error::LinkType { file: name.to_owned(), number });
    };
    input.take(FILE_HEADER);
    Ok(Kind::Classic(Classic {
        big_endian,
        modified: magic == 0xa1b2_cd34,
        unit: if magic == 0xa1b2_3c4d { 1 } else { 1000 },
        either_order: version[0] == 2 && (version[1] < 4 || version[1] == 543), // 543: DG/UX
        link,
    }))
}

/// Checks the first section header of a pcapng file without using it; the decoder reads it again.
fn section(name: &str, input: &mut Input) -> Result<Kind, Error> {
    whole(name, input, 16, "the section header")?;
    let mut ng = Ng::default();
    match ng.section_head(input.shown()) {
        Ok(()) => Ok(Kind::Ng(Ng::default())),
        Err(fault) => Err(damage(name, input, fault)),
    }
}

/// Reads until `want` bytes are shown.
fn whole(name: &str, input: &mut Input, want: usize, inside: &'static str) -> Result<(), Error> {
    let fault = match input.peek(want)? {
        Filled::Some => return Ok(()),
        Filled::Damaged(fault) => fault,
        Filled::End if input.shown().is_empty() => {
            return Err(Error::Format {
                file: name.to_owned(),
                what: "the file is empty".to_owned(),
                fix: GIVE.to_owned(),
            });
        }
        Filled::End => {
            let (have, need) = (input.shown().len() as u64, want as u64);
            Fault::Cut { inside, have, need }
        }
    };
    Err(damage(name, input, fault))
}

fn damage(name: &str, input: &Input, fault: Fault) -> Error {
    let (file, offset) = (name.to_owned(), input.offset());
    Damage { file, offset, packets: 0, fault, unread: None }.into()
}

/// The error for a file that is not a capture.
fn other(name: &str, input: &mut Input) -> Error {
    // A short file can match fewer magics; that is not an error.
    if let Err(error) = input.peek(16) {
        return error;
    }
    let shown = input.shown();
    let (what, fix) = match OTHERS.iter().find(|(magic, _, _)| shown.starts_with(magic)) {
        Some((_, what, fix)) => (format!("this is {what}"), *fix),
        None => {
            let magic: [u8; 4] = array(shown, 0);
            let [a, b, c, d] = magic;
            (format!("not a capture (it starts with {a:02x} {b:02x} {c:02x} {d:02x})"), GIVE)
        }
    };
    Error::Format { file: name.to_owned(), what, fix: fix.to_owned() }
}
