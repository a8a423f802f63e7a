//! `offload` of `[[port]]`: which unfinished frames ports pass on to each other.
//!
//! ```text
//!  kind of port     tap, af_packet: what `offload` leaves on           others: nothing
//!  work             forward, burn, bridge, route, switch, ipsec: everything
//!                   balance: everything that all services can
//! ```
//!
//! What a port passes on is what its kind, its `offload` and the work all allow. A word that asks for
//! what another of these excludes is an error, which names the reason. `gro` is for ports of all kinds: it joins received TCP
//! segments into frames as `tso` passes them on.
//!
//! A reload may change services, but not what running ports pass on: a service that cannot have it needs a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use flowyard_frame::proto;
use flowyard_lb::Mode;
use flowyard_ports::live::Carries;
use toml::Spanned;

use super::{
    BadChecksumsWord, Config, ConfigError, PortConfig, PortKind, PortOffload, ServiceConfig,
    WorkKind,
};

impl PortOffload {
    /// The words with their names.
    const fn words(self) -> [(&'static str, Option<bool>); 4] {
        [("csum", self.csum), ("tso", self.tso), ("uso", self.uso), ("gro", self.gro)]
    }
}

/// The default number of long buffers.
const LARGE_FRAMES: usize = 256;

/// Why a service cannot have long frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NoLongFrames {
    /// Their segments would be in a tunnel, for which virtio-net headers have no word.
    Tunnel,
    /// The PROXY header makes the first segment longer than the others.
    Proxy,
    /// The option with the client's address makes the first segment longer than the others.
    Toa,
    /// The datagrams of a frame may have connection IDs of several servers.
    Quic,
}

impl NoLongFrames {
    /// The reason why long frames that `word` names do not reach `service`.
    fn of(service: &ServiceConfig, word: &str) -> Option<Self> {
        let about = match service.proto.into() {
            proto::TCP => "tso",
            proto::UDP => "uso",
            _ => return None, // no frame is to be cut into segments of SCTP
        };
        match service.mode.into() {
            // Coalesced frames are cut into TCP segments, too.
            _ if word != about && (word, about) != ("gro", "tso") => None,
            Mode::Ipip | Mode::Gue => Some(Self::Tunnel),
            _ if service.proxy.is_some() => Some(Self::Proxy),
            _ if service.toa => Some(Self::Toa),
            _ if !service.quic.is_empty() => Some(Self::Quic),
            _ => None,
        }
    }

    /// What the service does, and how the user can have long frames.
    const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Tunnel => ("puts packets into tunnels", "use the mode dsr, dnat or fullnat"),
            Self::Proxy => ("inserts a PROXY header into the stream", "remove 'proxy'"),
            Self::Toa => ("inserts a TCP option with the client's address", "remove 'toa'"),
            Self::Quic => ("routes each datagram by its connection ID", "remove 'quic'"),
        }
    }
}

/// Why no port can pass on frames of a kind.
struct Excluded {
    /// A clause.
    why: String,
    fix: String,
    /// Where the service is named that is the reason.
    at: Range<usize>,
}

impl Config {
    /// Why no port can pass on the unfinished frames that `word` names.
    fn excludes(&self, word: &str) -> Option<Excluded> {
        match self.work.get_ref().kind.get_ref() {
            // The segments of a frame leave in its place, for which an event device has no queue.
            WorkKind::Ipsec if self.event_device().is_some() && word != "csum" => {
                let why = "the work \"ipsec\" cuts long frames, which is not implemented yet with the engine \"eventdev\"";
                let fix = format!("remove '{word}', or 'engine'");
                Some(Excluded { why: why.to_owned(), fix, at: 0..0 })
            }
            WorkKind::Balance => {
                let mut services = self.service.iter().map(Spanned::get_ref);
                let (service, reason) =
                    services.find_map(|one| Some((one, NoLongFrames::of(one, word)?)))?;
                let (does, fix) = reason.text();
                let name = service.name.get_ref();
                let why = format!(
                    "the service \"{name}\" {does}, so that long frames are cut in front of it"
                );
                let fix = format!("remove '{word}', or {fix}");
                Some(Excluded { why, fix, at: service.name.span() })
            }
            _ => None,
        }
    }

