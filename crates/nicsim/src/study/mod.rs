//! Two studies of traces: limits of instruction-level parallelism (Table 2), coherent caches (Figure 3).

pub mod ilp;
pub mod mesi;
