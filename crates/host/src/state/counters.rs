//! Which counters of a driver count the frames of one receive queue.

/// The receive queue whose frames the counter `name` counts; `None` if it counts something else.
///
/// `rx_queue_3_packets` (ixgbe, igb, ice, virtio_net), `rx-3.packets` (i40e), `rx3_packets` (mlx5, newer
/// virtio_net), `queue_3_rx_cnt` (ena), `[3]: rx_ucast_packets` (bnxt), `rx_packets[3]` (gve).
pub(crate) fn queue_of(name: &str) -> Option<u32> {
    const FORMS: [(&str, &str); 6] = [
        ("rx_queue_", "_packets"),
        ("rx-", ".packets"),
        ("rx", "_packets"),
        ("queue_", "_rx_cnt"),
        ("[", "]: rx_ucast_packets"),
        ("rx_packets[", "]"),
    ];
    FORMS.iter().find_map(|(front, behind)| {
        let number = name.strip_prefix(front)?.strip_suffix(behind)?;
        number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.parse().ok())?
    })
}

/// The receive queue that an interrupt serves, by the driver's name of it.
///
/// `eth0-TxRx-3` (Intel's drivers, bnxt), `virtio0-input.3`, `eth0-rx-3`, `eth0-Tx-Rx-3` (ena),
/// `mlx5_comp3@pci:0000:01:00.0`, `i40e-eth0-TxRx-3`.
pub(super) fn queue_of_interrupt(name: &str) -> Option<u32> {
    const MARKS: [&str; 5] = ["-input.", "-TxRx-", "-Tx-Rx-", "-rx-", "mlx5_comp"];
    MARKS.iter().find_map(|mark| {
        let (_, rest) = name.split_once(mark)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_drivers_are_known() {
        let queues = [
            "rx_queue_3_packets",
            "rx-3.packets",
            "rx3_packets",
            "queue_3_rx_cnt",
            "[3]: rx_ucast_packets",
            "rx_packets[3]",
        ];
        assert!(queues.iter().all(|name| queue_of(name) == Some(3)));
        for name in
            ["rx_packets", "rx_queue_0_xdp_packets", "tx_queue_0_packets", "rx_queue__packets"]
        {
            assert_eq!(queue_of(name), None, "{name}");
        }
        for name in
            ["eth0-TxRx-12", "virtio0-input.12", "mlx5_comp12@pci:0000:01:00.0", "ena-Tx-Rx-12"]
        {
            assert_eq!(queue_of_interrupt(name), Some(12), "{name}");
        }
        for name in ["virtio0-config", "virtio0-output.0", "eth0", "mlx5_async@pci:0000:01:00.0"] {
            assert_eq!(queue_of_interrupt(name), None, "{name}");
        }
    }
}
