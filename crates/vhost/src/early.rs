//! Messages that enable a ring before the features are set.
//!
//! QEMU sends SET_VRING_ENABLE when it creates its adapter, before SET_FEATURES. The protocol does not permit
//! that, and the library ends the connection. So this module takes such a message off the socket before the
//! library sees it.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::device::Device;

const SET_VRING_ENABLE: u32 = 18;
/// Flags of a header: the version, a reply, a reply that is wanted.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// The header: request, flags, bytes of the body. The body: index, and whether it is to be enabled.
const BYTES: usize = 20;

fn word(bytes: &[u8; BYTES], number: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[4 * number..4 * number + 4]);
    u32::from_ne_bytes(word)
}

/// Handles the next message, if it is one of these. Returns whether it was.
///
/// # Errors
/// When the ring does not exist, or the socket fails.
pub(crate) fn handle(stream: &UnixStream, device: &mut Device) -> Result<bool, String> {
    if device.has_features() {
        return Ok(false);
    }
    let mut bytes = [0; BYTES];
    let failed = |error: rustix::io::Errno| format!("the socket: {error}");
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    // An incomplete message, or the end of the connection, is the library's.
    let Ok((_, BYTES)) = recv(stream.as_fd(), &mut bytes[..], flags) else { return Ok(false) };
    let is_one = word(&bytes, 0) == SET_VRING_ENABLE && word(&bytes, 2) == 8;
    if !is_one || word(&bytes, 1) & (VERSION | REPLY) != VERSION {
        return Ok(false);
    }
    recv(stream.as_fd(), &mut bytes[..], RecvFlags::empty()).map_err(failed)?;
    device.enable(word(&bytes, 3), word(&bytes, 4) != 0)?;
    if word(&bytes, 1) & NEED_REPLY != 0 && device.replies {
        let mut reply = [0; BYTES];
        reply[..4].copy_from_slice(&SET_VRING_ENABLE.to_ne_bytes());
        reply[4..8].copy_from_slice(&(VERSION | REPLY).to_ne_bytes());
        reply[8..12].copy_from_slice(&8_u32.to_ne_bytes());
        send(stream.as_fd(), &reply, SendFlags::NOSIGNAL).map_err(failed)?;
    }
    Ok(true)
}
