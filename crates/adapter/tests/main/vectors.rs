//! Hash values that were published or printed by hardware, row by row.

use flowyard_adapter::fdir::{Flex, Folded, Input, MaskSet, Mode, Pballoc};
use flowyard_adapter::profile::Profile;
use flowyard_adapter::rss::{Rss, RssConfig, SYMMETRIC_KEY};
use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::harness::Need;

use crate::common::{Row, rows};

flowyard_testkit::tests! {
    driver_derived_fdir_hashes needs [Need::Shared(FDIR)],
    hardware_printed_fdir_hashes needs [Need::Shared(FDIR_HARDWARE)],
    microsofts_rss_hashes needs [Need::Shared(RSS)],
}

const FDIR: &str = "vectors/fdir_82599.csv";
const FDIR_HARDWARE: &str = "vectors/fdir_82599_hardware.csv";
const RSS: &str = "vectors/rss_microsoft.csv";

fn key(row: &Row) -> FlowKey {
    let proto = match row.hex("flow_type") & 3 {
        1 => proto::UDP,
        2 => proto::TCP,
        3 => proto::SCTP,
        _ => 253,
    };
    let (sport, dport) = (row.number("src_port"), row.number("dst_port"));
    let key = FlowKey::five_tuple(proto, row.ip("src_ip"), sport, row.ip("dst_ip"), dport);
    FlowKey { vlan_tci: row.hex("vlan_tci") as u16, ..key }
}

/// Every column of the table that was computed with the driver.
fn driver_derived_fdir_hashes() {
    let rows = rows(FDIR);
    assert_eq!(rows.len(), 13);
    let perfect = MaskSet { flex: Flex::Masked, pool: true, ..MaskSet::ATR };
    // Inferred from the rows: the column masks everything except the destination port and the first
    // four bytes of the destination address, also of an IPv6 address.
    let dst_only = MaskSet {
        src_v4: 0,
        src_v6: 0,
        dst_v6: 0x000f,
        src_port: 0,
        vlan: flowyard_adapter::fdir::VlanMask::None,
        ..perfect
    };
    for row in rows {
        let (name, key) = (row.text("name").to_owned(), key(&row));
        let input = |mask: &MaskSet| {
            let input = Input::from_key(&key, mask).expect("the row is whole IP");
            input.in_pool(row.number("vm_pool") as u8, mask)
        };
        let check = |column: &str, ours: u32| assert_eq!(ours, row.hex(column), "{name}: {column}");

        let folded = input(&perfect).folded();
        check("flow_type", u32::from(input(&perfect).flow_type));
        check("perfect_fold_dword0", folded.first);
        check("perfect_fold_rest", folded.rest);
        let bucket = |pballoc| u32::from(folded.bucket(Mode::Perfect, pballoc));
        check("perfect_bkt13_full_mask_noflex", bucket(Pballoc::K256));
        check("perfect_bkt12", bucket(Pballoc::K128));
        check("perfect_bkt11", bucket(Pballoc::K64));
        check("raw16_bucket_noflex", u32::from(folded.bucket_raw()));
        check("raw16_sig_noflex", u32::from(folded.signature_raw()));

        let folded = input(&MaskSet::ATR).folded();
        check("flex_ethertype_in_sig", u32::from(input(&MaskSet::ATR).flex));
        check("atr_fold_common", folded.rest);
        check("atr_FDIRHASH_linux", folded.atr_fdirhash());
        check("atr_bucket15", u32::from(folded.bucket(Mode::Signature, Pballoc::K256)));
        check("atr_sig15", u32::from(folded.signature()));
        check("dpdk_sig16", u32::from(folded.signature_raw()));

        let folded = input(&dst_only).folded();
        check("bkt13_mask_dst_only", u32::from(folded.bucket(Mode::Perfect, Pballoc::K256)));
    }
}

/// The values that an 82599 printed in DPDK's test plan, computed from the folds.
fn hardware_printed_fdir_hashes() {
    let rows = rows(FDIR_HARDWARE);
    assert_eq!(rows.len(), 15);
    for row in rows {
        let folded = Folded { first: row.hex("d0"), rest: row.hex("fold") };
        let mode = if row.text("mode") == "sig64" { Mode::Signature } else { Mode::Perfect };
        let name = row.text("name");
        assert_eq!(u32::from(folded.bucket(mode, Pballoc::K64)), row.hex("hw_hash"), "{name}");
        let id = u32::from(folded.signature() | 0x8000);
        assert_eq!(id, row.hex("calc_sig15|0x8000"), "{name}");
        if mode == Mode::Signature {
            assert_eq!(id, row.hex("hw_id"), "{name}");
        }
    }
}

/// Microsoft's "Verifying the RSS Hash Calculation": both hash types, three table sizes, two keys.
fn microsofts_rss_hashes() {
    let rows = rows(RSS);
    assert_eq!(rows.len(), 8);
    let rss = |name: &str, symmetric: bool| {
        let mut config = RssConfig::default();
        if symmetric {
            config.key = SYMMETRIC_KEY.to_vec();
        }
        Rss::new(Profile::find(name).expect(name), 16, config).expect(name)
    };
    for row in rows {
        let (sport, dport) = (row.number("sport"), row.number("dport"));
        let key = FlowKey::five_tuple(proto::TCP, row.ip("src"), sport, row.ip("dst"), dport);
        for (name, column) in [("82599", "idx128"), ("x710", "idx512"), ("e810", "idx2048")] {
            let rss = rss(name, false);
            let hash = rss.hash(&key).expect("IP is hashed");
            assert_eq!(hash, row.hex("hash_l3l4"), "{key}");
            assert_eq!(rss.index(hash), row.number(column), "{key}");
            let fragment = rss.hash(&FlowKey { frag: 1, ..key });
            assert_eq!(fragment, Some(row.hex("hash_l3")), "{key}");
        }
        let rss = rss("82599", true);
        assert_eq!(rss.hash(&key), Some(row.hex("sym_key_l3l4")), "{key}");
        assert_eq!(rss.hash(&key.reversed()), Some(row.hex("sym_key_reversed_l3l4")), "{key}");
    }
}
