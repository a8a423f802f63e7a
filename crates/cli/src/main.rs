//! The `flowyard` command; the only place that reads its arguments.

fn main() {}
