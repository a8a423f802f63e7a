//! The crate against DPDK's virtual devices, and rules against the stand-in. DPDK is started once in this process,
//! without huge pages; where it cannot start, or the crate is built without it, the tests are ignored.

#[cfg(feature = "dpdk")]
mod devices;
#[cfg(feature = "dpdk")]
mod rules;

#[cfg(feature = "dpdk")]
flowyard_testkit::tests! {
    mod devices,
    mod rules,
}

#[cfg(not(feature = "dpdk"))]
flowyard_testkit::tests! {
    devices_and_rules needs [flowyard_testkit::harness::Need::Check(has_dpdk)],
}

#[cfg(not(feature = "dpdk"))]
fn has_dpdk() -> Result<(), String> {
    if flowyard_dpdk::is_built() { Ok(()) } else { Err("the feature dpdk of flowyard-dpdk".into()) }
}

#[cfg(not(feature = "dpdk"))]
fn devices_and_rules() {
    unreachable!("the test is ignored without the feature");
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
