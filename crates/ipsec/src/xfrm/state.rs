//! A record of `ip xfrm state`.

use super::{Words, XfrmError};
use crate::replay::LARGEST;
use crate::sa::{Encap, Flags, Limits, Mode, SaConfig};
use crate::suite::{KeyMaterial, Suite};

/// What is collected of a record.
#[derive(Default)]
struct Draft {
    spi: Option<u32>,
    reqid: u32,
    mode: Option<Mode>,
    aead: Option<(Suite, KeyMaterial)>,
    is_extended: bool,
    window: u32,
    encap: Option<Encap>,
    limits: Option<Limits>,
    flags: Flags,
    seq: [u32; 2],
    oseq: [u32; 2],
}

/// The SA that a record describes.
pub(super) fn state(record: &[(usize, &str)]) -> Result<SaConfig, XfrmError> {
    let mut draft = Draft::default();
    let (first, text) = record[0];
    let mut head = Words::new(first, text);
    let (src, dst) = ends(&mut head)?;
    head.end()?;
    let mut is_stats = false;
    for &(line, text) in &record[1..] {
        let mut words = Words::new(line, text);
        match text.trim() {
            "stats:" => is_stats = true,
            _ if is_stats => is_stats = false, // the counters of the kernel
            rest if rest.starts_with("limit:") => limit(line, rest, &mut draft)?,
            _ => draft.line(&mut words)?,
        }
    }
    let missing = |what: &str| head_error(first, what);
    let Some((suite, key)) = draft.aead else {
        return Err(missing("the SA has no 'aead' with its key"));
    };
    let mode = draft.mode.ok_or_else(|| missing("the SA has no 'mode'"))?;
    let spi = draft.spi.filter(|spi| *spi >= 256);
    let spi =
        spi.ok_or_else(|| missing("the SA has no 'spi' of at least 256 (RFC 4303 section 2.1)"))?;
    if draft.encap.is_some() && mode == Mode::Transport {
        return Err(missing("transport mode with UDP encapsulation is not implemented"));
    }
    if draft.window > LARGEST {
        return Err(missing(&format!(
            "a replay window of {} is larger than {LARGEST}",
            draft.window
        )));
    }
    let join = |[high, low]: [u32; 2]| u64::from(high) << 32 | u64::from(low);
    let (seq, oseq) = (join(draft.seq), join(draft.oseq));
    if !draft.is_extended && (draft.seq[0] | draft.oseq[0]) != 0 {
        return Err(missing("the SA has a sequence number of more than 32 bits and no flag 'esn'"));
    }
    Ok(SaConfig {
        src,
        dst,
        spi,
        reqid: draft.reqid,
        mode,
        suite,
        key,
        is_extended: draft.is_extended,
        window: draft.window,
        encap: draft.encap,
        limits: draft.limits.unwrap_or(Limits::NONE),
        flags: draft.flags,
        seq,
        oseq,
        line: first,
    })
}

fn head_error(line: usize, what: &str) -> XfrmError {
    XfrmError { line, what: what.to_owned(), fix: "see docs/ipsec.md for what is read".to_owned() }
}

/// `src ADDRESS dst ADDRESS`
fn ends(words: &mut Words<'_>) -> Result<(std::net::IpAddr, std::net::IpAddr), XfrmError> {
    let fix = "start the record with 'src ADDRESS dst ADDRESS'";
    if words.next() != Some("src") {
        return Err(words.error("a record starts with 'src'", fix));
    }
    let src = words.address("src")?;
    if words.next() != Some("dst") {
        return Err(words.error("'dst' is missing", fix));
    }
    let (Some(src), Some(dst)) = (src, words.address("dst")?) else {
        return Err(words.error("the SA has no addresses", fix));
    };
    if src.is_ipv4() != dst.is_ipv4() {
        return Err(words.error("the addresses of the SA are of different families", fix));
    }
    Ok((src, dst))
}

/// `limit: soft (INF)(bytes), hard 1000(bytes)`
fn limit(line: usize, text: &str, draft: &mut Draft) -> Result<(), XfrmError> {
    let limits = draft.limits.get_or_insert(Limits::NONE);
    let words = Words::new(line, "");
    let wrong = || {
        words.error(
            "the limit is not readable",
            "write 'limit: soft 900(packets), hard 1000(packets)'",
        )
    };
    let body = text.strip_prefix("limit:").unwrap_or_default();
    for part in body.split(',') {
        let (kind, value) = part.trim().split_once(' ').ok_or_else(wrong)?;
        let (number, unit) = value.trim().rsplit_once('(').ok_or_else(wrong)?;
        let number = match number {
            "(INF)" => u64::MAX,
            digits => digits.parse().map_err(|_| wrong())?,
        };
        let cell = match (kind, unit) {
            ("soft", "packets)") => &mut limits.soft_packets,
            ("hard", "packets)") => &mut limits.hard_packets,
            ("soft", "bytes)") => &mut limits.soft_bytes,
            ("hard", "bytes)") => &mut limits.hard_bytes,
            _ => return Err(wrong()),
        };
        *cell = number;
    }
    Ok(())
}

