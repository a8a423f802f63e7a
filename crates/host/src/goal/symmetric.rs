//! Symmetry: a key under which both directions of a connection have the same hash.

use flowyard_flow::toeplitz::SYMMETRIC_KEY;

use super::wish::{Ask, Wish};
use crate::files::hex;
use crate::setting::Setting;
use crate::state::fields_in;

pub(super) fn wish(ask: &Ask<'_>, wish: &mut Wish) {
    let Some(key) = ask.settings.get(&Setting::Key) else {
        let rss = ask.state.rss.value();
        let why = rss.map_or(ask.state.rss.why(), |rss| rss.key.why());
        wish.refuse("a symmetric RSS key", why.unwrap_or_default(), "ETHTOOL_GRSSH");
        wish.notes.push(
            "The hash that the kernel computes for RPS is the same for both directions; RPS needs no key.".to_owned(),
        );
        return;
    };
    let rss = ask.state.rss.value();
    if rss.is_some_and(|rss| rss.transformation != "none") {
        wish.notes.push("The adapter already makes its hash input symmetric.".to_owned());
        return;
    }
    let len = key.split(':').count();
    let symmetric: Vec<u8> = SYMMETRIC_KEY.iter().copied().cycle().take(len).collect();
    let why = "0x6d5a repeated: both directions of a connection have the same hash";
    wish.change(Setting::Key, hex(&symmetric), why);
    for (flow, fields) in &ask.state.fields {
        let fields = fields.value().and_then(|text| fields_in(text));
        if fields.is_some_and(|fields| !fields.is_paired()) {
            let why = "a field of one side only makes the directions different";
            wish.change(Setting::Fields(flow.clone()), "sd".to_owned(), why);
        }
    }
    wish.notes.push(
        "The symmetric key has 16 bits of its own: regular addresses and ports spread worse, and anybody can choose \
         the queue of a flow. Compare the predicted load before applying."
            .to_owned(),
    );
}
