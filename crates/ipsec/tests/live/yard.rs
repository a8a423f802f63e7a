//! `flowyard run` in the namespace of the guest's TAP.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flowyard_livekit::{Net, sys};

/// The MAC address of the yard's ports.
pub(crate) const MAC: &str = "02:00:00:00:00:77";

/// The program in the folder of the build, or the one that FLOWYARD_BINARY names.
fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("FLOWYARD_BINARY").map(PathBuf::from);
    let built = || {
        let program = std::env::current_exe().ok()?;
        Some(program.parent()?.parent()?.parent()?.join("release/flowyard"))
    };
    named.or_else(built).filter(|path| path.is_file())
}

pub(crate) fn has_binary() -> Result<(), String> {
    let missing = "a build of the command: `cargo build --release -p flowyard-cli`";
    binary().map(drop).ok_or_else(|| missing.to_owned())
}

/// A running command, which is killed when this is dropped.
pub(crate) struct Yard {
    child: Child,
    folder: PathBuf,
}

impl Yard {
    /// Starts a gateway of two cores between `inside` and `outside` in `net`.
    pub(crate) fn start(
        net: &Net,
        folder: &Path,
        state: &str,
        policy: &str,
        macs: [&str; 2],
    ) -> Self {
        let [client, guest] = macs;
        let config = format!(
            r#"
            [yard]
            cores = 2
            idle = "sleep"
            [[port]]
            name = "inside"
            kind = "af_packet"
            interface = "inside"
            mac = "{MAC}"
            core = 0
            [[port]]
            name = "outside"
            kind = "af_packet"
            interface = "guest0"
            mac = "{MAC}"
            core = 1
            [[queue]]
            name = "q"
            order = "ordered"
            consumers = [0, 1]
            [work]
            kind = "ipsec"
            [[work.route]]
            prefix = "10.1.0.0/16"
            port = "inside"
            next_hop = "{client}"
            [[work.route]]
            prefix = "fd01::/16"
            port = "inside"
            next_hop = "{client}"
            [[work.route]]
            prefix = "0.0.0.0/0"
            port = "outside"
            next_hop = "{guest}"
            [[work.route]]
            prefix = "::/0"
            port = "outside"
            next_hop = "{guest}"
            [ipsec]
            state = "state.txt"
            policy = "policy.txt"
            "#
        );
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("y.toml", &config);
        write("policy.txt", policy);
        write("state.txt", state);
        let rights = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.join("state.txt"), rights).unwrap();
        let file = |name| File::create(folder.join(name)).unwrap();
        let mut command = Command::new(binary().unwrap());
        command
            .args(["run", "y.toml", "--json", "--control", "c.sock", "--user", "root"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"));
        sys::within(&mut command, &net.0);
        sys::end_with_parent(&mut command);
        let mut yard = Self { child: command.spawn().unwrap(), folder: folder.to_owned() };
        for _ in 0..600 {
            if yard.log().contains("running config") {
                return yard;
            }
            assert!(yard.child.try_wait().unwrap().is_none(), "{}", yard.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the yard did not start: {}", yard.log());
    }

    /// What the log has.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("err")).unwrap()
    }

    /// The output of `flowyard show WHAT`.
    pub(crate) fn show(&self, what: &[&str]) -> String {
        let mut command = Command::new(binary().unwrap());
        command.arg("show").args(what).args(["--control", "c.sock"]).current_dir(&self.folder);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// A counter of the SA with this SPI, from the JSON of `flowyard show sas`.
    pub(crate) fn counter(&self, spi: u32, name: &str) -> u64 {
        let all: serde_json::Value = serde_json::from_str(&self.show(&["sas", "--json"])).unwrap();
        let sas =
            all.pointer("/sas").or_else(|| all.pointer("/data/sas")).and_then(|sas| sas.as_array());
        let sa = sas.and_then(|sas| sas.iter().find(|sa| sa["spi"] == spi));
        sa.and_then(|sa| sa["counters"][name].as_u64())
            .unwrap_or_else(|| panic!("{spi} {name}: {all}"))
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        // Neither fails unless it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
