//! The integration tests of the crate, as one program.

mod acceptance;
mod core;
mod engines;
mod errors;
mod physics;
mod sensitivity;
mod steering;
