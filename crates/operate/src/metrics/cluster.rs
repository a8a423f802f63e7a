//! Metrics of a balancer whose services come from a provider.

use flowyard_yard::Handle;

use super::text::Page;
use crate::cluster::Cluster;

/// Writes the metrics; none if the configuration has no `[cluster]`.
pub(super) fn page(page: &mut Page, yard: &Handle) {
    let Some(cluster) = yard.control_plane::<Cluster>() else { return };
    let view = cluster.view();
    let mut gauge = |name: &str, kind: &str, help: &str, value: f64| {
        page.metric(name, kind, help);
        page.sample(name, &[], value);
    };
    gauge(
        "cluster_generation",
        "gauge",
        "Gives the generation of the services in use.",
        view.generation as f64,
    );
    gauge(
        "cluster_seen_generation",
        "gauge",
        "Gives the newest generation of services that was seen.",
        view.seen as f64,
    );
    gauge(
        "cluster_refused",
        "gauge",
        "Is 1 if the newest generation was refused, and 0 if not.",
        f64::from(u8::from(view.error.is_some())),
    );
    gauge(
        "cluster_refusals_total",
        "counter",
        "Counts the generations that were refused.",
        view.refusals as f64,
    );
    gauge(
        "cluster_from_file",
        "gauge",
        "Is 1 if the services in use are those of the file on this machine because the provider had none that could be used at the start.",
        f64::from(u8::from(view.is_from_file)),
    );
    gauge(
        "cluster_provider_up",
        "gauge",
        "Is 1 if all services could be read from their provider at the last attempt, and 0 if not.",
        f64::from(u8::from(view.unreachable.is_none())),
    );
    gauge(
        "cluster_name_taken",
        "gauge",
        "Is 1 if another instance writes its status under the name of this node, and 0 if not.",
        f64::from(u8::from(view.has_namesake)),
    );
    if let Some(at) = view.answered {
        gauge(
            "cluster_provider_answer_age_seconds",
            "gauge",
            "Gives the time since all services could last be read from their provider.",
            yard.now().saturating_sub(at) as f64 / 1e9,
        );
    }
}
