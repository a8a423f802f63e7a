//! Any text as a flow and as a rule file: no panic, and what is read is written back the same.

use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::rules::{self, Driver, RuleTable, Target};
use flowyard_frame::FlowKey;

/// Reads `bytes` as a flow, and as a rule file for every engine.
///
/// # Panics
/// When a parser breaks a promise.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = text.parse::<FlowKey>() {
        let written = key.to_string();
        assert_eq!(written.parse::<FlowKey>(), Ok(key), "{written}");
    }
    match rules::parse("fuzz", text) {
        Err(errors) => assert!(!errors.is_empty()),
        Ok(rules) if rules.len() <= 64 => {
            let key = FlowKey { eth_type: 0x0800, proto: 6, ..FlowKey::ZERO };
            for target in [
                Target::E82599 { pballoc: Pballoc::K64, driver: Driver::InTree },
                Target::E82599 { pballoc: Pballoc::K256, driver: Driver::OutOfTree },
                Target::I40e { guaranteed: 512, best_effort: 7168 },
                Target::Ice,
                Target::Virtio,
                Target::Software,
            ] {
                let verdicts = rules::compile(&rules, target);
                assert_eq!(verdicts.len(), rules.len());
                let table = RuleTable::new(target, rules::accepted(&rules, &verdicts));
                let _ = table.lookup(&key);
                let _ = rules::overlaps(&rules, target);
            }
        }
        Ok(_) => {}
    }
}
