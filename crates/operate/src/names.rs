//! Names of queues and ports, as in the configuration.

use flowyard_frame::To;
use flowyard_yard::Places;

/// A destination as text: `queue workers`, `port east`, `drop`. If it does not exist, the text has its
/// number.
pub(crate) fn name(places: &Places, to: To) -> String {
    let known = places.get(to).map(|place| place.name.as_str());
    match (to, known) {
        (To::Queue(_), Some(name)) => format!("queue {name}"),
        (To::Port(_), Some(name)) => format!("port {name}"),
        (To::Queue(number), None) => format!("queue number {number}, which does not exist"),
        (To::Port(number), None) => format!("port number {number}, which does not exist"),
        (To::List(number), _) => format!("action list {number}"),
        (To::Ports(number), _) => format!("port list {number}"),
        (To::Chain(_), _) => "several ports".into(),
        (To::Sent(_), _) => "transmitted".into(),
        (To::Drop(_), _) => "drop".into(),
    }
}