    /// The unfinished frames that the work permits.
    fn permits(&self) -> Carries {
        let is_free = |word| self.excludes(word).is_none();
        Carries::new(is_free("csum"), is_free("tso"), is_free("uso"))
    }

    /// What ports pass on of the frames that their kinds and words allow: what the work permitted when they were opened.
    fn permitted(&self) -> Carries {
        self.permitted_at_start.unwrap_or_else(|| self.permits())
    }

    /// The unfinished frames that `port` passes on.
    pub(crate) fn carries(&self, port: &PortConfig) -> Carries {
        if !matches!(port.kind, PortKind::Tap | PortKind::AfPacket) {
            return Carries::NONE;
        }
        let PortOffload { csum, tso, uso, .. } =
            port.offload.as_ref().map(|words| *words.get_ref()).unwrap_or_default();
        let words = Carries::new(csum.unwrap_or(true), tso.unwrap_or(true), uso.unwrap_or(true));
        words.and(self.permitted())
    }

    /// Takes over what ports of the configuration that is running pass on, for a reload.
    pub fn keep_offloads(&mut self, running: &Self) {
        self.permitted_at_start = Some(running.permitted());
    }

    /// Refuses services that cannot have the unfinished frames which the ports of `self` pass on.
    pub(crate) fn check_carried(&self, new: &Self) -> Result<(), ConfigError> {
        let carried = self.delivered();
        let words = [("tso", carried.tso()), ("uso", carried.uso())];
        for (word, _) in words.into_iter().filter(|(_, is_on)| *is_on) {
            let Some(Excluded { why, at, .. }) = new.excludes(word) else { continue };
            let what = format!("ports pass on frames of '{word}', and {why}");
            let fix = "restart; ports with offload = { tso = false, uso = false, gro = false } need no restart";
            return Err(new.error(at, what, fix));
        }
        Ok(())
    }

    /// The unfinished frames that any port may receive.
    pub(crate) fn delivered(&self) -> Carries {
        let passed = self.ports().map(|port| self.carries(port)).fold(Carries::NONE, Carries::or);
        let is_any = self.ports().any(|port| self.coalesces(port));
        passed.or(if is_any { Carries::new(true, true, false) } else { Carries::NONE })
    }

    /// Whether `port` coalesces received frames, which the work must permit.
    fn coalesces(&self, port: &PortConfig) -> bool {
        let is_asked = port.offload.as_ref().is_some_and(|words| words.get_ref().gro == Some(true));
        is_asked && self.permitted().tso()
    }

