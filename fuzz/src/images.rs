//! `images`: any bytes as the files of the programmable adapter, as a received test frame, and as a rule of a driver.

use crate::{Limits, Line};
use flowyard_host::ntuple::{Request, SIZE};
use flowyard_nicsim::elf::Image;
use flowyard_nicsim::memory::IMEM_BYTES;
use flowyard_nicsim::trace;
use flowyard_rfc2544::tag::{self, Cover, Seen};

/// Bytes of the adapter's scratchpad.
const SCRATCHPAD: u32 = 256 * 1024;

/// Sections and words of an image, accesses of a trace, and bytes of a frame are read a few times each, and copied. The
/// code of an image is in an instruction memory of 128 KiB, however short it is.
pub const LIMITS: Limits = Limits {
    blocks: Line { input: 1000, byte: 40 },
    bytes: Line { input: 4000 + IMEM_BYTES as u64, byte: 64 },
};

/// Reads `data` as an ELF image, as a trace of memory accesses, as a frame of the test bench, and as a rule.
///
/// # Panics
/// When a parser panics, when an image does not fit the scratchpad, or when a trace, a tag or a rule is
/// written in a form that is not read back as the same.
pub fn images(data: &[u8]) {
    if let Ok(image) = Image::parse(data, SCRATCHPAD) {
        assert!(4 * image.text.len() <= SCRATCHPAD as usize, "{} words of code", image.text.len());
    }
    // A trace names the firmware that it belongs to: accept any.
    let firmware = data.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    if let Ok(accesses) = trace::decode(data, firmware.unwrap_or(0)) {
        let again = trace::encode(&accesses, 0);
        assert_eq!(trace::decode(&again, 0).map(|again| again.len()), Ok(accesses.len()));
    }
    if let Some(Ok(rule)) =
        data.first_chunk::<SIZE>().map(|bytes| Request::from_bytes(*bytes).decode())
    {
        let again = Request::encode(&rule, rule.loc.unwrap_or(0));
        assert_eq!(again.decode().as_ref(), Ok(&rule));
    }
    for cover in [Cover::Frame, Cover::Network, Cover::Payload] {
        let Seen::Good(found) = tag::read(data, cover) else { continue };
        let mut frame = data.to_vec();
        tag::write(&mut frame, &found, cover);
        assert_eq!(tag::read(&frame, cover), Seen::Good(found));
    }
}

#[cfg(test)]
mod tests {
    /// A rule of each flow type, with each byte changed.
    #[test]
    fn changed_rules() {
        for kind in 0..0x14_u8 {
            for at in 0..super::SIZE {
                let mut bytes = [0; super::SIZE];
                bytes[16] = kind;
                bytes[19] = (at as u8) << 5;
                bytes[at] ^= 0xff;
                super::images(&bytes);
            }
        }
    }

    /// Committed images, changed and cut at the header and the tables.
    #[test]
    fn changed_images() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/nicsim/firmware");
        for name in ["ideal", "rmw", "steer"] {
            let seed = std::fs::read(format!("{folder}/{name}.elf")).expect("an image");
            super::images(&seed);
            for at in (0..seed.len().min(400)).chain(seed.len().saturating_sub(300)..seed.len()) {
                super::images(&seed[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = seed.clone();
                    changed[at] = value;
                    super::images(&changed);
                }
            }
        }
    }
}
