//! Metrics of `flowyard steer`.

use super::text::Page;
use crate::protocol::Steer;

/// All metrics of an interface whose frames are steered in the kernel.
#[must_use]
pub fn steer_page(steer: &Steer) -> String {
    let mut page = Page::default();
    let interface = &steer.interface;
    page.metric(
        "steer_frames_total",
        "counter",
        "Frames by the queue that they got and the stage that decided.",
    );
    for queue in &steer.queues {
        let cpu = queue.cpu.map_or_else(String::new, |cpu| cpu.to_string());
        for (stage, frames) in &queue.frames {
            let labels: [(&str, &dyn std::fmt::Display); 4] = [
                ("interface", interface),
                ("queue", &queue.queue),
                ("cpu", &cpu),
                ("stage", stage),
            ];
            page.sample("steer_frames_total", &labels, frames);
        }
    }
    page.metric("steer_bytes_total", "counter", "Bytes by queue.");
    for queue in &steer.queues {
        let labels: [(&str, &dyn std::fmt::Display); 2] =
            [("interface", interface), ("queue", &queue.queue)];
        page.sample("steer_bytes_total", &labels, queue.bytes);
    }
    if let Some(rings) = &steer.rings {
        for (name, help, is_drop) in [
            ("steer_ring_frames_total", "Frames that were handed to the ring of a CPU.", false),
            ("steer_ring_dropped_frames_total", "Frames that found the ring of a CPU full.", true),
        ] {
            page.metric(name, "counter", help);
            for ring in rings {
                let value = if is_drop { ring.dropped } else { ring.frames };
                page.sample(name, &[("interface", interface), ("cpu", &ring.cpu)], value);
            }
        }
    }
    for (name, help, value) in [
        ("steer_learned_flows_total", "Flows that were learned.", steer.learned_flows),
        ("steer_flow_moves_total", "Moves of flows to another CPU.", steer.flow_moves),
    ] {
        page.metric(name, "counter", help);
        page.sample(name, &[("interface", interface)], value);
    }
    page.metric("steer_uptime_seconds", "gauge", "Time since the process was started.");
    page.sample("steer_uptime_seconds", &[("interface", interface)], steer.at_s);
    page.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{SteerQueue, SteerRing};

    #[test]
    fn queues_rings_and_flows_have_metrics() {
        let frames = [("rss".to_owned(), 5), ("settling".to_owned(), 2)].into();
        let steer = Steer {
            interface: "eth0".into(),
            queues: vec![SteerQueue { queue: 1, cpu: Some(3), frames, bytes: 700 }],
            rings: Some(vec![SteerRing { cpu: 3, frames: 7, dropped: 1 }]),
            learned_flows: 4,
            ..Steer::default()
        };
        let page = steer_page(&steer);
        for line in [
            "flowyard_steer_frames_total{interface=\"eth0\",queue=\"1\",cpu=\"3\",stage=\"settling\"} 2\n",
            "flowyard_steer_bytes_total{interface=\"eth0\",queue=\"1\"} 700\n",
            "flowyard_steer_ring_dropped_frames_total{interface=\"eth0\",cpu=\"3\"} 1\n",
            "flowyard_steer_learned_flows_total{interface=\"eth0\"} 4\n",
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
        let without = steer_page(&Steer { rings: None, ..steer });
        assert!(!without.contains("steer_ring"), "{without}");
    }
}
