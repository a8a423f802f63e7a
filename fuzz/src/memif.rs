//! `memif`: any bytes as messages of the control channel, to a server and to a client.

use crate::{Limits, Line};
use flowyard_memif::{
    Attach, Client, Layout, MESSAGE_BYTES, Message, Reply, Role, Server, Settings, Step,
};

/// A message costs some copies of its texts, on both sides.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 4000, byte: 60 }, bytes: Line { input: 8000, byte: 40 } };

fn settings(role: Role) -> Settings {
    Settings {
        role,
        socket: "/tmp/memif.sock".into(),
        id: 1,
        name: "fuzzed".into(),
        secret: Vec::new(),
        queues: 4,
        log2_ring: 10,
        buffer_bytes: 2048,
    }
}

/// Messages of 128 bytes each.
///
/// # Panics
/// When a message is written in a form that is not read back as the same message, a server accepts rings that it did not
/// offer, or a client sends what it has not got.
pub fn memif(data: &[u8]) {
    let mut server = Server::<u8>::new(settings(Role::Server));
    let mut client = Client::new(settings(Role::Client));
    let (mut serves, mut calls) = (true, true);
    for bytes in data.chunks(MESSAGE_BYTES) {
        let Ok(message) = Message::decode(bytes) else { continue };
        // A text that is no UTF-8 gets longer, and is cut when it is written.
        let wire = message.encode();
        assert_eq!(Message::decode(&wire).map(|again| again.encode()), Ok(wire));
        if calls {
            match client.receive(&message) {
                Ok(Step::Send(_, attach)) => {
                    let bytes = client.layout().and_then(|layout: Layout| layout.bytes());
                    assert!(bytes.is_some() || attach == Attach::Nothing);
                }
                Ok(Step::Connected(_)) => {}
                Ok(Step::Ended(_)) | Err(_) => calls = false,
            }
        }
        if serves {
            match server.receive(message, Some(0)) {
                Ok(Reply::Send(answer)) => assert_eq!(answer, Message::Ack),
                Ok(Reply::Connect(parts, _)) => {
                    assert!((1..=4).contains(&parts.to_server.len()));
                    assert!((1..=4).contains(&parts.to_client.len()));
                    let known = |ring: u16| usize::from(ring) < parts.regions.len();
                    let all = parts.to_server.iter().chain(&parts.to_client);
                    assert!(all.into_iter().all(|(ring, _)| known(ring.region)));
                }
                Ok(Reply::Ended(_)) | Err(_) => serves = false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole conversations, with each byte of them changed.
    #[test]
    fn changed_seeds() {
        let mut server = Server::<u8>::new(settings(Role::Server));
        let mut client = Client::new(settings(Role::Client));
        let (mut message, mut all) = (server.hello(), Vec::new());
        loop {
            all.extend(message.encode());
            let Ok(Step::Send(next, _)) = client.receive(&message) else { break };
            all.extend(next.encode());
            message = match server.receive(next, Some(0)) {
                Ok(Reply::Send(message) | Reply::Connect(_, message)) => message,
                other => panic!("{other:?}"),
            };
        }
        assert!(matches!(message, Message::Connected { .. }), "{message:?}");
        memif(&all);
        memif(&[&[2, 0], &[255; 32][..], &[0; 94]].concat());
        for at in 0..all.len() {
            for change in [1, 128, 255] {
                all[at] ^= change;
                memif(&all);
                all[at] ^= change;
            }
        }
    }
}
