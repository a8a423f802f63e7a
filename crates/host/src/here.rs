//! The machine that the program runs on.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;

use crate::machine::{Channels, Coalesce, Counts, Driver, Feature, Machine, Management, Rss};
use crate::ntuple::{Listed, Request, Table};
use crate::{management, ntuple, sys};

/// The names of the interfaces in the network namespace of the calling thread.
#[must_use]
pub fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let name = |line: &str| line.split_once(':').map(|(name, _)| name.trim().to_owned());
    text.lines().filter_map(name).collect()
}

/// The addresses of an interface.
#[must_use]
pub fn addresses(interface: &str) -> Vec<std::net::IpAddr> {
    sys::addresses(interface)
}

/// This machine, in the network namespace of the calling thread. `/sys` shows the network namespace in which
/// it was mounted, which [`crate::State::read`] checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl Machine for Here {
    fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(folder)?.flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    fn write(&mut self, path: &str, text: &str) -> io::Result<()> {
        // One write(2): the kernel takes the value of one call.
        fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }

    fn management(&self, interface: &str) -> Vec<Management> {
        management::of(self, interface)
    }

    fn index(&self, interface: &str) -> io::Result<u32> {
        sys::index(interface)
    }

    fn name(&self, index: u32) -> io::Result<String> {
        let is_it = |name: &String| sys::index(name).is_ok_and(|other| other == index);
        let no_device = || io::Error::from_raw_os_error(libc::ENODEV);
        interfaces().into_iter().find(is_it).ok_or_else(no_device)
    }

    fn namespace(&self) -> io::Result<u64> {
        Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
    }

    fn driver(&self, interface: &str) -> io::Result<Driver> {
        sys::driver(interface)
    }

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        sys::channels(interface)
    }

    fn set_channels(&mut self, interface: &str, counts: Counts) -> io::Result<()> {
        sys::set_channels(interface, counts)
    }

    fn rss(&self, interface: &str, context: u32) -> io::Result<Rss> {
        sys::rss(interface, context)
    }

    fn create_context(&mut self, interface: &str, table: &[u32], key: &[u8]) -> io::Result<u32> {
        sys::create_context(interface, table, key)
    }

    fn delete_context(&mut self, interface: &str, context: u32) -> io::Result<()> {
        sys::delete_context(interface, context)
    }

    fn set_table(&mut self, interface: &str, table: &[u32]) -> io::Result<()> {
        sys::set_rss(interface, Some(table), None)
    }

    fn set_key(&mut self, interface: &str, key: &[u8]) -> io::Result<()> {
        sys::set_rss(interface, None, Some(key))
    }

    fn fields(&self, interface: &str, flow_type: u32) -> io::Result<u64> {
        sys::fields(interface, flow_type)
    }

    fn set_fields(&mut self, interface: &str, flow_type: u32, fields: u64) -> io::Result<()> {
        sys::set_fields(interface, flow_type, fields)
    }

    fn features(&self, interface: &str) -> io::Result<Vec<Feature>> {
        sys::features(interface)
    }

    fn coalesce(&self, interface: &str) -> io::Result<Coalesce> {
        sys::coalesce(interface)
    }

    fn counters(&self, interface: &str) -> io::Result<Vec<(String, u64)>> {
        sys::counters(interface)
    }

    fn rules(&self, interface: &str) -> io::Result<Table> {
        ntuple::list(interface)
    }

    fn rule(&self, interface: &str, location: u32) -> io::Result<Option<Listed>> {
        ntuple::at(interface, location)
    }

    fn insert_rule(&mut self, interface: &str, rule: &Request, location: u32) -> io::Result<u32> {
        ntuple::insert_at(interface, rule, location)
    }

    fn delete_rule(&mut self, interface: &str, location: u32) -> io::Result<()> {
        ntuple::delete(interface, location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_their_index() {
        assert_eq!(Here.name(Here.index("lo").unwrap()).unwrap(), "lo");
        assert_eq!(Here.name(u32::MAX).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        let link = fs::read_link("/proc/thread-self/ns/net").unwrap();
        let number = Here.namespace().unwrap();
        assert_eq!(link.to_str().unwrap(), format!("net:[{number}]"));
    }
}
