//! Groups of sockets that share a port (`SO_REUSEPORT`): each packet goes to a socket whose thread runs on the CPU that
//! processes the packet.
//!
//! ```text
//!  threads that read (tracepoint) ─┐
//!  threads that wait (/proc) ──────┴─> CPU of each socket ──> choices by CPU ──> BPF in the kernel picks
//! ```
//!
//! Programs need no change: their sockets are duplicated for a moment, put into the program's array, and closed again, so
//! a socket lives as long as its own process wants. What the program in the kernel cannot answer (a CPU without a
//! socket, a socket that was closed) the kernel's own hash answers.
//!
//! Invariant: no descriptor of another process's socket is kept.
//! Thread-safety: [`Sockets`] belongs to one thread.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use aya::maps::{Array, HashMap, Map, MapError, PerCpuArray, ReusePortSockArray};
use aya::programs::{BtfTracePoint, SkReuseport};
use aya::{Btf, Ebpf, EbpfLoader};
use schemars::JsonSchema;
use serde::Serialize;

mod scan;

use scan::{Member, Scan};

/// The compiled programs; `cargo xtask bpf` makes it of `bpf/sockets.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/sockets.o");
/// The largest number of sockets in a group.
const SOCKETS_MOST: u32 = 1024;
/// CPUs that the program knows.
const CPUS_MOST: u32 = 1024;
/// The largest number of sockets that one CPU chooses from.
const CHOICES_MOST: usize = 64;

/// `struct choice`: how many sockets, and which.
type Choice = [u32; 1 + CHOICES_MOST];

/// Why sockets cannot be steered; the message includes the fix.
#[derive(Debug, thiserror::Error)]
pub enum SocketsError {
    /// The process cannot be looked at.
    #[error("process {process}: {error}; name a process that runs, as root or with CAP_SYS_PTRACE")]
    Process {
        /// Its number.
        process: u32,
        /// The error of the system.
        error: std::io::Error,
    },
    /// There is nothing to steer.
    #[error(
        "process {process} has no socket that shares port {port} (SO_REUSEPORT) and is not connected; 'ss -lunp' and 'ss -ltnp' list the ports of processes"
    )]
    NoSocket {
        /// The process.
        process: u32,
        /// The port.
        port: u16,
    },
    /// The kernel refuses.
    #[error("{what}: {error}; CAP_BPF, CAP_NET_ADMIN and Linux 5.15 or later are needed")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The error of the kernel.
        error: String,
    },
}

/// The packets of one group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct GroupCounts {
    /// The process whose sockets these are.
    pub process: u32,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The address and port that they share.
    pub address: String,
    /// Number of sockets.
    pub sockets: u32,
    /// Sockets of which it is known on which CPU their thread runs.
    pub placed: u32,
    /// Packets, or connections of TCP, for a socket whose thread runs on the CPU that processed them.
    pub local: u64,
    /// Those for the socket that the kernel's hash selects, because no thread runs there.
    pub other: u64,
}

/// The groups of one port of a process and its descendants, with their programs.
#[derive(Debug)]
pub struct Sockets {
    scan: Scan,
    process: u32,
    port: u16,
    groups: BTreeMap<(bool, SocketAddr), Group>,
    /// Type information of the kernel, for the program that sees threads read; `None` if there is none.
    btf: Option<Btf>,
}

impl Sockets {
    /// Attaches a program to every group of sockets that share `port`. It stays attached until this value is dropped; if
    /// the process is killed, the kernel keeps it with the CPUs that were known last.
    ///
    /// # Errors
    /// When there is no such process or socket, or the kernel refuses.
    pub fn attach(process: u32, port: u16) -> Result<Self, SocketsError> {
        let scan = Scan::new(process, port);
        let btf = Btf::from_sys_fs().ok();
        let mut sockets = Self { scan, process, port, groups: BTreeMap::new(), btf };
        sockets.refresh()?;
        if sockets.groups.is_empty() {
            return Err(SocketsError::NoSocket { process, port });
        }
        Ok(sockets)
    }

