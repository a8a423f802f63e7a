//! The command as a user runs it, without network interfaces: all commands, their JSON, errors, and operation
//! of a running instance.

mod alerts;
mod bad_input;
mod balance;
mod bench;
mod common;
mod connections;
mod documents;
mod explain;
mod figures;
mod fleet;
mod host;
mod limits;
mod machine;
mod nic;
mod operate;
mod outputs;
mod placing;
mod predict;
mod reload;
mod rss_from;
mod scarce;
mod schema;
mod secret;
mod service;
mod simulate;
mod steer;
mod streams;
mod switch;
mod switch_yard;
mod trust;
mod unwritten;
mod work;
mod yard;

flowyard_testkit::tests! {
    mod alerts,
    mod bad_input,
    mod balance,
    mod bench,
    mod connections,
    mod documents,
    mod explain,
    mod figures,
    mod fleet,
    mod host,
    mod limits,
    mod machine,
    mod nic,
    mod operate,
    mod outputs,
    mod placing,
    mod predict,
    mod reload,
    mod rss_from,
    mod scarce,
    mod schema,
    mod secret,
    mod service,
    mod simulate,
    mod steer,
    mod streams,
    mod switch,
    mod switch_yard,
    mod trust,
    mod unwritten,
    mod work,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
