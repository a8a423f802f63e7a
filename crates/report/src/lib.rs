//! The output of all commands: text tables, SVG plots, self-contained HTML, versioned JSON.
//!
//! ```text
//!              ┌─ to_text ──> terminal, log
//!   Table ─┐   │
//!   Plot ──┼─> Section ─> Page ─ to_html, html::write ──> one file: light, dark, print
//!   Card ──┘
//!   any data ─> json::Document ──> { "schema": "flowyard.<command>/1", ... }
//!   numbers of a paper and of a run ─> exhibit::Exhibit ──> Table, Section, JSON
//! ```
//!
//! Commands describe their output as plain data; its appearance is decided in this crate: numbers in
//! [`num`], colours and spacing in the stylesheet, layout in [`plot`]. Nothing here reads a clock, the
//! terminal or the environment: the caller passes a [`Style`] and writes the result.
//!
//! No data causes a panic: not-a-number, infinity, no rows, control characters and overlong names can all
//! be shown. Thread-safety: values only.

#![forbid(unsafe_code)]

pub mod exhibit;
pub mod file;
pub mod html;
pub mod json;
pub mod num;
mod outline;
pub mod page;
pub mod plot;
pub mod table;
pub mod text;
mod theme;
pub mod toml_error;

pub use json::Document;
pub use num::Unit;
pub use page::{Card, Page, Section};
pub use plot::{Axis, Plot};
pub use table::{Cell, Column, Table, Tone};
pub use text::Style;
