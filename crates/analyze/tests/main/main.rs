//! Whole analyses of captures and of generated traffic: conservation, order, rules, memory, and a
//! comparison with a slow model.
#![allow(clippy::print_stdout, reason = "a test may print what it compared")]

mod captures;
mod common;
mod conservation;
mod explain;
mod memory;
mod order;
mod rules;
mod slow_model;
