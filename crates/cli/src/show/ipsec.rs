//! Tables of `flowyard show sas`.

use flowyard_operate::protocol::Sas;
use flowyard_report::{Cell, Column, Table, Tone, num};

/// The SAs, and the counters that belong to none.
pub(crate) fn tables(now: &Sas) -> Vec<Table> {
    let mut table = Table::new("security associations")
        .column(Column::text("SPI"))
        .column(Column::text("direction"))
        .column(Column::text("from, to"))
        .column(Column::text("form"))
        .column(Column::text("state"))
        .column(Column::number("number"))
        .column(Column::number("packets"))
        .column(Column::number("bytes"))
        .column(Column::text("refused"));
    for sa in &now.sas {
        let count = |name: &str| sa.counters.get(name).copied().unwrap_or(0);
        let udp = if sa.is_udp { ", UDP" } else { "" };
        let esn = if sa.is_extended { ", ESN" } else { "" };
        let refused = ["replayed", "late", "unauthentic", "malformed", "expired"];
        let refused = refused.into_iter().filter(|name| count(name) > 0);
        let refused: Vec<_> =
            refused.map(|name| format!("{name} {}", num::exact(count(name)))).collect();
        let refused = if refused.is_empty() { "-".to_owned() } else { refused.join(", ") };
        table.push([
            Cell::new(format!("{:#010x}", sa.spi)).tone(Tone::Strong),
            Cell::new(sa.direction.as_str()),
            Cell::new(format!("{} > {}", sa.src, sa.dst)),
            Cell::new(format!("{}, {}{udp}{esn}", sa.mode, sa.suite)),
            if sa.is_usable || sa.direction == "in" {
                Cell::new("in use").tone(Tone::Good)
            } else {
                Cell::new("ended").tone(Tone::Bad)
            },
            Cell::new(num::exact(sa.number)),
            Cell::new(num::exact(count("packets"))),
            Cell::new(num::exact(count("bytes"))),
            Cell::new(refused),
        ]);
    }
    let mut others = Table::new("counters of no security association")
        .column(Column::text("counter"))
        .column(Column::number("value"));
    for (name, value) in &now.counters {
        others.push([Cell::new(name.as_str()), Cell::new(num::exact(*value))]);
    }
    vec![table, others]
}
