//! The memory for tables whose size is configured. An allocation that fails ends the process, so the memory is asked for
//! once before the tables are built.

use std::hint::black_box;

use flowyard_yard::Blueprint;

use super::Config;
use super::names::Checked;

/// Memory of this size, in bytes; `None` if there is not enough.
fn reserve(bytes: usize) -> Option<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).ok()?;
    Some(black_box(memory)) // an allocation without a use may be optimized away
}

/// Asks for the memory of the tables of learnt flows, and for that of the tables of connections.
///
/// # Errors
/// It is not available; the error is about the key that determines the size.
pub(super) fn check(config: &Config, blueprint: &Blueprint) -> Checked {
    let cores = usize::from(blueprint.cores);
    let lacks = |key: &str, bytes: usize| {
        let mib = bytes.div_ceil(1 << 20);
        let s = if cores == 1 { "" } else { "s" };
        format!("the memory for '{key}' on {cores} core{s}, {mib} MiB, is not available")
    };
    let fix = |key: &str| {
        format!("reduce '{key}', or raise the limit of the process (ulimit -v) or of its group")
    };
    let mut learnt = None;
    if config.learn.is_some() {
        let bytes = blueprint.learnt_bytes();
        learnt = reserve(bytes);
        if learnt.is_none() {
            let what = lacks("entries", bytes);
            return Err(config.error_in("[learn]", "entries", what, &fix("entries")));
        }
    }
    if let Some(capacity) = config.capacity()? {
        let bytes = capacity.bytes.saturating_mul(cores);
        if reserve(bytes).is_none() {
            let span = config.balance().connections.span();
            let what = lacks("connections", bytes);
            return Err(config.error(span, what, fix("connections")));
        }
    }
    drop(learnt); // kept until here, because both are needed at the same time
    Ok(())
}
