//! Firmware images: a loader for 32-bit little-endian MIPS executables.
//!
//! The loader reads the header, the loadable segments, and from the section table the symbols and the
//! section `.nicprof` (profile ranges; see docs/nic.md). Layout: System V ABI, MIPS supplement. Every offset
//! is checked against the size of the file, and each byte of the file is loaded once: an image takes time and
//! memory in proportion to its size, and the instruction memory, which is allocated at once. Thread-safety: values only.

use crate::memory::{IMEM_BYTES, SCRATCHPAD_BASE};

/// Why a firmware image cannot be loaded; `at` is an offset in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The file is shorter than its header states.
    #[error("firmware is cut short: {what} at offset {at:#x} does not fit in {size} bytes")]
    Short {
        /// The part that was being read.
        what: &'static str,
        /// Its offset.
        at: u64,
        /// The file's length.
        size: usize,
    },
    /// The file is not a firmware image of this machine.
    #[error(
        "firmware is {found} (offset {at:#x}); it must be a 32-bit little-endian MIPS executable: clang --target=mipsel-unknown-elf -march=mips2"
    )]
    Kind {
        /// What the file is.
        found: String,
        /// The offset of the header field with this value.
        at: u64,
    },
    /// A segment is outside both memories.
    #[error(
        "firmware segment at {addr:#x} of {size} bytes (program header {index}) is in neither the instruction memory (0 to {IMEM_BYTES:#x}) nor the scratchpad ({SCRATCHPAD_BASE:#x} to {end:#x})"
    )]
    Outside {
        /// Its address.
        addr: u32,
        /// Its length in bytes.
        size: u32,
        /// The number of its program header.
        index: u16,
        /// The first address after the scratchpad.
        end: u32,
    },
}

/// A symbol of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: u32,
    /// Its size in bytes; 0 for a label.
    pub size: u32,
    /// Whether it is a function.
    pub is_function: bool,
}

/// A loaded image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// The address at which execution begins.
    pub entry: u32,
    /// The words of the instruction memory from address 0.
    pub text: Vec<u32>,
    /// The initialised parts of the scratchpad: offset from its base in bytes (a multiple of 4), and words.
    pub data: Vec<(u32, Vec<u32>)>,
    /// The symbols, sorted by address.
    pub symbols: Vec<Symbol>,
    /// Profile ranges: first address, end (exclusive), category.
    pub ranges: Vec<(u32, u32, u32)>,
}

/// The size of a program header and of a section header.
const PROGRAM_HEADER: u16 = 32;
const SECTION_HEADER: u16 = 40;
/// The longest name in bytes; the rest is left out.
const NAME: usize = 256;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take(&self, at: u64, len: u64, what: &'static str) -> Result<&[u8], ElfError> {
        let short = ElfError::Short { what, at, size: self.0.len() };
        let end = at.checked_add(len).ok_or(short.clone())?;
        if end > self.0.len() as u64 { Err(short) } else { Ok(&self.0[at as usize..end as usize]) }
    }

    fn u32(&self, at: u64, what: &'static str) -> Result<u32, ElfError> {
        self.take(at, 4, what).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u16(&self, at: u64, what: &'static str) -> Result<u16, ElfError> {
        self.take(at, 2, what).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }
}

impl Image {
    /// Reads an executable; `scratchpad` is the size of the scratchpad in bytes.
    ///
    /// # Errors
    /// [`ElfError`] when the file is cut short, is for another machine, or does not fit.
    pub fn parse(file: &[u8], scratchpad: u32) -> Result<Self, ElfError> {
        let bytes = Bytes(file);
        check_kind(&bytes)?;
        let text = Vec::with_capacity(IMEM_BYTES as usize / 4); // a segment may be at its end
        let mut image = Self { entry: bytes.u32(24, "entry point")?, text, ..Self::default() };
        let (at, size, count) =
            (bytes.u32(28, "header")?, bytes.u16(42, "header")?, bytes.u16(44, "header")?);
        check_table("program headers", (size, PROGRAM_HEADER), count, 42)?;
        let mut unread = file.len() as u64;
        for index in 0..count {
            let header = u64::from(at) + u64::from(index) * u64::from(size);
            image.segment(&bytes, (header, index), scratchpad, &mut unread)?;
        }
        if image.text.is_empty() {
            return Err(ElfError::Kind { found: "without code at address 0".into(), at: 28 });
        }
        image.sections(&bytes)?;
        image.symbols.sort_by(|a, b| (a.addr, &a.name).cmp(&(b.addr, &b.name)));
        Ok(image)
    }

