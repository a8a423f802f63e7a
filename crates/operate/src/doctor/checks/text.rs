//! Parsers for files of /proc and /sys.

/// Major and minor version in a release such as `6.18.44-rc1`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The value of a kernel option, `y` or `m`; `None` if it is not set.
pub(super) fn option(config: &str, name: &str) -> Option<char> {
    let mut lines = config.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.next()?.chars().next()
}

/// The effective capabilities in a /proc/PID/status.
pub(super) fn cap(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// A soft limit in a /proc/PID/limits; `None` is no limit.
pub(super) fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Parses a list of CPUs such as `0-3,8`.
pub(super) fn list(text: &str) -> Vec<usize> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.trim().parse::<usize>(), to.trim().parse::<usize>()) {
            all.extend(from..=to.min(from.saturating_add(8192)));
        }
    }
    all
}

/// Numbers with commas between them.
pub(super) fn join(numbers: &[usize]) -> String {
    let texts: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    texts.join(",")
}

pub(super) fn mib(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib => format!("{mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_parsed() {
        assert_eq!(version("6.18.44-rc1+"), Some((6, 18)));
        assert_eq!((version("x"), version("6")), (None, None));
        let config = "CONFIG_TUN=m\n# CONFIG_VETH is not set\nCONFIG_TUN_X=y\nCONFIG_PACKET=y\n";
        assert_eq!(
            (option(config, "CONFIG_TUN"), option(config, "CONFIG_VETH")),
            (Some('m'), None)
        );
        assert_eq!(option(config, "CONFIG_PACKET"), Some('y'));
        assert_eq!(cap("Name:\tx\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        let limits = "Max locked memory         8388608              8388608              bytes\n";
        assert_eq!(limit(limits, "Max locked memory"), Some(8 << 20));
        assert_eq!(
            limit("Max locked memory  unlimited unlimited bytes", "Max locked memory"),
            None
        );
        assert_eq!(list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!((list(""), list("x-y,3")), (vec![], vec![3]));
        assert_eq!((mib(8 << 20), mib(512 << 10)), ("8 MiB".into(), "512 KiB".into()));
    }
}
