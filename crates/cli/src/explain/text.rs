//! An [`Explanation`] as text.

use flowyard_analyze::{
    Answers, Explanation, FdirAnswer, RssAnswer, TenantCopy, TenantsAnswer, Verdict,
};
use flowyard_report::{Cell, Column, Style, Table, Tone, num};

pub(crate) fn text(explanation: &Explanation, style: &Style) -> String {
    let mut text = String::new();
    text += &format!("{}\n", explanation.flow);
    if let Some(packet) = &explanation.packet {
        text += &format!("packet {} of {}", packet.number, packet.capture);
        text += if packet.received { ", received by the host\n" } else { ", sent by the host\n" };
    }
    text += &format!(
        "{}, {}, {}\n",
        explanation.adapter,
        num::count(explanation.queues.into(), "queue", "queues"),
        num::count(explanation.cores.into(), "core", "cores")
    );
    if let (Some(key), Some(source)) = (&explanation.rss_key, &explanation.rss_key_source) {
        text += &format!("RSS key: {source}\n  {key}\n");
    }
    for line in &explanation.kind {
        text += &format!("{line}\n");
    }
    text += "\n";
    text += &explanation.tenants.as_ref().map_or_else(String::new, tenants);
    text += &answers(&explanation.policies, style);
    text += &format!("\nReverse direction: {}\n\n", explanation.reverse.flow);
    text += &answers(&explanation.reverse.policies, style);
    if let Some(expect) = &explanation.expect {
        text += &format!("\nDoes the flow get queue {}?\n", expect.queue);
        for (policy, answer) in &expect.policies {
            match &answer.why_not {
                None => text += &format!("  {policy}: yes\n"),
                Some(why) => text += &format!("  {policy}: no, {why}\n"),
            }
            for fix in &answer.fix {
                text += &format!("    {fix}\n");
            }
        }
    }
    if let Some(chosen) = &explanation.choose_port {
        text += &match (&chosen.flow, &chosen.why) {
            (Some(flow), _) => format!(
                "\nSource port for queue {}: {} (one of {} suitable ports): {flow}\n",
                chosen.queue,
                chosen.port.unwrap_or(0),
                chosen.ports_that_fit
            ),
            (None, why) => format!(
                "\nSource port for queue {}: none; {}\n",
                chosen.queue,
                why.as_deref().unwrap_or("no port is suitable")
            ),
        };
    }
    for note in &explanation.notes {
        text += &format!("\nNote: {note}\n");
    }
    text
}

/// Who of the tenants gets the frame.
fn tenants(answer: &TenantsAnswer) -> String {
    let mut text = match (&answer.copies[..], answer.only_management) {
        (_, true) => "Tenants: none; only the management controller gets the frame\n".to_owned(),
        ([], false) => "Tenants: none; the adapter drops the frame\n".to_owned(),
        (copies, false) => {
            let name = |copy: &TenantCopy| {
                let tenant = copy.tenant.as_deref().unwrap_or("nobody's");
                format!("{tenant} (pool {}, queue {})", copy.pool, copy.queue)
            };
            format!("Tenants: {}\n", copies.iter().map(name).collect::<Vec<_>>().join(", "))
        }
    };
    for why in &answer.why {
        text += &format!("  {why}\n");
    }
    if let Some(filter) = &answer.management {
        text += &format!("  the management controller gets it by its filter {filter}\n");
    }
    text + "\n"
}

fn answers(answers: &Answers, style: &Style) -> String {
    let mut text = answers.rss.as_ref().map_or_else(String::new, rss);
    text += &answers.fdir.as_ref().map_or_else(String::new, fdir);
    let mut table = Table::new("")
        .column(Column::text("policy"))
        .column(Column::number("queue"))
        .column(Column::number("core"))
        .column(Column::text("stage"))
        .column(Column::text("why"));
    for (name, verdict) in answers.verdicts() {
        table.push(row(name, verdict));
    }
    text += &table.to_text(style);
    text
}

fn row(name: &str, verdict: &Verdict) -> [Cell; 5] {
    let number = |n: Option<u16>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    [
        Cell::new(name).tone(Tone::Strong),
        Cell::new(number(verdict.queue)),
        Cell::new(number(verdict.core)),
        Cell::new(&*verdict.stage),
        Cell::new(&*verdict.why),
    ]
}

/// The hash of RSS, step by step.
fn rss(rss: &RssAnswer) -> String {
    let (Some(kind), Some(hash), Some(index)) = (&rss.hash_type, &rss.hash, rss.index) else {
        return "RSS    does not hash this flow\n".to_owned();
    };
    let input: Vec<_> =
        rss.input.iter().map(|field| format!("{} {}", field.field, field.bytes)).collect();
    format!(
        "RSS    {kind}: {}\n       hash {hash}; its low bits select entry {index} of the {} in the indirection table\n",
        input.join(" | "),
        rss.entries
    )
}

/// The hashes of Flow Director.
fn fdir(fdir: &FdirAnswer) -> String {
    let (Some(bucket), Some(signature)) = (&fdir.bucket_hash, &fdir.signature_hash) else {
        return String::new();
    };
    format!(
        "FDIR   {} mode: bucket hash {bucket}, signature {signature}, FDIRHASH {}; bucket hash in perfect mode {}\n",
        fdir.mode,
        fdir.fdirhash.as_deref().unwrap_or("-"),
        fdir.perfect_bucket_hash.as_deref().unwrap_or("-")
    )
}
