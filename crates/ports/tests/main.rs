//! The integration tests of the capture readers and writers, in one program.

mod alloc;
mod common;
mod corpus;
mod damage;
mod formats;
mod independent;
mod traffic;
