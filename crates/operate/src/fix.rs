//! What can be done about dropped frames, for each drop reason.

use flowyard_frame::FlowKey;
use flowyard_yard::{DropReason, Handle};

/// As [`fix`], for an engine whose work may be a switch. `key` is one of the frames.
pub(crate) fn fix_in(
    yard: &Handle,
    reason: DropReason,
    place: &str,
    key: Option<&FlowKey>,
) -> String {
    let by_flow = match reason {
        DropReason::Work => crate::switch::nowhere(yard, key),
        _ => None,
    };
    by_flow.unwrap_or_else(|| fix(reason, place))
}

/// What can be done about frames that were dropped for `reason` at `place` (as `queue workers`).
#[must_use]
pub(crate) fn fix(reason: DropReason, place: &str) -> String {
    let text = FIXES.iter().find(|(known, _)| *known == reason).map(|(_, text)| *text);
    text.unwrap_or("see docs/operate.md").replace("{place}", place)
}

/// A text for each reason. `{place}` stands for the queue or port.
const FIXES: [(DropReason, &str); 38] = [
    (
        DropReason::QueueFull,
        "{place} was full: raise its 'window_frames', add consumers, or write full = \"hold\" to make its \
         producers wait; 'flowyard top' shows whether the cores are busy",
    ),
    (
        DropReason::TooLong,
        "the frame is longer than a pool buffer: raise 'buffer_bytes' in [yard]; in a balancer, the packet may \
         instead exceed the 'mtu' of its service: raise 'mtu', or lower 'mss' so that clients send smaller segments",
    ),
    (
        DropReason::NoBuffer,
        "the pool was empty: raise 'frames' in [yard], or leave it out so that it is computed from queues and cores",
    ),
    (
        DropReason::Empty,
        "the capture contains no bytes of this frame: capture with a longer snap length",
    ),
    (
        DropReason::Table,
        "a table entry has the action drop: 'flowyard show tables' lists the entries; remove the entry from \
         [steer] and send SIGHUP",
    ),
    (DropReason::Work, "the configured work dropped it: see [work] in the configuration"),
    (
        DropReason::NoRoute,
        "{place}: the destination does not exist, or the input port is missing in the work's map: correct 'ports' \
         in [work], or the table entry with this destination; a balancer's tunnel needs a 'local' address of its \
         address family",
    ),
    (
        DropReason::CoreDied,
        "the core that processed it died: the log has the reason; restart flowyard and report the panic",
    ),
    (
        DropReason::LinkType,
        "{place} cannot transmit frames of this link type: forward it to a port with the same link type",
    ),
    (
        DropReason::PortFailed,
        "{place} failed: the log has the reason (for example a full disk or a removed interface)",
    ),
    (
        DropReason::Filtered,
        "not an error: the frame was received from the link that its destination is on, or has a group address \
         that is not forwarded; if this is unexpected, check whether two ports are connected to the same network",
    ),
    (
        DropReason::Reserved,
        "not an error: a bridge never forwards frames to 01:80:C2:00:00:00 to 01:80:C2:00:00:0F (spanning tree, \
         LLDP, pause frames)",
    ),
    (
        DropReason::Malformed,
        "the IP header is damaged or truncated: check the sender and its cable, checksum offload ('flowyard \
         doctor'), and the snap length of a capture; a balancer also drops packets with source routes if it would \
         have to translate them",
    ),
    (
        DropReason::NotIp,
        "routers and balancers forward only IP: forward other frames with [work] kind = \"bridge\", with a rule \
         whose action is a port, or with 'pass' in [balance]",
    ),
    (
        DropReason::TtlExpired,
        "the time to live or hop limit reached 0: check for a routing loop; traceroute causes this on purpose",
    ),
    (
        DropReason::Overrun,
        "the kernel dropped it because the port's receive ring was full: raise 'ring_frames' of the port, give it \
         more cores, or pin the cores ('flowyard doctor')",
    ),
    (
        DropReason::PortDown,
        "{place} is down: set its interface up with 'ip link set'; the log has the time at which it went down",
    ),
    (
        DropReason::Incomplete,
        "an action list changes an SCTP port, and the checksum covers bytes that this fragment or truncated frame \
         does not contain: reassemble the packets, or capture with a longer snap length",
    ),
    (
        DropReason::NoService,
        "no [[service]] has this address, protocol and port: add one, or set with 'pass' in [balance] by which \
         port other frames leave; 'flowyard lb trace FLOW' shows which part does not match; not an error for \
         frames from backends that answer the balancer's own health checks: the port receives a copy of them",
    ),
    (
        DropReason::NoBackend,
        "no backend of the service accepts new connections, because each is down, drained or has weight 0: \
         'flowyard lb trace FLOW' tells which; see the health checks with 'flowyard lb show', write all_down = \
         \"use\", or undo a drain with 'flowyard lb drain SERVICE/BACKEND --undo'",
    ),
    (
        DropReason::BackendLimit,
        "every backend of the service that accepts new connections has reached its 'max_connections': 'flowyard lb show' \
         has their connections; raise 'max_connections', add backends, or lower the timeouts in [balance] so that idle \
         connections end sooner",
    ),
    (
        DropReason::Ambiguous,
        "the client's address and port have a connection to the same backend address and port through another service, so \
         replies could belong to either, and no other backend of the service can take the connection: give the services \
         different ports on their backends, add backends, or use mode fullnat",
    ),
    (
        DropReason::Unresolved,
        "the MAC address of the next hop is unknown because it does not answer ARP or neighbour solicitations: \
         check that it is up, on that port's link, and in the network of 'address' in [balance]",
    ),
    (
        DropReason::Taken,
        "not an error: these frames were addressed to flowyard itself (ARP, neighbour discovery, ICMP) and were \
         processed",
    ),
    (
        DropReason::NoConnection,
        "the table of connections is full of connections in use; or, in mode fullnat, no local port towards the \
         backend is free: raise 'connections' in [balance], limit other services with 'connections' in their \
         [[service]], add addresses to 'local', or write full = \"stateless\" to choose by hash without an entry (not for \
         fullnat); 'flowyard run CONFIG --check' prints what the configuration can hold",
    ),
    (
        DropReason::Fragment,
        "a fragment arrived before the first fragment of its packet, or the first fragment is too short to be \
         translated: the path reorders packets, or its MTU is very small",
    ),
    (
        DropReason::NoFlow,
        "no flow entry matches: add one, or a table-miss entry (priority 0, matches everything)",
    ),
    (DropReason::Metered, "the rate of a meter was exceeded: raise the meter's rate or burst size"),
    (
        DropReason::Punted,
        "not an error: the only output of its flow entry is the controller; if the controller gets no packet-ins, \
         check its connection",
    ),
    (
        DropReason::TooManyCopies,
        "the actions of its flow entries would have made more than 4,096 frames of it, or led it through more than \
         4,096 buckets of groups: see the actions with 'flowyard switch why', and name fewer groups in a bucket",
    ),
    (
        DropReason::NoSa,
        "no security association has this SPI and destination, or none fits the template of the policy: compare \
         'flowyard show sas' with 'ip xfrm state' of the other end, and add the SA to 'state' in [ipsec]",
    ),
    (
        DropReason::SaExpired,
        "the security association has reached its limit of packets or bytes, or its last sequence number: add one \
         with a new key to 'state' in [ipsec] at both ends, behind the old one, and restart",
    ),
    (
        DropReason::Replayed,
        "the sequence number was accepted before, or is below the window: if nobody replays packets, the path \
         reorders them; use a larger 'replay-window' of the SA (at most 4096); after a restart of the other end, its \
         numbers start again and both ends need new keys",
    ),
    (
        DropReason::Unauthentic,
        "the packet was changed on its way, or the ends have different keys, algorithms or 'esn' flags: compare \
         'ip xfrm state' of both ends",
    ),
    (
        DropReason::Policy,
        "a policy blocks the packet, or it came without the protection that a policy requires, or its SA does not fit \
         the policy: see 'policy' in [ipsec]",
    ),
    (
        DropReason::TooBig,
        "the packet and its tunnel are longer than 'mtu' in [ipsec], and its sender cannot be notified or permits \
         fragmentation: lower the MTU of the sender, or clamp the MSS of TCP",
    ),
    (
        DropReason::IpsecFragment,
        "IPsec does not protect or open fragments: lower the MTU of the sender, so that it sends whole packets that \
         fit into the tunnel",
    ),
    (
        DropReason::BadChecksum,
        "a checksum of the frame is wrong: it was damaged on its way, or its sender left the checksum to its adapter and the \
         port cannot see that (run 'ethtool -K INTERFACE tx off' at the sender); bad_checksums = \"pass\" in the [[port]] counts \
         such frames and passes them on",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_fix() {
        let fixes = DropReason::ALL.map(|reason| fix(reason, "queue q"));
        for (at, text) in fixes.iter().enumerate() {
            assert!(!text.contains("docs/operate.md"), "{}", DropReason::ALL[at].name());
            assert!(!fixes[..at].contains(text));
        }
        assert!(fixes[0].starts_with("queue q was full: raise its 'window_frames'"));
    }
}
