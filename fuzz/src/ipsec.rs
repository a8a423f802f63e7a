//! `ipsec`: any bytes as the text of `ip xfrm`, and as packets to a gateway.

use flowyard_ipsec::esp::{self, Kind};
use flowyard_ipsec::replay::Window;
use flowyard_ipsec::sa::{Encap, Flags, Limits as SaLimits, Mode, Sa, SaConfig, Tally};
use flowyard_ipsec::suite::{KeyMaterial, Suite};
use flowyard_ipsec::xfrm;

use crate::{Limits, Line};

/// A text costs some copies of its words; a packet costs its decryption.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 60_000, byte: 400 }, bytes: Line { input: 40_000, byte: 200 } };

fn sa(mode: Mode, suite: Suite, is_udp: bool, is_extended: bool) -> Sa {
    let len = if suite == Suite::AesGcm128 { 20 } else { 36 };
    let config = SaConfig {
        src: [192, 0, 2, 1].into(),
        dst: [192, 0, 2, 2].into(),
        spi: 0x1000,
        reqid: 1,
        mode,
        suite,
        key: KeyMaterial::new((0..len).collect()),
        is_extended,
        window: 64,
        encap: is_udp.then_some(Encap { sport: 4500, dport: 4500 }),
        limits: SaLimits::NONE,
        flags: Flags::default(),
        seq: 0,
        oseq: 0,
        line: 1,
    };
    Sa::new(config, 7, 0).expect("the key has the length of the suite")
}

/// The first byte chooses what the others are.
///
/// # Panics
/// When hostile bytes are found authentic, or a packet that was sealed is not opened to the same bytes.
pub fn ipsec(data: &[u8]) {
    let Some((&form, data)) = data.split_first() else { return };
    if form & 1 > 0 {
        let text = String::from_utf8_lossy(data);
        let _ = (xfrm::states(&text), xfrm::policies(&text));
        return;
    }
    let mode = if form & 2 > 0 { Mode::Tunnel } else { Mode::Transport };
    let suite = if form & 4 > 0 { Suite::AesGcm128 } else { Suite::ChaCha20Poly1305 };
    let is_udp = form & 8 > 0 && mode == Mode::Tunnel;
    let (out, into) =
        (sa(mode, suite, is_udp, form & 16 > 0), sa(mode, suite, is_udp, form & 16 > 0));
    if let Kind::Esp(arrived) = esp::kind(data, |port| port == 4500) {
        assert!(
            esp::open(&into, &arrived, &mut data.to_vec(), &mut Tally::default()).is_err(),
            "hostile bytes are authentic"
        );
    }
    let mut hop = data.to_vec();
    let _ = esp::one_hop(&mut hop);
    if let Ok(plan) = esp::plan(&out, data) {
        let mut bytes = data[..plan.at].to_vec();
        bytes.resize(plan.at + plan.head, 0);
        bytes.extend(&data[plan.at..plan.len]);
        bytes.resize(plan.total(), 0);
        let number = out.take().expect("there is no limit");
        esp::seal(&out, number, &plan, &mut bytes, &mut Tally::default()).expect("the form is that of the plan");
        let kind = esp::kind(&bytes, |port| port == 4500);
        let Kind::Esp(arrived) = kind else { panic!("a sealed packet is ESP: {kind:?}") };
        // In transport mode the checksum of IPv4 is written anew; in tunnel mode a wrong one is refused.
        if let Ok(opened) = esp::open(&into, &arrived, &mut bytes, &mut Tally::default()) {
            bytes.drain(opened.at..opened.at + opened.cut);
            bytes.truncate(opened.len);
            assert_eq!(bytes[plan.at..], data[plan.at..plan.len]);
        }
    }
    let window = Window::new(64, 0);
    for bytes in data.chunks(8) {
        let number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let early = window.check(number);
        assert_eq!(window.accept(number), early);
        assert!(window.accept(number).is_err());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "src 192.0.2.1 dst 192.0.2.2\n\tproto esp spi 0x00001000 reqid 1 mode tunnel\n\treplay-window 64 \
        flag esn\n\taead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128\n";

    #[test]
    fn texts_and_packets_are_handled() {
        let v4 = [
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1, 0, 7, 0, 9, 0, 8,
            0, 0,
        ];
        for form in 0..32 {
            ipsec(&[&[form][..], TEXT.as_bytes()].concat());
            ipsec(&[&[form][..], &v4].concat());
            for at in 0..v4.len() {
                let mut bytes = v4;
                bytes[at] ^= 0xff;
                ipsec(&[&[form][..], &bytes].concat());
            }
        }
    }
}
