//! The engine's stages from a profile of `flowyard calibrate`.

use super::Stages;
use crate::profile::{Profile, ProfileError};

/// The costs of a frame on one core or (`is_shared`) passed to a second core, plus `work_ns` of work.
///
/// # Errors
/// When the profile lacks a constant.
pub fn stages_of(profile: &Profile, is_shared: bool, work_ns: f64) -> Result<Stages, ProfileError> {
    // The cost of the main loop: half is added to receiving and half to dequeuing, because these two can
    // be on different cores.
    let rest = profile.get("yard_rest_ns")? / 2.0;
    let prefix = if is_shared { "yard_far" } else { "yard" };
    let get = |name: &str| profile.get(&format!("{prefix}_{name}_ns"));
    Ok(Stages {
        rx: get("rx")? + rest,
        enqueue: get("enqueue")?,
        dequeue: get("dequeue")? + rest,
        work: get("work")? + work_ns,
        complete: get("complete")?,
        tx: get("tx")?,
    })
}
