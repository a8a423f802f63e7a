//! The command on real interfaces in network namespaces that the tests make: `flowyard run`, the load
//! balancer, `flowyard bench`.
//!
//! `FLOWYARD_BINARY` names another build of the command than the one beside the tests; `FLOWYARD_LIVE=0` skips
//! these tests.
//!
//! Tests wait for events, not for times. Their deadlines are far longer than any machine takes.

mod balance;
mod bench;
mod run;
mod yard;
