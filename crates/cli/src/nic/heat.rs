//! The HTML page of a profile: cycles by function and by instruction.

use flowyard_nicsim::counters::Heat;
use flowyard_nicsim::isa;
use flowyard_nicsim::profile::{Category, Function, Profile, categories};
use flowyard_nicsim::run::Outcome;
use flowyard_report::{Card, Cell, Column, Page, Section, Table, num};

/// Tiles in a row of the map: six lines of the default instruction cache, which fill the page's width.
const ROW: usize = 48;
/// Functions whose instructions are listed.
const LISTED: usize = 12;

/// An instruction and its cycles.
struct Word {
    pc: u32,
    text: String,
    heat: Heat,
}

impl Word {
    fn cycles(&self) -> u64 {
        self.heat.count + self.heat.stall
    }
}

/// The instructions of a function, up to the next function symbol.
fn words(outcome: &Outcome, function: &Function) -> Vec<Word> {
    let first = (function.addr / 4) as usize;
    let all = outcome.window.heat.iter().zip(&outcome.image.text).enumerate().skip(first);
    all.map(|(index, (&heat, &word))| {
        let pc = 4 * index as u32;
        let text =
            isa::decode(word, pc).map_or_else(|| format!("{word:#010x}"), |insn| insn.to_string());
        Word { pc, text, heat }
    })
    .take_while(|word| {
        outcome.image.function(word.pc).is_some_and(|symbol| symbol.addr == function.addr)
    })
    .collect()
}

/// The page: key figures, the map by function, and the hottest functions instruction by instruction.
pub(super) fn page(outcome: &Outcome) -> Page {
    let profile = Profile::of(&outcome.image, &outcome.window);
    let all = profile.total().cycles.max(1) as f64;
    let frames = outcome.window.devices.received.delivered.max(1) as f64;
    let hottest = outcome.window.heat.iter().map(|heat| heat.count + heat.stall).max();
    let hottest = hottest.unwrap_or(0).max(1) as f64;
    let kinds = categories(&outcome.image);
    let kind = |pc: u32| kinds.get((pc / 4) as usize).map_or("", |kind: &Category| kind.name());
    let mut map = Table::new("cycles by address")
        .column(Column::text("function"))
        .column(Column::text("address"))
        .column(Column::number("cycles").unit("per frame"))
        .column(Column::number("cycles").unit("% of all"))
        .column(Column::text("one tile per instruction"))
        .note("Point at a tile to see its address, instruction, cycles, and row in the paper's tables. An empty tile was never executed.");
    let mut listings = Vec::new();
    for (rank, function) in profile.functions.iter().enumerate() {
        let words = words(outcome, function);
        for (row, part) in words.chunks(ROW).enumerate() {
            let cycles: u64 = part.iter().map(Word::cycles).sum();
            let share = 100.0 * cycles as f64 / all;
            let tile = |word: &Word| {
                let value = match word.cycles() {
                    0 => f64::NAN,
                    cycles => cycles as f64 / hottest,
                };
                let Heat { count, stall } = word.heat;
                let (pc, text) = (word.pc, &word.text);
                (
                    value,
                    format!(
                        "{pc:#06x} {text}: executed {count}, stalled {stall} cycles; {}",
                        kind(pc)
                    ),
                )
            };
            let name = if row == 0 { function.name.as_str() } else { "" };
            map.push([
                Cell::new(name),
                Cell::new(
                    part.first().map_or_else(String::new, |word| format!("{:#06x}", word.pc)),
                ),
                Cell::new(format!("{:.1}", cycles as f64 / frames)),
                Cell::new(format!("{share:.1}")),
                Cell::heat(part.iter().map(tile).collect::<Vec<_>>()),
            ]);
        }
        if rank < LISTED {
            listings.push(listing(function, &words, hottest, all));
        }
    }
    let total = outcome.window.total();
    let of = |part: u64| format!("{:.1} %", 100.0 * part as f64 / total.cycles().max(1) as f64);
    let stalls = [
        ("Executing", total.execute, "cycles in which an instruction was issued"),
        ("Load stalls", total.load, "waiting for the scratchpad or the SDRAM"),
        ("Conflicts", total.conflict, "waiting for a busy bank or for the core's own store"),
        ("Pipeline", total.pipeline, "load-use delays and taken branches"),
        ("Instruction misses", total.fetch, "waiting for the instruction memory"),
    ];
    let mut page = Page::new("Cycles of the adapter's cores")
        .subtitle(format!(
            "{}, {} cycles each",
            num::count(outcome.window.cores.len() as u64, "core", "cores"),
            outcome.window.cycles
        ))
        .command(crate::output::command_line());
    for (name, part, detail) in stalls {
        page = page.card(Card::new(name, of(part)).detail(detail));
    }
    page = page.section(Section::new("By function and address").table(map));
    let hot = Section::new(format!("The {} hottest functions", listings.len()));
    page.section(listings.into_iter().fold(hot, Section::table))
}

fn listing(function: &Function, words: &[Word], hottest: f64, all: f64) -> Table {
    let mut table = Table::new(function.name.clone())
        .column(Column::text("pc"))
        .column(Column::text("instruction"))
        .column(Column::number("executed"))
        .column(Column::number("stalled").unit("cycles"))
        .column(Column::text("share of all cycles"));
    for word in words {
        let cycles = word.cycles() as f64;
        table.push([
            Cell::new(format!("{:#06x}", word.pc)),
            Cell::new(word.text.clone()),
            Cell::new(word.heat.count.to_string()),
            Cell::new(word.heat.stall.to_string()),
            Cell::bar(cycles / hottest, format!("{:.2} %", 100.0 * cycles / all)),
        ]);
    }
    table
}