    fn segment(
        &mut self,
        bytes: &Bytes<'_>,
        (at, index): (u64, u16),
        scratchpad: u32,
        unread: &mut u64,
    ) -> Result<(), ElfError> {
        let word = |n: u64| bytes.u32(at + 4 * n, "program header");
        let (kind, offset, addr, size, memory) = (word(0)?, word(1)?, word(2)?, word(4)?, word(5)?);
        if kind != 1 || memory == 0 {
            return Ok(());
        }
        let raw = bytes.take(offset.into(), size.into(), "segment")?;
        once(unread, size.into(), "segments", 28)?;
        let words: Vec<u32> = raw
            .chunks(4)
            .map(|c| c.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))
            .collect();
        let end = u64::from(addr) + u64::from(memory.max(size));
        let pad = u64::from(SCRATCHPAD_BASE);
        let outside =
            ElfError::Outside { addr, size: memory, index, end: SCRATCHPAD_BASE + scratchpad };
        if end <= u64::from(IMEM_BYTES) && addr.is_multiple_of(4) {
            let from = (addr / 4) as usize;
            self.text.resize(self.text.len().max(from + words.len()), 0);
            self.text[from..from + words.len()].copy_from_slice(&words);
        } else if u64::from(addr) >= pad
            && end <= pad + u64::from(scratchpad)
            && addr.is_multiple_of(4)
        {
            self.data.push((addr - SCRATCHPAD_BASE, words));
        } else {
            return Err(outside);
        }
        Ok(())
    }

    fn sections(&mut self, bytes: &Bytes<'_>) -> Result<(), ElfError> {
        let at = u64::from(bytes.u32(32, "header")?);
        let (size, count) = (bytes.u16(46, "header")?, bytes.u16(48, "header")?);
        let names_index = u64::from(bytes.u16(50, "header")?);
        if at == 0 || count == 0 {
            return Ok(()); // a stripped file has no symbols and no profile
        }
        check_table("section headers", (size, SECTION_HEADER), count, 46)?;
        let (size, mut unread) = (u64::from(size), bytes.0.len() as u64);
        let word = |section: u64, n: u64| bytes.u32(at + section * size + 4 * n, "section header");
        let names = word(names_index, 4)?;
        for section in 0..u64::from(count) {
            let (name, kind) = (word(section, 0)?, word(section, 1)?);
            let (from, len) = (u64::from(word(section, 4)?), u64::from(word(section, 5)?));
            if kind == 2 && self.symbols.is_empty() {
                let strings = u64::from(word(word(section, 6)?.into(), 4)?);
                once(&mut unread, len, "sections", 32)?;
                for symbol in 0..len / 16 {
                    self.symbol(bytes, from + symbol * 16, strings)?;
                }
            } else if text_at(bytes, u64::from(names) + u64::from(name))? == ".nicprof" {
                once(&mut unread, len, "sections", 32)?;
                for range in 0..len / 12 {
                    let word = |n| bytes.u32(from + range * 12 + n, "profile range");
                    self.ranges.push((word(0)?, word(4)?, word(8)?));
                }
            }
        }
        Ok(())
    }

    fn symbol(&mut self, bytes: &Bytes<'_>, at: u64, strings: u64) -> Result<(), ElfError> {
        let word = |n| bytes.u32(at + n, "symbol");
        let name = text_at(bytes, strings + u64::from(word(0)?))?;
        let kind = bytes.take(at + 12, 1, "symbol")?[0] & 15;
        if !name.is_empty() && kind <= 2 {
            let is_function = kind == 2;
            self.symbols.push(Symbol { name, addr: word(4)?, size: word(8)?, is_function });
        }
        Ok(())
    }

    /// The function that contains `pc`.
    pub fn function(&self, pc: u32) -> Option<&Symbol> {
        self.symbols.iter().find(|s| s.is_function && pc >= s.addr && pc - s.addr < s.size)
    }

    /// The address of a symbol.
    pub fn symbol_addr(&self, name: &str) -> Option<u32> {
        self.symbols.iter().find(|symbol| symbol.name == name).map(|symbol| symbol.addr)
    }
}

fn check_kind(bytes: &Bytes<'_>) -> Result<(), ElfError> {
    let wrong = |found: String, at| Err(ElfError::Kind { found, at });
    let ident = bytes.take(0, 52, "header")?;
    if ident[..4] != *b"\x7fELF" {
        return wrong("not an ELF file".into(), 0);
    }
    if ident[4] != 1 {
        return wrong("a 64-bit ELF file".into(), 4);
    }
    if ident[5] != 1 {
        return wrong("big-endian".into(), 5);
    }
    match bytes.u16(18, "header")? {
        8 => {}
        machine => return wrong(format!("for machine {machine}, which is not MIPS"), 18),
    }
    match bytes.u16(16, "header")? {
        2 => Ok(()),
        kind => wrong(format!("of type {kind}, not an executable"), 16),
    }
}

/// Checks that the entries of a table do not overlap; `at` is the offset of the size of an entry.
fn check_table(what: &str, (size, least): (u16, u16), count: u16, at: u64) -> Result<(), ElfError> {
    if count > 0 && size < least {
        let found = format!("an ELF file with {what} of {size} bytes instead of {least}");
        return Err(ElfError::Kind { found, at });
    }
    Ok(())
}

/// Takes `len` from the bytes of the file that were not read yet; `at` is the offset of the table.
fn once(unread: &mut u64, len: u64, what: &str, at: u64) -> Result<(), ElfError> {
    let found = || format!("an ELF file whose {what} are larger than the file together");
    *unread = unread.checked_sub(len).ok_or_else(|| ElfError::Kind { found: found(), at })?;
    Ok(())
}

fn text_at(bytes: &Bytes<'_>, at: u64) -> Result<String, ElfError> {
    let rest = bytes.take(at, (bytes.0.len() as u64).saturating_sub(at).max(1), "name")?;
    let rest = &rest[..rest.len().min(NAME)];
    let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
    Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests;
