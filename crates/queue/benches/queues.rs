//! What the queues cost.
fn main() {}
