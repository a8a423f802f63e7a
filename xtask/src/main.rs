//! Chores of this workspace.
//!
//! ```text
//! cargo xtask firmware           rebuild the adapter's firmware with clang and lld, and write the hashes
//! cargo xtask firmware --check   rebuild into a temporary folder and compare with what is committed
//! cargo xtask firmware --handler FILE.h --output FILE.elf
//!                                build firmware 'rmw' with a handler of your own (docs/nic.md)
//! ```
//!
//! Debian: `apt-get install clang lld`. The images are byte for byte the same for the same versions of
//! the tools, whatever the folder; `crates/nicsim/firmware/TOOLCHAIN` names the versions.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// Images by name, with what their compilation defines.
const IMAGES: [(&str, &[&str]); 5] = [
    ("ideal", &["-DIDEAL"]),
    ("swonly", &["-DSWONLY"]),
    ("rmw", &["-DRMW"]),
    ("task", &["-DTASK"]),
    ("steer", &["-DRMW", "-DSTEER=1"]),
];

/// MIPS II without a floating point unit, without calls into a library, without what LLVM would unroll.
const FLAGS: [&str; 21] = [
    "--target=mipsel-unknown-elf",
    "-march=mips2",
    "-mabi=32",
    "-msoft-float",
    "-mno-abicalls",
    "-fno-pic",
    "-G0",
    "-ffreestanding",
    "-fno-builtin",
    "-nostdlib",
    "-O2",
    "-fomit-frame-pointer",
    "-mno-check-zero-division",
    "-fno-strict-aliasing",
    "-fno-unroll-loops",
    "-fno-vectorize",
    "-mllvm",
    "-disable-mips-df-succbb-search=false",
    "-Wall",
    "-Wextra",
    "-Werror",
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["firmware"] => firmware(false),
        ["firmware", "--check"] => firmware(true),
        ["firmware", "--handler", handler, "--output", output] => own(handler, output),
        _ => {
            say("usage: cargo xtask firmware [--check | --handler FILE.h --output FILE.elf]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn firmware(check: bool) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/nicsim/firmware");
    let versions = format!("{}\n{}\n", version("clang")?, version("ld.lld")?);
    let wanted = std::fs::read_to_string(folder.join("TOOLCHAIN")).unwrap_or_default();
    if check && versions != wanted {
        bail!(
            "the tools here are {}, the images were made with {}; install those (Debian 12) to compare",
            versions.replace('\n', "; "),
            wanted.replace('\n', "; ")
        );
    }
    let scratch = std::env::temp_dir().join(format!("flowyard-firmware-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let built = build(&folder, &scratch);
    let done = built.and_then(|images| {
        if check { compare(&folder, &images) } else { keep(&folder, &images, &versions) }
    });
    let _ = std::fs::remove_dir_all(&scratch);
    done
}

/// The first line that a tool says of itself.
fn version(tool: &str) -> Result<String> {
    let out = Command::new(tool)
        .arg("--version")
        .output()
        .with_context(|| format!("{tool} is not here (Debian: apt-get install clang lld)"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn build(folder: &Path, scratch: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut images = Vec::new();
    for (name, defines) in IMAGES {
        let elf = scratch.join(format!("{name}.elf"));
        let defines: Vec<String> = defines.iter().map(ToString::to_string).collect();
        image(folder, scratch, &defines, &elf)?;
        images.push((name, elf));
    }
    Ok(images)
}

fn image(folder: &Path, scratch: &Path, defines: &[String], elf: &Path) -> Result<()> {
    let object = scratch.join("nic.o");
    run(Command::new("clang")
        .current_dir(folder)
        .args(FLAGS)
        .args(defines)
        .args(["-c", "nic.c", "-o"])
        .arg(&object))?;
    run(Command::new("ld.lld")
        .current_dir(folder)
        .args(["-m", "elf32ltsmip", "-nostdlib", "-static", "-z", "max-page-size=16"])
        .args(["-T", "nic.ld", "-o"])
        .arg(elf)
        .arg(&object))
}

/// Firmware 'rmw' with the user's handler in it.
fn own(handler: &str, output: &str) -> Result<()> {
    let handler = std::fs::canonicalize(handler).with_context(|| handler.to_owned())?;
    let output = std::path::absolute(output)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/nicsim/firmware");
    let scratch = std::env::temp_dir().join(format!("flowyard-handler-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let defines = ["-DRMW".to_owned(), format!("-DHANDLER=\"{}\"", handler.display())];
    let done = image(&folder, &scratch, &defines, &output);
    let _ = std::fs::remove_dir_all(&scratch);
    done
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

fn keep(folder: &Path, images: &[(&str, PathBuf)], versions: &str) -> Result<()> {
    let mut sums = String::new();
    for (name, elf) in images {
        let bytes = std::fs::read(elf)?;
        std::fs::write(folder.join(format!("{name}.elf")), &bytes)?;
        sums += &format!("{}  {name}.elf\n", sha256(&bytes));
    }
    std::fs::write(folder.join("SHA256SUMS"), sums)?;
    std::fs::write(folder.join("TOOLCHAIN"), versions)?;
    Ok(())
}

fn compare(folder: &Path, images: &[(&str, PathBuf)]) -> Result<()> {
    let sums = std::fs::read_to_string(folder.join("SHA256SUMS"))?;
    for (name, elf) in images {
        let file = folder.join(format!("{name}.elf"));
        let (built, there) = (std::fs::read(elf)?, std::fs::read(&file)?);
        if built != there {
            bail!(
                "{name}.elf is not what its source gives: run cargo xtask firmware and commit it"
            );
        }
        if !sums.contains(&format!("{}  {name}.elf", sha256(&there))) {
            bail!("SHA256SUMS has another hash of {name}.elf: run cargo xtask firmware");
        }
        say(&format!("{name}.elf: as its source gives"));
    }
    Ok(())
}

/// SHA-256 (FIPS 180-4), in hexadecimal: five small files, not worth a dependency.
fn sha256(bytes: &[u8]) -> String {
    let mut hash: [u32; 8] =
        primes(8).map(|p| root_bits(p, 2)).collect::<Vec<_>>().try_into().unwrap_or([0; 8]);
    let keys: Vec<u32> = primes(64).map(|p| root_bits(p, 3)).collect();
    let mut message = bytes.to_vec();
    message.push(0x80);
    message.resize((message.len() + 8).next_multiple_of(64) - 8, 0);
    message.extend_from_slice(&(8 * bytes.len() as u64).to_be_bytes());
    for block in message.chunks(64) {
        let mut w: Vec<u32> = block
            .chunks(4)
            .map(|c| c.iter().fold(0, |word, &byte| word << 8 | u32::from(byte)))
            .collect();
        for i in 16..64 {
            let (x, y): (u32, u32) = (w[i - 15], w[i - 2]);
            let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
            let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
            w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
        }
        let mut v = hash;
        for i in 0..64 {
            let [a, b, c, d, e, f, g, h] = v;
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let choice = (e & f) ^ (!e & g);
            let majority = (a & b) ^ (a & c) ^ (b & c);
            let t =
                h.wrapping_add(s1).wrapping_add(choice).wrapping_add(keys[i]).wrapping_add(w[i]);
            v = [t.wrapping_add(s0).wrapping_add(majority), a, b, c, d.wrapping_add(t), e, f, g];
        }
        for (sum, word) in hash.iter_mut().zip(v) {
            *sum = sum.wrapping_add(word);
        }
    }
    hash.iter().map(|word| format!("{word:08x}")).collect()
}

fn primes(count: usize) -> impl Iterator<Item = u64> {
    (2u64..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0)).take(count)
}

/// The first 32 bits of the fraction of the square or cube root of `n`.
fn root_bits(n: u64, degree: u32) -> u32 {
    let target = u128::from(n) << (32 * degree);
    let (mut low, mut high) = (0u128, 1u128 << 40);
    while high - low > 1 {
        let middle = u128::midpoint(low, high);
        if middle.pow(degree) <= target { low = middle } else { high = middle }
    }
    low as u32
}

#[cfg(test)]
mod tests {
    use super::sha256;

    #[test]
    fn the_hash_is_the_standards() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
