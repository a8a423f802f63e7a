use super::*;
use crate::firmware::Builtin;

const PAD: u32 = 256 * 1024;

#[test]
fn the_builtin_images_load() {
    for builtin in Builtin::ALL {
        let image = Image::parse(builtin.elf(), PAD).unwrap();
        assert_eq!(image.entry, 0);
        assert!(image.text.len() > 500 && image.text.len() * 4 <= IMEM_BYTES as usize);
        assert_eq!(image.function(0).unwrap().name, "_start");
        assert!(image.symbol_addr("nic_pass").is_some());
        assert_eq!(image.ranges.is_empty(), builtin == Builtin::Ideal, "{}", builtin.name());
    }
}

#[test]
fn every_cut_is_an_error_or_harmless_and_never_a_panic() {
    let file = Builtin::Rmw.elf();
    for end in (0..file.len()).step_by(7) {
        // The last bytes are names of sections that the loader does not read.
        if Image::parse(&file[..end], PAD).is_ok() {
            assert!(end + 700 > file.len(), "cut at {end}");
        }
    }
}

#[test]
fn no_byte_of_the_header_panics() {
    let file = Builtin::Rmw.elf();
    for at in 0..256.min(file.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut file = file.to_vec();
            file[at] = value;
            let _ = Image::parse(&file, PAD);
        }
    }
}

#[test]
fn the_wrong_kind_is_reported_with_its_offset() {
    let file = Builtin::Rmw.elf();
    for (at, value, part) in [
        (0usize, b'X', "not an ELF file (offset 0x0)"),
        (4, 2, "64-bit"),
        (5, 2, "big-endian (offset 0x5)"),
        (16, 1, "not an executable (offset 0x10)"),
        (18, 62, "machine 62, which is not MIPS (offset 0x12)"),
    ] {
        let mut file = file.to_vec();
        file[at] = value;
        let error = Image::parse(&file, PAD).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = Image::parse(&file[..100], PAD).unwrap_err().to_string();
    assert!(error.contains("cut short") && error.contains("offset"), "{error}");
    let error = Image::parse(file, 16 * 1024).unwrap_err().to_string();
    assert!(error.contains("neither the instruction memory"), "{error}");
}

/// A short file cannot make the loader read a part of it again and again.
#[test]
fn headers_that_overlap_are_refused() {
    let file = Builtin::Rmw.elf();
    let change = |at: usize, value: u16| {
        let mut file = file.to_vec();
        file[at..at + 2].copy_from_slice(&value.to_le_bytes());
        Image::parse(&file, PAD).unwrap_err().to_string()
    };
    let error = change(42, 0);
    assert!(
        error.contains("with program headers of 0 bytes instead of 32 (offset 0x2a)"),
        "{error}"
    );
    let error = change(46, 39);
    assert!(
        error.contains("with section headers of 39 bytes instead of 40 (offset 0x2e)"),
        "{error}"
    );
    let word = |at: usize| u32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]]);
    // All program headers, and then as many as possible, are the first segment.
    let (at, count) = (word(28) as usize, usize::from(file[44]));
    let loads = (0..count).map(|index| at + 32 * index).find(|&at| word(at) == 1).unwrap();
    let header = file[loads..loads + 32].to_vec();
    let mut file = file.to_vec();
    let copies = file.len() / word(loads + 16) as usize + 1;
    let start = file.len() as u32;
    (0..copies).for_each(|_| file.extend(&header));
    file[28..32].copy_from_slice(&start.to_le_bytes());
    file[44..46].copy_from_slice(&(copies as u16 + 9).to_le_bytes());
    (0..9).for_each(|_| file.extend(&header));
    let error = Image::parse(&file, PAD).unwrap_err().to_string();
    assert!(error.contains("whose segments are larger than the file together"), "{error}");
}
