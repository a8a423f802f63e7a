//! Tests of the test kit: each part against an independent implementation or a model.

mod frames;
mod order;
mod traffic;
