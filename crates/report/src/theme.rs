//! The stylesheet: colours, fonts and spacing of pages and plots, for light, dark and print.
//!
//! Series colours follow Okabe and Ito's colour-blind safe set ("Color Universal Design", 2008),
//! darkened where they would be faint on white and lightened for the dark page. In print, bars are also
//! hatched and lines dashed, so that a black-and-white copy can be read.

use maud::{Markup, html};

/// The number of colours; after the last one they repeat with other dashes.
const COLOURS: usize = 8;
const DASHES: usize = 5;

/// The classes of series `i`: its colour and its dash.
pub(crate) fn series(i: usize) -> String {
    format!("s{} d{}", i % COLOURS, (i + i / COLOURS) % DASHES)
}

/// The stylesheet of a page.
pub(crate) fn page_css() -> String {
    [VARIABLES, PLOT, PAGE, PRINT].concat()
}

/// The stylesheet of a plot without a page.
pub(crate) fn svg_css() -> String {
    [VARIABLES, PLOT, PRINT].concat()
}

/// The hatching of each series, with which the print style fills bars; once for each document.
pub(crate) fn hatches() -> Markup {
    // Angle and distance, different for each series, to be distinguished without colour.
    const LINES: [(i32, u32); COLOURS] =
        [(0, 0), (45, 6), (-45, 4), (0, 4), (90, 4), (45, 3), (-45, 8), (90, 8)];
    html! {
        defs {
            @for (i, (angle, size)) in LINES.iter().enumerate().skip(1) {
                pattern id={ "fy-h" (i) } class={ "s" (i) } width=(size) height=(size)
                    patternUnits="userSpaceOnUse" patternTransform={ "rotate(" (angle) ")" } {
                    rect class="hatch-back" width=(size) height=(size) {}
                    rect class="hatch-line" width=(size) height="1.6" {}
                }
            }
        }
    }
}

