//! All interleavings, up to a number of preemptions, of cores that share a directory of their tables, or read a replica.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p flowyard-flow --release --test loom
//! ```
//!
//! Loom runs a small case repeatedly, each time with another schedule and other outcomes that the memory model
//! allows. Buckets have three words here, and every entry is in the same bucket, so that some entries are not listed.

#![cfg(loom)]

use flowyard_flow::table::{Directory, Listed, Replica};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The tables of three cores, each with its lock, as in the balancer.
struct Tables {
    directory: Directory,
    tables: [Mutex<Vec<u64>>; 3],
}

impl Tables {
    fn new() -> Arc<Self> {
        let tables = [(); 3].map(|()| Mutex::new(Vec::new()));
        Arc::new(Self { directory: Directory::new(3, 0, 7), tables })
    }

    fn add(&self, hash: u64, core: u16) {
        let mut table = self.tables[usize::from(core)].lock().unwrap();
        table.push(hash);
        self.directory.add(hash, core);
    }

    fn remove(&self, hash: u64, core: u16) {
        let mut table = self.tables[usize::from(core)].lock().unwrap();
        table.retain(|&other| other != hash);
        self.directory.remove(hash, core);
    }

    /// Whether a table that the directory names has the entry.
    fn has(&self, hash: u64) -> bool {
        let has = |core: u16| self.tables[usize::from(core)].lock().unwrap().contains(&hash);
        match self.directory.find(hash) {
            Listed::Only(cores, len) => cores[..len].iter().any(|&core| has(core)),
            Listed::None => false,
            Listed::Any => (0..3).any(has),
        }
    }

    fn lists_nothing(&self) -> bool {
        (0..20).all(|hash| matches!(self.directory.find(hash), Listed::None))
    }
}

fn check(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(case);
}

/// A flow moves: its first core has entered the connection before the second one gets a packet. Meanwhile a third
/// core fills the bucket and empties it.
#[test]
fn an_entry_is_found_by_who_comes_after() {
    check(3, || {
        let (tables, moved) = (Tables::new(), Arc::new(AtomicBool::new(false)));
        let third = thread::spawn({
            let tables = Arc::clone(&tables);
            move || {
                tables.add(11, 2);
                tables.add(12, 2);
                tables.add(13, 2);
                tables.remove(11, 2);
                tables.remove(12, 2);
                tables.remove(13, 2);
            }
        });
        let second = thread::spawn({
            let (tables, moved) = (Arc::clone(&tables), Arc::clone(&moved));
            move || {
                if moved.load(Ordering::Acquire) {
                    assert!(tables.has(5), "the connection was lost with the move");
                }
            }
        });
        tables.add(5, 0);
        moved.store(true, Ordering::Release);
        third.join().unwrap();
        second.join().unwrap();
        assert!(tables.has(5));
        tables.remove(5, 0);
        assert!(tables.lists_nothing());
    });
}

/// Two cores add and remove more entries than the bucket has words. What they keep is found, and nothing is left of the rest.
#[test]
fn words_and_counts_are_those_of_the_entries_that_stay() {
    check(3, || {
        let tables = Tables::new();
        let other = thread::spawn({
            let tables = Arc::clone(&tables);
            move || {
                tables.add(1, 1);
                tables.add(2, 1);
                tables.remove(1, 1);
                assert!(tables.has(2));
            }
        });
        tables.add(1, 0); // the same connection: a copy
        tables.add(3, 0);
        tables.remove(1, 0);
        assert!(tables.has(3));
        other.join().unwrap();
        assert!(tables.has(2) && tables.has(3));
        tables.remove(2, 1);
        tables.remove(3, 0);
        assert!(tables.lists_nothing());
    });
}

/// A core reads while another thread replaces an entry of its set and extends it. It finds the value of its hash or nothing,
/// and an entry that is only extended it finds at any time.
#[test]
fn a_reader_of_a_replica_never_gets_the_value_of_another_hash() {
    check(3, || {
        let replica = Arc::new(Replica::new(0, 0)); // one set of one entry
        replica.put(0x11 << 40, 1, 0, 10);
        let reader = thread::spawn({
            let replica = Arc::clone(&replica);
            move || {
                assert!([None, Some(1)].contains(&replica.get(0x11 << 40, 5_000_000_000)));
                assert!([None, Some(2), Some(3)].contains(&replica.get(0x22 << 40, 5_000_000_000)));
            }
        });
        replica.put(0x22 << 40, 2, 0, 10);
        replica.put(0x22 << 40, 3, 0, 0); // a second value, which has another check
        replica.put(0x22 << 40, 2, 0, 10);
        reader.join().unwrap();
    });
    check(3, || {
        let replica = Arc::new(Replica::new(0, 0));
        replica.put(0x11 << 40, 1, 0, 10);
        let reader = thread::spawn({
            let replica = Arc::clone(&replica);
            move || assert_eq!(replica.get(0x11 << 40, 5_000_000_000), Some(1))
        });
        replica.put(0x11 << 40, 1, 5_000_000_000, 10);
        replica.put(0x11 << 40, 1, 6_000_000_000, 10);
        reader.join().unwrap();
    });
}
