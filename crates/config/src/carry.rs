//! `offload` of `[[port]]`: which unfinished frames ports pass on to each other.
//!
//! ```text
//!  kind of port     tap, af_packet: what `offload` leaves on       others: nothing
//!  work             forward, burn, bridge, route: everything       others: nothing
//! ```
//!
//! What a port passes on is what its kind, its `offload` and the work all allow. A word that asks for
//! what another of these excludes is an error, which names the reason.

use std::collections::BTreeMap;

use flowyard_ports::live::Carries;
use toml::Spanned;

use super::{BadChecksumsWord, Config, ConfigError, PortConfig, PortKind, PortOffload, WorkKind};

impl PortOffload {
    /// The words with their names.
    const fn words(self) -> [(&'static str, Option<bool>); 3] {
        [("csum", self.csum), ("tso", self.tso), ("uso", self.uso)]
    }
}

/// The default number of long buffers.
const LARGE_FRAMES: usize = 256;

impl Config {
    /// Why no port can pass on unfinished frames: the subject of a sentence, and how to fix it.
    fn excludes_unfinished(&self) -> Option<(&'static str, &'static str)> {
        match self.work.get_ref().kind.get_ref() {
            WorkKind::Switch => Some((
                "the work \"switch\" changes headers of finished frames only",
                "remove it, or use the work bridge, route or forward",
            )),
            WorkKind::Ipsec => Some((
                "the work \"ipsec\" protects finished frames only",
                "remove it, or use the work bridge, route or forward",
            )),
            WorkKind::Balance => Some((
                "the work \"balance\" changes headers of finished frames only",
                "remove it, or use the work bridge, route or forward",
            )),
            _ => None,
        }
    }

    /// The unfinished frames that `port` passes on.
    pub(crate) fn carries(&self, port: &PortConfig) -> Carries {
        let can = matches!(port.kind, PortKind::Tap | PortKind::AfPacket);
        if !can || self.excludes_unfinished().is_some() {
            return Carries::NONE;
        }
        let PortOffload { csum, tso, uso } =
            port.offload.as_ref().map(|words| *words.get_ref()).unwrap_or_default();
        Carries::new(csum.unwrap_or(true), tso.unwrap_or(true), uso.unwrap_or(true))
    }

    /// The unfinished frames that any port may receive.
    pub(crate) fn delivered(&self) -> Carries {
        self.ports().map(|port| self.carries(port)).fold(Carries::NONE, Carries::or)
    }

    /// The ports that verify checksums, and whether they drop frames with wrong ones.
    pub(crate) fn verify(&self) -> BTreeMap<u16, bool> {
        let drops = |port: &PortConfig| {
            Some(*port.bad_checksums.as_ref()?.get_ref() == BadChecksumsWord::Drop)
        };
        (0..).zip(self.ports()).filter_map(|(number, port)| Some((number, drops(port)?))).collect()
    }

    /// Buffers for long frames.
    pub(crate) fn large_frames(&self) -> usize {
        if !self.delivered().segments() {
            return 0;
        }
        self.yard.large_frames.as_ref().map_or(LARGE_FRAMES, |frames| *frames.get_ref())
    }
}

/// Returns the first mistake.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    if let Some(frames) = &config.yard.large_frames
        && !(1..=flowyard_pool::LARGE_FRAMES).contains(frames.get_ref())
    {
        let what = format!("{} buffers for long frames are not possible", frames.get_ref());
        let fix = format!(
            "write 1 to {}, or offload = {{ tso = false, uso = false }} for the ports",
            flowyard_pool::LARGE_FRAMES
        );
        return Err(config.error(frames.span(), what, fix));
    }
    for port in config.ports() {
        let Some(offload) = &port.offload else { continue };
        check_port(config, port, offload)?;
    }
    Ok(())
}

fn check_port(
    config: &Config,
    port: &PortConfig,
    offload: &Spanned<PortOffload>,
) -> Result<(), ConfigError> {
    let words = *offload.get_ref();
    let Some((word, _)) = words.words().into_iter().find(|(_, is_on)| *is_on == Some(true)) else {
        return Ok(());
    };
    let name = port.name.get_ref();
    if let Some((why, fix)) = config.excludes_unfinished() {
        let what = format!("port \"{name}\" cannot have the offload '{word}': {why}");
        return Err(config.error(offload.span(), what, fix));
    }
    if words.csum == Some(false) && word != "csum" {
        let what = format!(
            "port \"{name}\" cannot have the offload '{word}' without 'csum': the segments of a long frame get their \
             checksums when it is cut"
        );
        return Err(config.error(
            offload.span(),
            what,
            format!("remove '{word}', or csum = false"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(offload: &str, more: &str, work: &str) -> Result<Config, String> {
        let text = format!(
            "[yard]\n{more}\n[[port]]\nname = \"a\"\nkind = \"tap\"\ninterface = \"t0\"\n{offload}\n\
             [[port]]\nname = \"b\"\nkind = \"mem\"\n[[queue]]\nname = \"q\"\norder = \"direct\"\n\
             consumers = [0]\n{work}\n"
        );
        Config::parse("y.toml", &text).map_err(|error| error.to_string())
    }

    const FORWARD: &str = "[work]\nkind = \"forward\"";

    #[test]
    fn a_port_passes_on_what_kind_words_and_work_allow() {
        let carries = |offload: &str, work: &str| {
            let config = config(offload, "", work).unwrap();
            let of: Vec<_> = config.ports().map(|port| config.carries(port)).collect();
            assert_eq!((of[1], config.delivered()), (Carries::NONE, of[0]), "a mem port");
            (of[0], config.large_frames())
        };
        assert_eq!(carries("", FORWARD), (Carries::ALL, 256));
        assert_eq!(
            carries("offload = { uso = false }", FORWARD),
            (Carries::new(true, true, false), 256)
        );
        let checksums = "offload = { tso = false, uso = false, csum = true }";
        assert_eq!(carries(checksums, FORWARD), (Carries::new(true, false, false), 0));
        assert_eq!(carries("offload = { csum = false }", FORWARD), (Carries::NONE, 0));
        assert_eq!(carries("", "[work]\nkind = \"switch\""), (Carries::NONE, 0));
        let some = config("", "large_frames = 9", FORWARD).unwrap();
        assert_eq!(some.blueprint().unwrap().large_frames, 9);
    }

    #[test]
    fn what_excludes_itself_is_refused_with_the_reason() {
        let refused = |offload: &str, more: &str, work: &str, what: &str| {
            let error = config(offload, more, work).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        refused("offload = { tso = true }", "", "[work]\nkind = \"switch\"", "'tso': the work");
        let both = "offload = { csum = false, uso = true }";
        refused(both, "", FORWARD, "'uso' without 'csum'");
        refused("offload = { gro = 1 }", "", FORWARD, "gro");
        refused("", "large_frames = 0", FORWARD, "buffers for long frames");
        let mem = FORWARD
            .replace("[work]", "[[port]]\nname = \"c\"\nkind = \"mem\"\noffload = {}\n[work]");
        refused("", "", &mem, "has no 'offload'");
    }
}
