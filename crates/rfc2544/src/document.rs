//! The result document: the results, and everything needed to assess and repeat them. `--json`
//! prints it, the HTML page shows it, and comparisons read it.

mod compare;
mod data;
mod notes;
mod page;
mod rank;
mod tables;

pub use compare::{Comparison, compare};
pub use data::{Document, Machine, Time};
pub use notes::deviations;
pub use page::{page, traffic};
pub use rank::{Order, Ranked, differ, rank, table as rank_table};
pub use tables::tables;

#[cfg(test)]
mod tests;
