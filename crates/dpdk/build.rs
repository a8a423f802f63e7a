//! Compiles the C files of `shim/` against the installed DPDK, which `pkg-config` finds. Without the feature `dpdk` it
//! does nothing.

fn main() {
    println!("cargo:rerun-if-changed=shim");
    #[cfg(feature = "dpdk")]
    shim();
}

#[cfg(feature = "dpdk")]
fn shim() {
    use std::process::Command;

    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let mut probe = pkg_config::Config::new();
    probe.cargo_metadata(false).env_metadata(true);
    if let Err(error) = probe.atleast_version("22.11").probe("libdpdk") {
        fail(&format!("libdpdk 22.11 or later was not found: {error}"));
    }
    // pkg-config's own words: the crate drops options that it does not know, as '-include rte_config.h'.
    let words = |option: &str| {
        let program = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
        let output = Command::new(program).args([option, "libdpdk"]).output();
        let output = output.unwrap_or_else(|error| fail(&format!("pkg-config: {error}")));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut build = cc::Build::new();
    build.files(["shim/shim.c", "shim/remove.c", "shim/flow.c", "shim/event.c"]);
    build.define("ALLOW_EXPERIMENTAL_API", None).flag("-Wall").flag("-Wextra").opt_level(3);
    words("--cflags").iter().for_each(|word| {
        // Headers of DPDK are not ours to warn about.
        match word.strip_prefix("-I") {
            Some(folder) => build.flag("-isystem").flag(folder),
            None => build.flag(word),
        };
    });
    if std::env::var_os("FLOWYARD_WERROR").is_some() {
        build.flag("-Werror");
    }
    build.compile("flowyard_dpdk_shim");
    for word in words("--libs") {
        if let Some(name) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={name}");
        } else if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        }
    }
}

#[cfg(feature = "dpdk")]
fn fail(what: &str) -> ! {
    println!("cargo:warning={what}");
    println!("cargo:warning=the feature 'dpdk' needs it: apt-get install libdpdk-dev pkg-config");
    std::process::exit(1)
}
