//! WHERE a frame goes: parse, hash, tables, learners, settle. No I/O, no threads.

pub mod toeplitz;