impl Draft {
    fn line(&mut self, words: &mut Words<'_>) -> Result<(), XfrmError> {
        while let Some(word) = words.next() {
            match word {
                "proto" => words.esp()?,
                "spi" => self.spi = Some(words.number(word)?),
                "reqid" => self.reqid = words.number(word)?,
                "mode" => self.mode = Some(words.mode()?),
                "replay-window" | "replay_window" => {
                    // The kernel prints 0 in the first place if the window is in the ESN context.
                    self.window = self.window.max(words.number(word)?);
                }
                "flag" | "extra_flag" => {}
                "esn" => self.is_extended = true,
                "noecn" => self.flags.no_ecn = true,
                "decap-dscp" => self.flags.decap_dscp = true,
                "dont-encap-dscp" => self.flags.dont_encap_dscp = true,
                "nopmtudisc" => self.flags.no_pmtu_discovery = true,
                "af-unspec" => {}
                "aead" => self.aead(words)?,
                "encap" => self.encap(words)?,
                "seq-hi" => self.seq[0] = words.number(word)?,
                "seq" => self.seq[1] = words.number(word)?,
                "oseq-hi" => self.oseq[0] = words.number(word)?,
                "oseq" => self.oseq[1] = words.number(word)?,
                "bitmap" | "bitmap-length" => {
                    words.number(word)?;
                }
                "dir" => {
                    words.value(word)?; // the policies say which SAs are outbound
                }
                // The selector, times, and what the kernel counted.
                "sel" | "lifetime" | "expire" | "add" | "lastused" => return Ok(()),
                // `anti-replay context:`, or for large windows `anti-replay esn context:`.
                "anti-replay" => while words.next().is_some_and(|word| word != "context:") {},
                word if is_count(word) => return Ok(()),
                "auth" | "auth-trunc" | "enc" => {
                    let what = format!("'{word}' is not implemented: only AEADs are");
                    return Err(
                        words.error(what, "use rfc4106(gcm(aes)) or rfc7539esp(chacha20,poly1305)")
                    );
                }
                other => return Err(words.unknown(other)),
            }
        }
        Ok(())
    }

    /// `aead NAME KEY ICV`
    fn aead(&mut self, words: &mut Words<'_>) -> Result<(), XfrmError> {
        let name = words.value("aead")?;
        let digits = words.value("aead")?;
        let key = digits.strip_prefix("0x").and_then(hex);
        let fix = "write it as 0x and pairs of hexadecimal digits";
        let key = key.ok_or_else(|| words.error("the key of the SA is not readable", fix))?;
        if words.value("aead")? != "128" {
            let what = "an integrity check value of less than 128 bits is not implemented";
            return Err(words.error(what, "use 128 (RFC 8221 section 5)"));
        }
        let suite = Suite::of(name, key.len()).map_err(|error| {
            let text = error.to_string();
            let (what, fix) = text.split_once("; ").unwrap_or((&text, "see docs/ipsec.md"));
            words.error(what, fix)
        })?;
        self.aead = Some((suite, key));
        Ok(())
    }

    /// `encap type espinudp sport 4500 dport 4500 addr 0.0.0.0`
    fn encap(&mut self, words: &mut Words<'_>) -> Result<(), XfrmError> {
        let mut encap = Encap { sport: 0, dport: 0 };
        while let Some(word) = words.next() {
            match word {
                "type" if words.value(word)? == "espinudp" => {}
                "type" => {
                    return Err(
                        words.error("this encapsulation is not implemented", "use espinudp")
                    );
                }
                "sport" => encap.sport = words.parse(word)?,
                "dport" => encap.dport = words.parse(word)?,
                "addr" => {
                    words.value(word)?;
                }
                other => return Err(words.unknown(other)),
            }
        }
        if encap.sport == 0 || encap.dport == 0 {
            return Err(words.error("'encap' has no ports", "write sport and dport"));
        }
        self.encap = Some(encap);
        Ok(())
    }
}

/// `12` of `12(bytes)`, or a word of the bitmap: 8 hexadecimal digits.
fn is_count(word: &str) -> bool {
    word.bytes().all(|c| c.is_ascii_digit())
        || word.len() == 8 && word.bytes().all(|c| c.is_ascii_hexdigit())
}

fn hex(digits: &str) -> Option<KeyMaterial> {
    if !digits.len().is_multiple_of(2) || digits.len() > 128 || !digits.is_ascii() {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let is_hex = digits.bytes().all(|c| c.is_ascii_hexdigit());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(pair).collect();
    bytes.filter(|_| is_hex).map(KeyMaterial::new)
}
