//! The requirements of a configuration on the machine. Unknown or invalid settings are ignored, because
//! the doctor must also check a file that the engine would refuse, and ports of kinds that this build
//! does not support.

use toml::{Table, Value};

/// The requirements of a configuration on the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The ports that use an interface.
    pub ports: Vec<Port>,
    /// The number of cores of the engine; 0 is unknown.
    pub cores: usize,
    /// The CPUs that cores are pinned to.
    pub pin: Vec<usize>,
    /// Approximate size of the pool in bytes; 0 is unknown.
    pub pool_bytes: u64,
    /// Whether idle cores poll instead of sleeping.
    pub busy: bool,
}

/// A port on an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    /// The name of the interface.
    pub interface: String,
    /// `af_xdp`, `af_packet` or `tap`.
    pub kind: String,
    /// The number of the interface's receive queues that the port is bound to.
    pub queues: usize,
    /// Whether the port computes checksums that senders on this machine leave out.
    pub completes_checksums: bool,
}

impl Wanted {
    /// Whether the configuration has a port of this kind.
    #[must_use]
    pub fn kind(&self, kind: &str) -> bool {
        self.ports.iter().any(|port| port.kind == kind)
    }
}

/// The requirements of the configuration in `text`.
///
/// # Errors
/// The text is not TOML.
pub fn wanted(text: &str) -> Result<Wanted, toml::de::Error> {
    let config: Table = toml::from_str(text)?;
    let table = |name: &str| config.get(name).and_then(Value::as_table);
    let number = |value: Option<&Value>| value.and_then(Value::as_integer).unwrap_or(0).max(0);
    let yard = |name: &str| table("yard").and_then(|yard| yard.get(name));
    let list = |name: &str| config.get(name).and_then(Value::as_array).into_iter().flatten();
    let mut ports = Vec::new();
    for port in list("port").filter_map(Value::as_table) {
        let text = |name: &str| port.get(name).and_then(Value::as_str);
        if let (Some(interface), Some(kind)) = (text("interface"), text("kind")) {
            let many = |name: &str| port.get(name).and_then(Value::as_array).map(Vec::len);
            ports.push(Port {
                interface: interface.to_owned(),
                kind: kind.to_owned(),
                queues: many("queues").or_else(|| many("cores")).unwrap_or(1),
                completes_checksums: port.get("complete_checksums") == Some(&Value::Boolean(true)),
            });
        }
    }
    let windows = list("port").chain(list("queue")).filter_map(Value::as_table);
    let frames: i64 = windows
        .map(|one| one.get("window_frames").and_then(Value::as_integer).unwrap_or(1024))
        .filter(|&window| window > 0)
        .fold(0, i64::saturating_add);
    let frames = match number(yard("frames")) {
        0 => frames as u64,
        frames => frames as u64,
    };
    let bytes = match number(yard("buffer_bytes")) {
        0 => 2048,
        bytes => bytes as u64,
    };
    let pin = yard("pin").and_then(Value::as_array).into_iter().flatten();
    Ok(Wanted {
        ports,
        cores: number(yard("cores")).max(1) as usize,
        pin: pin.filter_map(Value::as_integer).filter_map(|cpu| cpu.try_into().ok()).collect(),
        pool_bytes: frames.saturating_mul(bytes.saturating_add(64)),
        busy: yard("idle").and_then(Value::as_str) == Some("busy"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_settings_are_ignored() {
        let text = r#"
            [yard]
            cores = 4
            pin = [2, 3, 4, 5]
            idle = "busy"
            frames = 1000
            buffer_bytes = 2048
            [[port]]
            name = "a"
            kind = "af_xdp"
            interface = "eth1"
            cores = [0, 1]
            unheard_of = true
            [[port]]
            name = "b"
            kind = "pcap"
        "#;
        let found = wanted(text).unwrap();
        let (interface, kind) = ("eth1".to_owned(), "af_xdp".to_owned());
        assert_eq!(found.ports, [Port { interface, kind, queues: 2, completes_checksums: false }]);
        assert_eq!((found.cores, found.pool_bytes, found.busy), (4, 1000 * 2112, true));
        assert_eq!(found.pin, [2, 3, 4, 5]);
        assert!(found.kind("af_xdp") && !found.kind("tap"));
        assert_eq!(wanted("").unwrap(), Wanted { cores: 1, ..Wanted::default() });
        assert!(wanted("[yard").is_err());
    }
}
