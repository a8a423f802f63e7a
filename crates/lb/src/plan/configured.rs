//! A checksum of what the configuration alone decides.

use std::fmt::Write;
use std::hash::Hasher;
use std::sync::Arc;

use flowyard_flow::table::Maglev;
use siphasher::sip::SipHasher24;

use super::{Plan, Table};
use crate::control::make::{choices, hold_backups};
use crate::service::Backend;

impl Plan {
    /// A checksum of all services and of the Maglev tables that they have while every backend is up, without slow start
    /// and without manual settings. Machines with the same services, seed and table size have the same checksum,
    /// whatever the order of services and backends, and whatever their health checks found.
    #[must_use]
    pub fn configured_checksum(&self) -> u64 {
        let mut tables: Vec<&Table> = self.services.iter().collect();
        tables.sort_unstable_by(|a, b| a.service.name.cmp(&b.service.name));
        let mut hasher = SipHasher24::new();
        let mut text = String::new();
        for table in tables {
            text.clear();
            let service = &table.service;
            let mut backends: Vec<&Backend> = service.backends.iter().collect();
            backends.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            // Debug output quotes names, so that no name can look like the next part.
            let _infallible = write!(
                text,
                "{:?} {} {} {:?} {:?} {:?} {:x}",
                service.name,
                service.vip,
                service.proto,
                service.ports,
                service.mode,
                service.choice,
                self.configured(table).checksum()
            );
            if service.one_packet {
                text.push_str(" one packet");
            }
            if let Some(persist) = &service.persist {
                let _infallible = write!(
                    text,
                    " persist {} {} {}",
                    persist.timeout, persist.mask_v4, persist.mask_v6
                );
            }
            for backend in backends {
                let Backend { name, addr, port, backup, ceiling, .. } = backend;
                let backup = if *backup { " backup" } else { "" };
                let _infallible = write!(text, " {name:?} {addr} {port:?}{backup}");
                if let Some(ceiling) = ceiling {
                    let _infallible = write!(text, " {} {}", ceiling.most(), ceiling.resume());
                }
            }
            hasher.write(text.as_bytes());
            hasher.write_u8(b'\n');
        }
        hasher.finish()
    }

    /// The Maglev table of a service by its configuration alone.
    fn configured(&self, table: &Table) -> Arc<Maglev> {
        let weight = |backend: &Backend| match backend.drain {
            true => 0,
            false => backend.weight.saturating_mul(100),
        };
        let mut weights: Vec<u32> = table.service.backends.iter().map(weight).collect();
        hold_backups(&table.service.backends, &mut weights);
        if weights == table.weights {
            return Arc::clone(&table.maglev);
        }
        // The services were validated when they were set, and weights cannot make a table invalid.
        let maglev = Maglev::new(&choices(&table.service, &weights), self.entries, self.seed);
        maglev.map_or_else(|_| Arc::default(), Arc::new)
    }
}