    /// Looks for sockets that are new, and for the CPUs of threads that wait. To be called about once a second.
    ///
    /// # Errors
    /// When the process is gone, or the kernel refuses.
    pub fn refresh(&mut self) -> Result<(), SocketsError> {
        let process = self.process;
        let members =
            self.scan.members().map_err(|error| SocketsError::Process { process, error })?;
        let mut by_group: BTreeMap<_, Vec<Member>> = BTreeMap::new();
        for member in members {
            by_group.entry((member.is_tcp, member.address)).or_default().push(member);
        }
        self.groups.retain(|key, _| by_group.contains_key(key));
        for (key, members) in by_group {
            if !self.groups.contains_key(&key) {
                let group = Group::attach(&members[0], self.btf.as_ref())?;
                self.groups.insert(key, group);
            }
            if let Some(group) = self.groups.get_mut(&key) {
                group.update(members)?;
            }
        }
        Ok(())
    }

    /// Takes over the CPUs on which threads have read since. To be called often: every few hundredths of a second.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn follow(&mut self) -> Result<(), SocketsError> {
        self.groups.values_mut().try_for_each(Group::follow)
    }

    /// The packets of each group.
    ///
    /// # Errors
    /// When the kernel does not give the counters.
    pub fn counts(&mut self) -> Result<Vec<GroupCounts>, SocketsError> {
        let process = self.process;
        let counts = self.groups.iter_mut().map(|((is_tcp, address), group)| {
            let [local, other] = group.picked()?;
            Ok(GroupCounts {
                process,
                protocol: if *is_tcp { "tcp" } else { "udp" },
                address: address.to_string(),
                sockets: group.places.len() as u32,
                placed: group.places.values().filter(|place| place.cpu.is_some()).count() as u32,
                local,
                other,
            })
        });
        counts.collect()
    }

    /// The shared port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Sockets {
    /// Any socket of a group detaches its program. Without one there is no group any more.
    fn drop(&mut self) {
        for member in self.scan.members().unwrap_or_default() {
            if self.groups.remove(&(member.is_tcp, member.address)).is_some() {
                let _ = SkReuseport::detach(&member.socket);
            }
        }
    }
}

/// A socket in the program's array.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: u32,
    cpu: Option<u32>,
    /// Whether a read was seen. What `/proc` says counts until then.
    was_read: bool,
}

/// The sockets of one address, and their program.
#[derive(Debug)]
struct Group {
    ebpf: Ebpf,
    /// By cookie.
    places: BTreeMap<u64, Place>,
    /// The choices of each CPU as the program has them.
    written: BTreeMap<u32, Vec<u32>>,
}

impl Group {
    fn attach(member: &Member, btf: Option<&Btf>) -> Result<Self, SocketsError> {
        let what = "loading the program for sockets";
        let mut ebpf = EbpfLoader::new().load(OBJECT).map_err(|error| kernel(what, &error))?;
        let program = ebpf.program_mut("pick").and_then(|program| program.try_into().ok());
        let program: &mut SkReuseport = program.ok_or_else(|| missing(what))?;
        program.load().map_err(|error| kernel(what, &error))?;
        let attached = program.attach(&member.socket);
        attached.map_err(|error| kernel("attaching the program to a socket", &error))?;
        let mut group = Self { ebpf, places: BTreeMap::new(), written: BTreeMap::new() };
        // Without it, before Linux 6.3, the CPUs are those that `/proc` says.
        let _ = btf.map(|btf| group.attach_reads(btf));
        Ok(group)
    }

    fn attach_reads(&mut self, btf: &Btf) -> Option<()> {
        let program: &mut BtfTracePoint = self.ebpf.program_mut("reads")?.try_into().ok()?;
        program.load("sock_recv_length", btf).ok()?;
        program.attach().ok().map(drop)
    }

