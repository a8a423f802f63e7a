//! Why a flow is, or is not, offloaded from the tables: the explanation for users.
//!
//! Thread-safety: plain data.

use std::fmt;

use flowyard_openflow::act::Instruction;

/// How the frames of a flow are processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// The flows that its frames match: table, priority, cookie.
    pub path: Vec<(u8, u16, u64)>,
    /// The same flows as `ovs-ofctl` writes them, and the number of their frames that hit in the cache of this
    /// core.
    pub flows: Vec<(String, u64)>,
    /// Where the frame goes: a sentence for each output, and for each group with its bucket. Empty if it is
    /// dropped, or if the fields do not determine it.
    pub outputs: Vec<String>,
    /// The table in which no flow matches, if there is one.
    pub miss: Option<u8>,
    /// How its second frame is processed, unless lookups in the cache are paused.
    pub answer: Answer,
    /// Whether this core's cache has an entry for such a frame now. If not, the tables process the next one.
    pub is_known: bool,
    /// Present if lookups in the cache are paused.
    pub rest: Option<Rest>,
}

/// A pause of the cache: lookups do not pay for the frames that are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// One of N frames is looked up.
    pub one_in: u32,
    /// Hits among the frames that were last looked up.
    pub known: u32,
    /// The number of these frames.
    pub of: u32,
}

/// How a frame is processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// By the port mapping.
    Mapped {
        /// The port.
        port: u32,
    },
    /// By the port mapping, which drops them: the port does not exist or does not send.
    MappedNowhere {
        /// The port.
        port: u32,
    },
    /// By the cache, which has the flows; their actions are applied to each frame.
    Cached,
    /// By the cache, which has the result that no flow matches.
    CachedMiss,
    /// By the tables: there is no cache.
    NoCache,
    /// By the tables: before another table is looked up, a flow changes fields in a way that the key of the
    /// received frame does not determine.
    Unproven {
        /// The flow's table.
        table: u8,
        /// Its priority.
        priority: u16,
        /// The instruction.
        does: Box<Instruction>,
    },
    /// The fields do not determine the rest: an action uncovers other fields, which are in the frame's bytes.
    Unknown {
        /// The first table that is not determined.
        table: u8,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (flow, offloaded) in &self.flows {
            writeln!(f, "{flow} (offloaded: {offloaded} frames)")?;
        }
        if let Some(table) = self.miss {
            writeln!(f, "table {table}: no flow matches")?;
        }
        for output in &self.outputs {
            writeln!(f, "{output}")?;
        }
        self.answer.fmt(f)?;
        if self.answer.is_offloaded() && !self.is_known {
            f.write_str("\nthe cache has no entry for it now: the tables process the next frame")?;
        }
        self.rest.map_or(Ok(()), |rest| write!(f, "\n{rest}"))
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { one_in, known, of } = self;
        write!(
            f,
            "the cache is paused: {known} of the last {of} lookups hit, so only one of {one_in} frames is looked \
             up; the tables process the others"
        )
    }
}

impl Answer {
    /// Whether the frame is processed without the tables.
    #[must_use]
    pub const fn is_offloaded(&self) -> bool {
        matches!(
            self,
            Self::Mapped { .. } | Self::MappedNowhere { .. } | Self::Cached | Self::CachedMiss
        )
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapped { port } => {
                write!(f, "offloaded: the port mapping sends it to port {port}")
            }
            Self::MappedNowhere { port } => write!(
                f,
                "offloaded: the port mapping drops it, because port {port} does not exist or does not send"
            ),
            Self::Cached => write!(
                f,
                "offloaded: the lookup is cached; the actions still run for each frame, because they are not a \
                 single output"
            ),
            Self::CachedMiss => {
                write!(f, "offloaded: the lookup is cached; no flow matches")
            }
            Self::NoCache => {
                write!(f, "not offloaded: there is no cache; set 'cache_entries' in [switch]")
            }
            Self::Unproven { table, priority, does } => write!(
                f,
                "not offloaded: the flow of priority {priority} in table {table} does {does:?} before the next \
                 table is looked up, and the received frame's key does not determine the fields then"
            ),
            Self::Unknown { table } => write!(
                f,
                "these fields do not determine the lookup in table {table}: an action before it uncovers other \
                 headers"
            ),
        }
    }
}
