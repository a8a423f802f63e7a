use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

const STATE: &str = "src 192.0.2.1 dst 192.0.2.2\n\tproto esp spi 0x00001000 reqid 1 mode tunnel\n\treplay-window 64\n\
    \taead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128\n";
const POLICY: &str = "src 10.1.0.0/16 dst 10.2.0.0/16\n\tdir out priority 1\n\ttmpl src 192.0.2.1 dst 192.0.2.2\n\
    \t\tproto esp reqid 1 mode tunnel\n";

fn text(folder: &Path, queue: &str, more: &str) -> String {
    format!(
        "[yard]\ncores = 2\n[[port]]\nname = \"a\"\nkind = \"mem\"\nin = \"given\"\n\
         [[queue]]\nname = \"q\"\n{queue}\nwindow_frames = 256\n\
         [work]\nkind = \"ipsec\"\n[[work.route]]\nprefix = \"0.0.0.0/0\"\nport = \"a\"\nnext_hop = \"02:00:00:00:00:09\"\n\
         [ipsec]\nstate = {:?}\npolicy = {:?}\n{more}",
        folder.join("state.txt"),
        folder.join("policy.txt"),
    )
}

const ORDERED: &str = "order = \"ordered\"\nconsumers = [0, 1]";

fn files(mode: u32, state: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("state.txt"), state).unwrap();
    std::fs::write(folder.path().join("policy.txt"), POLICY).unwrap();
    let rights = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder.path().join("state.txt"), rights).unwrap();
    folder
}

#[test]
fn a_gateway_is_read_from_the_output_of_ip() {
    let folder = files(0o600, STATE);
    let config = Config::parse("y", &text(folder.path(), ORDERED, "unmatched = \"drop\"")).unwrap();
    let settings = config.ipsec_settings().unwrap();
    assert_eq!((settings.sas.len(), settings.policies.len()), (1, 1));
    assert_eq!((settings.mtu, settings.discards_unmatched, settings.slack), (1500, true, 256));
    assert!(settings.stamps >= 256);
    let direct = "order = \"direct\"\nconsumers = [0]";
    let config = Config::parse("y", &text(folder.path(), direct, "")).unwrap();
    let settings = config.ipsec_settings().unwrap();
    assert_eq!((settings.discards_unmatched, settings.slack, settings.stamps), (false, 0, 0));
    assert!(!format!("{settings:?}").contains("1, 2, 3, 4"), "keys are hidden");
}

#[test]
fn mistakes_are_reported_with_their_place_and_no_key() {
    let said = |folder: &tempfile::TempDir, queue: &str, more: &str| {
        let config = Config::parse("y", &text(folder.path(), queue, more));
        config.and_then(|config| config.resolve()).unwrap_err().to_string()
    };
    let good = files(0o600, STATE);
    let open = files(0o640, STATE);
    let error = said(&open, ORDERED, "");
    assert!(
        error.contains("mode 640 lets others use it") && error.contains("chmod 600"),
        "{error}"
    );
    assert!(error.contains("y:19:9"), "{error}");
    let allowed = text(open.path(), ORDERED, "allow_readable_keys = true");
    assert!(Config::parse("y", &allowed).unwrap().resolve().is_ok());
    let bad = files(0o600, &STATE.replace("0x0001", "0x01"));
    let error = said(&bad, ORDERED, "");
    assert!(
        error.contains("state.txt, line 4") && error.contains("key material of 19 bytes"),
        "{error}"
    );
    assert!(!error.contains("020304"), "{error}");
    let cases = [
        (ORDERED, "mtu = 100", "an MTU of 100 bytes is not possible"),
        ("order = \"unordered\"\nconsumers = [0, 1]", "", "out of order"),
        ("order = \"atomic\"\nconsumers = [0, 1]", "", "out of order"),
        (
            "order = \"direct\"\nconsumers = [0]\n[[queue]]\nname = \"r\"\norder = \"direct\"\nconsumers = [1]",
            "",
            "several queues",
        ),
        (ORDERED, "states = 1", "there is no key 'states' here"),
    ];
    for (queue, more, what) in cases {
        let error = said(&good, queue, more);
        assert!(error.contains(what), "{what}: {error}");
    }
    let seeded = text(good.path(), ORDERED, "").replace("cores = 2", "cores = 2\nseed = 7");
    assert!(Config::parse("y", &seeded).unwrap_err().to_string().contains("same IVs again"));
    let other = text(good.path(), ORDERED, "").replace("\"ipsec\"", "\"route\"");
    assert!(
        Config::parse("y", &other)
            .unwrap_err()
            .to_string()
            .contains("[ipsec] is for kind = \"ipsec\"")
    );
    let whole = text(good.path(), ORDERED, "");
    let none = whole.split("[ipsec]").next().unwrap();
    assert!(Config::parse("y", none).unwrap_err().to_string().contains("[ipsec] is missing"));
    let missing = text(Path::new("/nowhere"), ORDERED, "");
    assert!(
        Config::parse("y", &missing)
            .unwrap()
            .resolve()
            .unwrap_err()
            .to_string()
            .contains("No such file")
    );
}