    /// The ports that coalesce received frames.
    pub(crate) fn coalesce(&self) -> BTreeSet<u16> {
        (0..).zip(self.ports()).filter(|(_, port)| self.coalesces(port)).map(|(n, _)| n).collect()
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
        let joins = self.ports().any(PortConfig::is_multi_buffer);
        if !joins && !self.delivered().segments() {
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
    let name = port.name.get_ref();
    let asked = words.words().into_iter().filter(|(_, is_on)| *is_on == Some(true));
    for (word, _) in asked {
        check_word(config, (name, words), (word, offload))?;
    }
    Ok(())
}

fn check_word(
    config: &Config,
    (name, words): (&str, PortOffload),
    (word, offload): (&str, &Spanned<PortOffload>),
) -> Result<(), ConfigError> {
    if let Some(Excluded { why, fix, .. }) = config.excludes(word) {
        let what = format!("port \"{name}\" cannot have the offload '{word}': {why}");
        return Err(config.error(offload.span(), what, fix));
    }
    if words.csum == Some(false) && ["tso", "uso"].contains(&word) {
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
    use flowyard_ports::port::live::{LiveKind, LivePort};

    use super::*;
    use crate::resolve::PortBody;

    fn config(offload: &str, more: &str, work: &str) -> Result<Config, String> {
        let text = format!(
            "[yard]\n{more}\n[[port]]\nname = \"a\"\nkind = \"tap\"\ninterface = \"t0\"\n{offload}\n\
             [[port]]\nname = \"b\"\nkind = \"mem\"\n[[queue]]\nname = \"q\"\norder = \"direct\"\n\
             consumers = [0]\n{work}\n"
        );
        Config::parse("y.toml", &text).map_err(|error| error.to_string())
    }

    const FORWARD: &str = "[work]\nkind = \"forward\"";
    const IPSEC: &str = "[work]\nkind = \"ipsec\"\n[[work.route]]\nprefix = \"0.0.0.0/0\"\nport = \"b\"\n\
                         next_hop = \"02:00:00:00:00:01\"\n[ipsec]\nstate = \"s\"\npolicy = \"p\"";

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
        assert_eq!(carries("", "[work]\nkind = \"switch\""), (Carries::ALL, 256));
        assert_eq!(carries("", IPSEC), (Carries::ALL, 256));
        let some = config("", "large_frames = 9", FORWARD).unwrap();
        assert_eq!(some.blueprint().unwrap().large_frames, 9);
    }

    #[test]
    fn frames_in_several_buffers_have_long_buffers() {
        let large = |words: &str| {
            let port = format!("kind = \"af_xdp\"\nmatch = [\"all\"]\n{words}");
            let text = format!(
                "[[port]]\nname = \"a\"\n{port}\ninterface = \"e0\"\n[[queue]]\nname = \"q\"\n\
                 order = \"direct\"\nconsumers = [0]\n{FORWARD}\n"
            );
            Config::parse("y.toml", &text).unwrap().large_frames()
        };
        assert_eq!((large(""), large("multi_buffer = false")), (0, 0));
        assert_eq!(large("multi_buffer = true"), 256);
        let refused = config("multi_buffer = true", "", FORWARD).err().unwrap();
        assert!(refused.contains("a port of kind \"tap\" has no 'multi_buffer'"), "{refused}");
    }

    /// A balancer with services of these modes and protocols, and more keys of each.
    fn balancer(offload: &str, services: &[(&str, &str, &str)]) -> Result<Config, String> {
        let one = |(n, (mode, proto, more)): (usize, &(&str, &str, &str))| {
            format!(
                "[[service]]\nname = \"s{n}\"\nvip = \"192.0.2.{n}\"\nproto = \"{proto}\"\nport = 80\n\
                 mode = \"{mode}\"\n{more}\n[[service.backend]]\nname = \"a\"\naddr = \"10.0.1.1\"\n\
                 server_id = \"01\"\nexit = {{ port = \"a\", next_hop = \"02:00:00:00:00:02\" }}\n"
            )
        };
        let all: String = services.iter().enumerate().map(one).collect();
        let all = match services.iter().any(|(.., more)| more.contains("quic")) {
            true => all,
            false => all.replace("server_id = \"01\"\n", ""),
        };
        let work = "[work]\nkind = \"balance\"\n[balance]\nlocal = [\"10.9.0.1\"]\n\
                    clients = { port = \"a\", next_hop = \"02:00:00:00:00:01\" }\n";
        config(offload, "", &format!("{work}{all}"))
    }

    const QUIC: &str = "quic = [{ codepoint = 0, server_id_bytes = 1, nonce_bytes = 6 }]\n";

    #[test]
    fn a_balancer_passes_on_what_all_of_its_services_can_have() {
        let all = |csum, tso, uso| Carries::new(csum, tso, uso);
        for (services, want) in [
            (&[("dsr", "tcp", ""), ("dnat", "udp", ""), ("fullnat", "tcp", "")][..], Carries::ALL),
            (&[("dsr", "tcp", ""), ("gue", "sctp", "")], Carries::ALL),
            (&[("dsr", "tcp", ""), ("ipip", "tcp", "")], all(true, false, true)),
            (&[("gue", "udp", "")], all(true, true, false)),
            (&[("fullnat", "tcp", "proxy = \"v2\"")], all(true, false, true)),
            (&[("fullnat", "tcp", "toa = true")], all(true, false, true)),
            (&[("dsr", "udp", QUIC)], all(true, true, false)),
            (&[("gue", "udp", ""), ("gue", "tcp", "")], all(true, false, false)),
        ] {
            let config = balancer("", services).unwrap();
            assert_eq!(config.delivered(), want, "{services:?}");
            assert_eq!(config.large_frames(), if want.segments() { 256 } else { 0 });
            for (word, is_on) in [("csum", want.csum()), ("tso", want.tso()), ("uso", want.uso())] {
                let asked = balancer(&format!("offload = {{ {word} = true }}"), services);
                assert_eq!(asked.is_ok(), is_on, "{services:?} {word}");
                if let Err(error) = asked {
                    assert!(error.contains(&format!("'{word}': the service \"s")), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_reload_changes_nothing_that_running_ports_pass_on() {
        let (plain, tunnel) = ([("dsr", "tcp", "")], [("ipip", "tcp", "")]);
        let [plain, tunnel] = [plain, tunnel].map(|services| balancer("", &services).unwrap());
        let error = plain.reload(&tunnel).unwrap_err().to_string();
        assert!(
            error.contains("'tso', and the service \"s0\" puts packets into tunnels"),
            "{error}"
        );
        // Ports that do not pass on long frames at the start can have any service later, and again after that.
        let mut next = plain.clone();
        tunnel.reload(&next).unwrap();
        next.keep_offloads(&tunnel);
        assert_eq!(next.delivered(), tunnel.delivered());
        next.reload(&tunnel).unwrap();
        // What the first configuration said holds for all later ones.
        let mut same = plain.clone();
        same.keep_offloads(&plain);
        assert!(same.reload(&tunnel).is_err());
        let off = |services| balancer("offload = { tso = false }", services).unwrap();
        off(&[("dsr", "tcp", "")]).reload(&off(&[("ipip", "tcp", "")])).unwrap();
    }

    #[test]
    fn what_excludes_itself_is_refused_with_the_reason() {
        let refused = |offload: &str, more: &str, work: &str, what: &str| {
            let error = config(offload, more, work).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        let both = "offload = { csum = false, uso = true }";
        refused(both, "", FORWARD, "'uso' without 'csum'");
        refused("offload = { lro = true }", "", FORWARD, "lro");
        refused("", "large_frames = 0", FORWARD, "buffers for long frames");
        let mem = FORWARD
            .replace("[work]", "[[port]]\nname = \"c\"\nkind = \"mem\"\noffload = {}\n[work]");
        refused("", "", &mem, "has no 'offload'");
        let both = mem.replace("{}", "{ gro = true, tso = true }");
        refused("", "", &both, "has no 'offload'");
    }

    /// The kernel drops a long frame that bypasses its queueing and that the driver cannot cut.
    #[test]
    fn long_frames_do_not_bypass_the_queueing_of_the_kernel() {
        let bypasses = |pin: &str, keys: &str| {
            let text = format!(
                "[yard]\n{pin}\n[[port]]\nname = \"a\"\nkind = \"af_packet\"\ninterface = \"t0\"\n{keys}\n\
                 [[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n{FORWARD}\n"
            );
            match &Config::parse("y.toml", &text).unwrap().resolve().unwrap().ports[..] {
                [PortBody::Live(LivePort { kind: LiveKind::AfPacket { bypass, .. }, .. })] => {
                    *bypass
                }
                other => panic!("{other:?}"),
            }
        };
        for (pin, keys, wanted) in [
            ("pin = [0]", "", false),
            ("pin = [0]", "offload = { tso = false }", false),
            ("pin = [0]", "offload = { tso = false, uso = false }", true),
            ("", "offload = { csum = false }", false),
        ] {
            assert_eq!(bypasses(pin, keys), wanted, "{pin} {keys}");
        }
    }

    /// Ports of all kinds coalesce; the long frames need buffers, and ports that do not pass them on finish them.
    #[test]
    fn a_port_of_any_kind_coalesces_if_the_work_permits_it() {
        let mem = FORWARD.replace(
            "[work]",
            "[[port]]\nname = \"c\"\nkind = \"mem\"\noffload = { gro = true }\n[work]",
        );
        let config = config("offload = { csum = false }", "", &mem).unwrap();
        assert_eq!(config.coalesce(), BTreeSet::from([2]));
        assert_eq!(config.delivered(), Carries::new(true, true, false));
        assert_eq!(config.large_frames(), 256);
        let own = self::config("offload = { csum = false, gro = true }", "", FORWARD).unwrap();
        assert_eq!(own.coalesce(), BTreeSet::from([0]));
        assert_eq!(
            own.carries(own.ports().next().unwrap()),
            Carries::NONE,
            "it transmits finished frames"
        );
        let services = [("ipip", "tcp", "")];
        let error = balancer("offload = { gro = true }", &services).unwrap_err();
        assert!(error.contains("'gro': the service \"s0\" puts packets into tunnels"), "{error}");
        balancer("offload = { gro = true }", &[("gue", "udp", "")]).unwrap();
    }
}