const VARIABLES: &str = r#"
:root { color-scheme: light dark;
  --bg: #ffffff; --panel: #f6f7f9; --ink: #1a1f26; --dim: #59636e; --rule: #dfe3e8; --grid: #e8ebef; --minor: #f2f4f6;
  --good: #00734f; --warn: #8f5b00; --bad: #b3261e; --accent: #0072b2;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5588f; --c4: #e69f00; --c5: #56b4e9; --c6: #7a7400; --c7: #6b7280; }
@media (prefers-color-scheme: dark) { :root {
  --bg: #14171b; --panel: #1c2026; --ink: #e6e9ed; --dim: #9aa4af; --rule: #323943; --grid: #2a3038; --minor: #20252b;
  --good: #4cc79a; --warn: #e8b04a; --bad: #ff8a80; --accent: #6cb8ee;
  --c0: #4ea8de; --c1: #f0803c; --c2: #2fbf92; --c3: #dd8fbd; --c4: #f2b632; --c5: #a5d8f5; --c6: #d6cf4a; --c7: #a3acb8; } }
@media print { :root { color-scheme: light;
  --bg: #ffffff; --panel: #ffffff; --ink: #000000; --dim: #3d444d; --rule: #b9c0c8; --grid: #d9dde2; --minor: #eceef1;
  --good: #00593d; --warn: #6e4600; --bad: #8c1d17; --accent: #000000;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5588f; --c4: #b87f00; --c5: #3a94c9; --c6: #7a7400; --c7: #6b7280; } }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); } .s7 { --c: var(--c7); }
"#;

const PLOT: &str = r#"
.fy-plot { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums; }
.fy-plot text { fill: var(--ink); }
.fy-plot .page { fill: var(--bg); }
.fy-plot .title { font-size: 14px; font-weight: 600; }
.fy-plot .axis, .fy-plot .tick { fill: var(--dim); }
.fy-plot .grid { stroke: var(--grid); } .fy-plot .minor { stroke: var(--minor); } .fy-plot .base { stroke: var(--dim); }
.fy-plot .grid, .fy-plot .minor, .fy-plot .base { shape-rendering: crispEdges; }
.fy-plot .bar { fill: var(--c); } .fy-plot .bar:hover { opacity: .75; }
.fy-plot .line { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: butt; }
.fy-plot .mark { fill: var(--c); stroke: var(--bg); stroke-width: 1; }
.fy-plot .d1 .line:not(.marked) { stroke-dasharray: 7 3; } .fy-plot .d2 .line:not(.marked) { stroke-dasharray: 2 2.5; }
.fy-plot .d3 .line:not(.marked) { stroke-dasharray: 9 3 2 3; } .fy-plot .d4 .line:not(.marked) { stroke-dasharray: 14 4; }
.fy-plot line.limit { stroke: var(--ink); stroke-dasharray: 4 4; stroke-width: 1.2; opacity: .75; }
.fy-plot text.limit { paint-order: stroke; stroke: var(--bg); stroke-width: 4px; stroke-linejoin: round; }
.fy-plot .hatch-back { fill: var(--bg); } .fy-plot .hatch-line { fill: var(--c); }
"#;

const PAGE: &str = r#"
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif; }
main { max-width: 968px; margin: 0 auto; padding: 40px 24px 32px; overflow-wrap: break-word; }
h1 { font-size: 28px; line-height: 1.2; letter-spacing: -.01em; margin: 0; }
h2 { font-size: 20px; line-height: 1.3; margin: 48px 0 12px; padding-top: 16px; border-top: 1px solid var(--rule); }
p { margin: 0 0 12px; max-width: 72ch; }
a { color: var(--accent); }
code, .command { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", "DejaVu Sans Mono", monospace; font-size: .88em; }
.subtitle { font-size: 17px; color: var(--dim); margin: 6px 0 0; }
.command { margin: 16px 0 0; padding: 8px 12px; background: var(--panel); border: 1px solid var(--rule); border-radius: 6px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.time { color: var(--dim); font-size: 13px; margin: 8px 0 0; }
nav { margin: 20px 0 0; display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 14px; }
details { margin: 14px 0 0; } summary { cursor: pointer; color: var(--dim); font-size: 14px; } details > figure { margin-top: 8px; } details + ul { margin-top: 16px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(172px, 1fr)); gap: 12px; margin: 28px 0 0; }
.card { background: var(--panel); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 16px 14px; min-width: 0; }
.card .name { color: var(--dim); font-size: 13px; } .card .detail { color: var(--dim); font-size: 13px; line-height: 1.4; }
.card .figure { font-size: 24px; line-height: 1.35; font-weight: 600; font-variant-numeric: tabular-nums; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); font-weight: 600; }
.strong { font-weight: 600; } .dim { color: var(--dim); }
figure { margin: 20px 0 0; min-width: 0; }
.scroll { overflow-x: auto; background: linear-gradient(90deg, var(--bg) 30%, transparent) left / 40px 100% local no-repeat,
  linear-gradient(270deg, var(--bg) 30%, transparent) right / 40px 100% local no-repeat,
  linear-gradient(90deg, var(--rule), transparent) left / 14px 100% scroll no-repeat,
  linear-gradient(270deg, var(--rule), transparent) right / 14px 100% scroll no-repeat; }
.swipe { display: none; color: var(--dim); font-size: 13px; margin: 0 0 4px; }
pre.command { margin: 0 0 12px; white-space: pre; overflow-x: auto; }
figure > .scroll > svg { display: block; max-width: 100%; height: auto; }
figcaption, .note { color: var(--dim); font-size: 13px; line-height: 1.45; margin: 6px 0 0; max-width: 90ch; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 0 20px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; line-height: 1.4; }
caption { text-align: left; font-weight: 600; padding: 0 0 6px; }
th, td { text-align: left; vertical-align: top; padding: 5px 24px 5px 0; }
th:last-child, td:last-child { padding-right: 0; }
thead th { font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--dim); white-space: nowrap; }
thead .unit { display: block; color: var(--dim); font-weight: 400; font-size: 12px; }
tbody tr + tr td { border-top: 1px solid var(--grid); } tbody tr:hover td { background: var(--panel); }
tfoot td { border-top: 1px solid var(--dim); font-weight: 600; }
.n { text-align: right; white-space: nowrap; }
.meter { display: inline-block; width: 110px; height: 10px; margin-right: 10px; background: var(--grid); border-radius: 2px; overflow: hidden; }
.meter i { display: block; height: 100%; background: var(--c0); } .barcell { white-space: nowrap; }
.barcell span { display: inline-block; min-width: 4.2em; text-align: right; }
.spark { display: block; fill: var(--c0); }
.heat { display: block; fill: var(--c1); } .heat .never { fill: var(--ink); fill-opacity: .04; }
dl { margin: 0 0 12px; max-width: 78ch; } dt { font-weight: 600; margin-top: 10px; } dd { margin: 0; }
figure + p, figure + ul, figure + dl { margin-top: 18px; }
ul { margin: 0 0 12px; padding-left: 20px; max-width: 72ch; }
footer { margin-top: 48px; padding-top: 12px; border-top: 1px solid var(--rule); color: var(--dim); font-size: 13px; }
footer ol { margin: 0 0 12px; padding-left: 20px; max-width: 90ch; }
.defs { position: absolute; width: 0; height: 0; }
@media (max-width: 600px) { main { padding: 24px 16px; } h1 { font-size: 23px; } .cards { grid-template-columns: 1fr 1fr; }
  .card { padding: 10px 12px; } .card .figure { font-size: 20px; } figure > .scroll > svg.wide { max-width: none; width: 680px; }
  .swipe { display: block; } }
"#;

const PRINT: &str = r#"
@media print {
  .fy-plot .s1 .bar:not(.thin) { fill: url(#fy-h1); stroke: var(--c); } .fy-plot .s2 .bar:not(.thin) { fill: url(#fy-h2); stroke: var(--c); }
  .fy-plot .s3 .bar:not(.thin) { fill: url(#fy-h3); stroke: var(--c); } .fy-plot .s4 .bar:not(.thin) { fill: url(#fy-h4); stroke: var(--c); }
  .fy-plot .s5 .bar:not(.thin) { fill: url(#fy-h5); stroke: var(--c); } .fy-plot .s6 .bar:not(.thin) { fill: url(#fy-h6); stroke: var(--c); }
  .fy-plot .s7 .bar:not(.thin) { fill: url(#fy-h7); stroke: var(--c); }
  .fy-plot .d1 .line { stroke-dasharray: 7 3; } .fy-plot .d2 .line { stroke-dasharray: 2 2.5; }
  .fy-plot .d3 .line { stroke-dasharray: 9 3 2 3; } .fy-plot .d4 .line { stroke-dasharray: 14 4; }
  body { font-size: 10.5pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; } nav { display: none; } a { text-decoration: none; }
  details::details-content { content-visibility: visible; } figure, .card, tr, dt { break-inside: avoid; } h2 { break-after: avoid; margin-top: 28px; }
  .cards { grid-template-columns: repeat(auto-fit, minmax(110px, 1fr)); gap: 8px; } .pair { grid-template-columns: 1fr 1fr; } .scroll { overflow: visible; background: none; }
}
@page { margin: 16mm 14mm; }
"#;
