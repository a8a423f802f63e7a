//! How fast a switch answers echo requests.

use std::time::Duration;

use flowyard_openflow::Message;
use flowyard_operate::openflow::client::Client;

use super::connect::{failed, say};
use super::document;
use super::events::Echoes;
use super::query::Asked;
use crate::output;
use crate::stop::Stop;

/// Sends echo requests one after the other, and prints the time until each answer.
pub(super) fn ping(
    client: &mut Client,
    asked: &Asked,
    count: u32,
    bytes: usize,
) -> Result<(), Stop> {
    let clock = crate::clock::new();
    let at = &asked.at.switch;
    let mut times = Vec::new();
    for at_request in 1..=count {
        let data: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
        let from = clock();
        let answers = client.ask(&Message::EchoRequest(data.clone())).map_err(failed)?;
        let took = Duration::from_nanos(clock() - from);
        if !answers.contains(&Message::EchoReply(data)) {
            return Err(Stop::Failed(anyhow::anyhow!(
                "{at}: the switch answered an echo request with other data than the request had"
            )));
        }
        times.push(took);
        if !asked.json {
            say(&format!("{} bytes from {at}: request {at_request}, {}", bytes + 8, ms(took)))?;
        }
        if at_request < count {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let (least, most) = (times.iter().min(), times.iter().max());
    let mean = times.iter().sum::<Duration>() / count.max(1);
    if asked.json {
        let number = |time: Duration| time.as_secs_f64() * 1e3;
        let document = Echoes {
            switch: at.to_string(),
            bytes: bytes as u64 + 8,
            times_ms: times.iter().copied().map(number).collect(),
            least_ms: least.copied().map(number),
            mean_ms: least.map(|_| number(mean)),
            most_ms: most.copied().map(number),
        };
        return output::json(document::PING, document);
    }
    let (Some(least), Some(most)) = (least, most) else { return Ok(()) };
    say(&format!("{count} answers: least {}, mean {}, most {}", ms(*least), ms(mean), ms(*most)))
}

fn ms(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
