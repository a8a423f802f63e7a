//! Devices that share memory with another program's: net_memif with our own memif port as the other side, and
//! net_vhost with net_virtio_user. What the one side receives it returns, so frames pass in both directions.

use flowyard_testkit::harness::Need;

use super::traffic::{frames, pass_when, shows, text};

flowyard_testkit::tests! {
    memif_passes_every_frame_in_order needs [MEMIF],
    memif_that_is_copied_passes_every_frame_in_order needs [MEMIF],
    vhost_passes_every_frame_in_order,
}

/// A test with net_memif must be asked for: a peer that disconnects or connects while the device is removed can end
/// the whole test program (see docs/dpdk.md).
const MEMIF: Need = Need::Check(|| {
    let is_asked = std::env::var_os("FLOWYARD_DPDK_MEMIF").is_some_and(|value| value == "1");
    let needs = "FLOWYARD_DPDK_MEMIF=1, because DPDK 22.11's net_memif can crash the process when its peer \
                 disconnects while it is closed";
    if is_asked { Ok(()) } else { Err(needs.to_owned()) }
});

fn memif(memory: &str, frames: u64) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock");
    let ports = format!(
        "[[port]]\nname = \"dm\"\nkind = \"dpdk\"\nmemory = \"{memory}\"\n\
         device = \"net_memif0,role=server,id=0,socket={0},socket-abstract=no\"\n\
         [[port]]\nname = \"fm\"\nkind = \"memif\"\nrole = \"client\"\nsocket = \"{0}\"",
        socket.display()
    );
    let text = text(&ports, "gen = \"dm\", fm = \"fm\", dm = \"sink\", sink = \"gen\"");
    let ran =
        pass_when(&text, frames, u64::MAX / 2, shows(&["fm: connected", "dm: the link is up"]));
    assert_eq!(ran.copies("dm"), memory == "copy");
}

fn memif_passes_every_frame_in_order() {
    memif("yard", frames());
}

fn memif_that_is_copied_passes_every_frame_in_order() {
    memif("copy", frames());
}

fn vhost_passes_every_frame_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vhost.sock");
    let ports = format!(
        "[[port]]\nname = \"back\"\nkind = \"dpdk\"\ndevice = \"net_vhost0,iface={0},queues=1\"\n\
         [[port]]\nname = \"front\"\nkind = \"dpdk\"\ndevice = \"net_virtio_user0,path={0},queues=1\"",
        socket.display()
    );
    let text = text(&ports, "gen = \"front\", back = \"back\", front = \"sink\", sink = \"gen\"");
    let ran = pass_when(&text, frames(), u64::MAX / 2, shows(&["back: the link is up"]));
    assert_eq!((ran.copies("back"), ran.copies("front")), (true, true));
}
