//! Why a flow is, or is not, in front of the tables: the words for people.
//!
//! Thread-safety: plain data.

use std::fmt;

use flowyard_openflow::act::Instruction;

/// What becomes of the frames of a flow, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// The flows that its frames meet: table, priority, cookie.
    pub path: Vec<(u8, u16, u64)>,
    /// The same flows as `ovs-ofctl` writes them, and how many of their frames the cache answered on this
    /// core.
    pub flows: Vec<(String, u64)>,
    /// The table that has no flow for it.
    pub miss: Option<u8>,
    /// How its second frame is answered, if the cache is asked.
    pub answer: Answer,
    /// Whether this core's cache has an entry for such a frame now; if not, the next one goes through the tables.
    pub is_known: bool,
    /// The cache rests, and is asked for few frames.
    pub rest: Option<Rest>,
}

/// A cache that rests, for asking it does not pay with the frames that come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// It is asked for one of N frames.
    pub one_in: u32,
    /// Hits among the frames that were last looked up.
    pub known: u32,
    /// Those frames.
    pub of: u32,
}

/// How a frame is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// By the port mapping.
    Mapped {
        /// The port.
        port: u32,
    },
    /// By the cache, which knows the flows; their actions are done on each frame.
    Cached,
    /// By the cache, which knows that a table has no flow for it.
    CachedMiss,
    /// By the tables: there is no cache.
    NoCache,
    /// By the tables: what a flow does before another table is asked changes fields as no key tells.
    Unproven {
        /// The flow's table and priority.
        table: u8,
        /// Its priority.
        priority: u16,
        /// What it does.
        does: Box<Instruction>,
    },
    /// The fields do not say how it goes on: an action brings out others, of the frame's bytes.
    Unknown {
        /// From which table on.
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
        self.answer.fmt(f)?;
        if self.answer.is_offloaded() && !self.is_known {
            f.write_str(
                "\nno frame like it is in the cache now: the next one goes through the tables",
            )?;
        }
        self.rest.map_or(Ok(()), |rest| write!(f, "\n{rest}"))
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { one_in, known, of } = self;
        write!(
            f,
            "the cache rests: of {of} frames it knew {known}, so it is asked for one of {one_in}; the tables \
             answer the others"
        )
    }
}

impl Answer {
    /// Whether it comes from in front of the tables.
    #[must_use]
    pub const fn is_offloaded(&self) -> bool {
        matches!(self, Self::Mapped { .. } | Self::Cached | Self::CachedMiss)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapped { port } => {
                write!(f, "offloaded: the port mapping sends it to port {port}")
            }
            Self::Cached => write!(
                f,
                "offloaded: the cache keeps its flows, so no table is asked; their actions are done on each \
                 frame, as they are other than one output"
            ),
            Self::CachedMiss => {
                write!(f, "offloaded: the cache keeps that no flow matches, so no table is asked")
            }
            Self::NoCache => {
                write!(f, "not offloaded: there is no cache; set 'cache_entries' in [switch]")
            }
            Self::Unproven { table, priority, does } => write!(
                f,
                "not offloaded: the flow of priority {priority} in table {table} does {does:?} before the next \
                 table is asked, and no key proves what that table sees"
            ),
            Self::Unknown { table } => write!(
                f,
                "these fields do not say what table {table} sees: an action before it brings out others"
            ),
        }
    }
}