    /// Puts new sockets into the array, and forgets those that are gone: the kernel has removed them itself.
    fn update(&mut self, members: Vec<Member>) -> Result<(), SocketsError> {
        let gone: Vec<u64> = self
            .places
            .keys()
            .copied()
            .filter(|cookie| members.iter().all(|member| member.cookie != *cookie))
            .collect();
        for cookie in gone {
            self.forget(cookie)?;
        }
        for Member { socket, cookie, cpu, .. } in members {
            if let Some(place) = self.places.get_mut(&cookie) {
                if !place.was_read {
                    place.cpu = cpu.or(place.cpu);
                }
                continue;
            }
            let taken = |index: &u32| self.places.values().any(|place| place.index == *index);
            let Some(index) = (0..SOCKETS_MOST).find(|index| !taken(index)) else { continue };
            let array = map(&mut self.ebpf, "sockets")?;
            let mut array =
                ReusePortSockArray::try_from(array).map_err(|e| kernel("sockets", &e))?;
            // A program that was attached before, and that a killed process has left, may not have gone yet, and a socket
            // is in one array at most: it comes with a later call.
            if array.set(index, &socket, 0).is_err() {
                continue;
            }
            let place = Place { index, cpu, was_read: false };
            self.array("readers", index, 0_u32)?;
            let known = HashMap::<_, u64, u32>::try_from(map(&mut self.ebpf, "cookies")?);
            known
                .and_then(|mut known| known.insert(cookie, index, 0))
                .map_err(|error| kernel("cookies", &error))?;
            self.places.insert(cookie, place);
        }
        self.write()
    }

    fn forget(&mut self, cookie: u64) -> Result<(), SocketsError> {
        self.places.remove(&cookie);
        let known = HashMap::<_, u64, u32>::try_from(map(&mut self.ebpf, "cookies")?);
        let removed = known.and_then(|mut known| known.remove(&cookie));
        removed.map_err(|error| kernel("cookies", &error))
    }

    fn follow(&mut self) -> Result<(), SocketsError> {
        let readers = Array::<_, u32>::try_from(map(&mut self.ebpf, "readers")?);
        let readers = readers.map_err(|error| kernel("readers", &error))?;
        let mut changed = false;
        for place in self.places.values_mut() {
            let seen = readers.get(&place.index, 0).map_err(|error| kernel("readers", &error))?;
            if let Some(cpu) = seen.checked_sub(1) {
                changed |= place.cpu != Some(cpu);
                (place.cpu, place.was_read) = (Some(cpu), true);
            }
        }
        if changed { self.write() } else { Ok(()) }
    }

    /// Writes the choices that differ from those that the program has.
    fn write(&mut self) -> Result<(), SocketsError> {
        let mut wanted: BTreeMap<u32, Vec<u32>> =
            self.written.keys().map(|cpu| (*cpu, Vec::new())).collect();
        for Place { index, cpu, .. } in self.places.values() {
            if let Some(cpu) = cpu.filter(|cpu| *cpu < CPUS_MOST) {
                wanted.entry(cpu).or_default().push(*index);
            }
        }
        for (cpu, mut sockets) in wanted {
            sockets.truncate(CHOICES_MOST);
            if self.written.get(&cpu) == Some(&sockets) {
                continue;
            }
            let mut choice: Choice = [0; 1 + CHOICES_MOST];
            choice[0] = sockets.len() as u32;
            choice[1..=sockets.len()].copy_from_slice(&sockets);
            self.array("choices", cpu, choice)?;
            self.written.insert(cpu, sockets);
        }
        Ok(())
    }

    fn array<V: aya::Pod>(
        &mut self,
        name: &'static str,
        index: u32,
        value: V,
    ) -> Result<(), SocketsError> {
        let array = Array::<_, V>::try_from(map(&mut self.ebpf, name)?);
        let set = array.and_then(|mut array| array.set(index, value, 0));
        set.map_err(|error| kernel(name, &error))
    }

    /// Packets for sockets of their CPU, and others.
    fn picked(&mut self) -> Result<[u64; 2], SocketsError> {
        let read = |error: MapError| kernel("reading the counters", &error);
        let counts = PerCpuArray::<_, [u64; 2]>::try_from(map(&mut self.ebpf, "picked")?);
        let counts = counts.and_then(|counts| counts.get(&0, 0)).map_err(read)?;
        Ok(counts.iter().fold([0, 0], |[a, b], [local, other]| [a + local, b + other]))
    }
}

fn map<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Map, SocketsError> {
    ebpf.map_mut(name).ok_or_else(|| missing(name))
}

fn missing(what: &'static str) -> SocketsError {
    SocketsError::Kernel { what, error: "the object file has no such part".into() }
}

/// An error with its causes.
fn kernel(what: &'static str, error: &(dyn std::error::Error + 'static)) -> SocketsError {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let said: Vec<String> = causes.map(ToString::to_string).collect();
    SocketsError::Kernel { what, error: said.join(": ") }
}
