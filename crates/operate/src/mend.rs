//! Mends: what can be done about each reason of drops.

/// What can be done about frames dropped for `reason` at `place` (as `queue workers`).
#[must_use]
pub fn mend(reason: &str, place: &str) -> String {
    match reason {
        "queue_full" => format!(
            "{place} was full: raise its 'window_frames', give it more consumers, or write full = \"hold\", \
             which makes its producers wait; 'flowyard top' shows whether its cores are busy"
        ),
        "too_long" => {
            "the frame is longer than a pool buffer: raise 'buffer_bytes' in [yard]; or, of a balancer, longer than \
             the 'mtu' of its service: raise that, or lower 'mss' so that clients send less at a time"
                .into()
        }
        "no_buffer" => {
            "the pool was empty: raise 'frames' in [yard], or leave it out to have as many as queues and cores \
             need"
                .into()
        }
        "empty" => "the frame has no bytes: the capture holds nothing of it; capture with a longer snap length".into(),
        "table" => {
            "a table's entry says drop: 'flowyard show tables' lists entries; take it out of [steer] and send \
             SIGHUP"
                .into()
        }
        "work" => "the work decided to drop it: see [work] in the configuration".into(),
        "no_route" => format!(
            "{place}: no such destination, or the port it came in by is not in the work's map; mend 'ports' in \
             [work], or the entry that sends it there; a balancer's tunnel needs a 'local' address of its family"
        ),
        "core_died" => {
            "the core that had it in hand died: the log says why; restart, and report the panic".into()
        }
        "link_type" => format!(
            "{place} cannot take frames of this link type: forward it to a port that transmits the same link type"
        ),
        "port_failed" => format!("{place} failed: the log says why (disk full, interface gone)"),
        "filtered" => {
            "its destination is behind the port it came in by, so it is there already: nothing to mend, unless two \
             cables go to one place"
                .into()
        }
        "reserved" => {
            "a bridge never forwards frames for 01:80:C2:00:00:00 to :0F (spanning tree, LLDP, pause): nothing to \
             mend"
                .into()
        }
        "malformed" => {
            "its IP header is damaged, or ends too soon: look at the sender, its cable, and at checksum offload \
             ('flowyard doctor'), or at the snap length of a capture; a balancer also drops source routes that it would have to translate"
                .into()
        }
        "not_ip" => {
            "a router, and a balancer, forward IP alone: forward other frames with [work] kind = \"bridge\", by a rule \
             to a port, or with 'pass' in [balance]"
                .into()
        }
        "ttl_expired" => {
            "it has been forwarded too often: look for a loop of routes; traceroute does this on purpose".into()
        }
        "overrun" => {
            "the kernel had no room for it on the way in: raise 'ring_frames' of the port, give it more cores, or \
             pin them ('flowyard doctor')"
                .into()
        }
        "port_down" => format!("{place} is down: ip link set its interface up; the log says when it went"),
        "incomplete" => {
            "an action list changes an SCTP port, and the checksum covers more than this fragment, or cut frame, \
             has: reassemble, or capture with a longer snap length"
                .into()
        }
        "no_service" => {
            "no [[service]] has this address, protocol and port: add one, or say with 'pass' in [balance] by which \
             port other frames leave; 'flowyard lb trace FLOW' tells what is missing"
                .into()
        }
        "no_backend" => {
            "no backend of its service takes new connections: all are down, drained or of weight 0; look at their \
             health checks with 'flowyard lb show', or write all_down = \"use\""
                .into()
        }
        "unresolved" => {
            "the next hop does not say its MAC address: see that it is up, on that port's link, and in the net of 'address' in [balance]"
                .into()
        }
        "taken" => "nothing to mend: these were for the yard itself".into(),
        "no_connection" => {
            "the table of connections is full, or too many are half open: raise 'connections' or 'opening' in \
             [balance], or write full = \"stateless\", which has the hash decide (fullnat needs a connection)"
                .into()
        }
        "fragment" => {
            "a later fragment came before the first of its packet, or the first has not all that is translated: the \
             sender's path reorders, or cuts very small"
                .into()
        }
        "no_flow" => {
            "no flow of a table matches it: add one, or a flow of priority 0 that matches everything".into()
        }
        "metered" => "it was above a meter's rate: raise it, or its burst".into(),
        "punted" => {
            "its flow sends it to a controller and nowhere else: that is no loss, unless the controller is silent"
                .into()
        }
        _ => "see docs/operate.md".into(),
    }
}

#[cfg(test)]
mod tests {
    use flowyard_yard::DropReason;

    use super::*;

    #[test]
    fn every_reason_has_a_mend_of_its_own() {
        let mends: Vec<_> = DropReason::ALL.map(|reason| mend(reason.name(), "queue q")).into();
        for (at, text) in mends.iter().enumerate() {
            assert!(!text.contains("docs/operate.md"), "{}", DropReason::ALL[at].name());
            assert!(!mends[..at].contains(text));
        }
        assert!(mends[0].starts_with("queue q was full: raise its 'window_frames'"));
    }
}
