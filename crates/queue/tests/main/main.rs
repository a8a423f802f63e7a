//! The queues: case by case, against the model, and on real threads. The model checker's cases are in
//! `tests/loom.rs`.

#![cfg(not(loom))]

mod against_model;
mod common;
mod events;
mod semantics;
mod threads;
mod twin;
