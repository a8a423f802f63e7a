//! The models against published values: hashes, reordering, imbalance and the work of aRFS.

mod arfs_published;
mod common;
mod published;
mod vectors;
