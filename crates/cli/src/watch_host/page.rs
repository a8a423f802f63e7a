//! The metrics of `watch-host`, in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::Totals;

/// The last page, which the server of metrics reads.
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<String>>);

impl Shared {
    pub(super) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, interface: &str, totals: &Totals) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text(interface, totals);
    }
}

fn text(interface: &str, totals: &Totals) -> String {
    let mut page = String::new();
    let mut metric = |name: &str, kind: &str, about: &str, samples: &[(String, u64)]| {
        let name = format!("flowyard_host_{name}");
        let _infallible = writeln!(page, "# HELP {name} {about}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _infallible = writeln!(page, "{name}{{interface=\"{interface}\"{labels}}} {value}");
        }
    };
    let one = |value: u64| [(String::new(), value)];
    let Totals { notified, compared_settings, .. } = totals;
    for (name, about, value) in [
        (
            "setting_changes_total",
            "Changes of settings that were seen.",
            notified + compared_settings,
        ),
        ("notified_changes_total", "Changes of settings that the kernel announced.", *notified),
        ("differing_flows_total", "Flows that came elsewhere than predicted.", totals.differing),
        ("differing_frames_total", "Frames of such flows.", totals.differing_frames),
        ("compared_intervals_total", "Intervals whose traffic was compared.", totals.compared),
        ("compared_frames_total", "Received frames that were looked at.", totals.frames),
    ] {
        metric(name, "counter", about, &one(value));
    }
    let notices = totals.notices.iter();
    let notices: Vec<_> =
        notices.map(|(subject, n)| (format!(",subject=\"{subject}\""), *n)).collect();
    metric("notifications_total", "counter", "Notifications of the kernel.", &notices);
    let of_queues = |number: fn(&(u64, u64)) -> u64| -> Vec<(String, u64)> {
        let queues = totals.queues.iter();
        queues.map(|(queue, both)| (format!(",queue=\"{queue}\""), number(both))).collect()
    };
    let about = "Received frames that were predicted for a queue.";
    metric("queue_predicted_frames_total", "counter", about, &of_queues(|both| both.0));
    let about = "Received frames that came from a queue.";
    metric("queue_seen_frames_total", "counter", about, &of_queues(|both| both.1));
    let agrees = totals.agrees.map(|agrees| (String::new(), u64::from(agrees)));
    let about = "1 if the last compared interval agreed with the prediction, else 0.";
    metric("agrees", "gauge", about, agrees.as_slice());
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_has_its_interface() {
        let mut totals = Totals { notified: 2, agrees: Some(false), ..Totals::default() };
        totals.notices.insert("RSS", 3);
        totals.queues.insert(1, (7, 5));
        let page = text("eth0", &totals);
        for line in [
            "flowyard_host_setting_changes_total{interface=\"eth0\"} 2",
            "flowyard_host_notifications_total{interface=\"eth0\",subject=\"RSS\"} 3",
            "flowyard_host_queue_predicted_frames_total{interface=\"eth0\",queue=\"1\"} 7",
            "flowyard_host_queue_seen_frames_total{interface=\"eth0\",queue=\"1\"} 5",
            "flowyard_host_agrees{interface=\"eth0\"} 0",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
        assert!(!text("eth0", &Totals::default()).contains("flowyard_host_agrees{"));
    }
}
