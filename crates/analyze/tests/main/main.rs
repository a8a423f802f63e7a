//! Whole analyses of captures and of generated traffic: conservation, order, rules, memory, and a
//! comparison with a slow model.

mod captures;
mod common;
mod conservation;
mod explain;
mod hashed;
mod linux;
mod machine;
mod memory;
mod order;
mod rebalance;
mod rules;
mod slow_model;
mod verdict;

flowyard_testkit::tests! {
    mod captures,
    mod conservation,
    mod explain,
    mod hashed,
    mod linux,
    mod machine,
    mod memory,
    mod order,
    mod rebalance,
    mod rules,
    mod slow_model,
    mod verdict,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
