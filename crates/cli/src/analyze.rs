//! `flowyard analyze`: reads captures and prints a comparison of steering policies as text, JSON or HTML.

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flowyard_analyze::{Analysis, Analyzer, RuleSummary};
use flowyard_ports::{Progress, Source, pcap};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{ModelArgs, nanos};
use crate::outfile::{self, OutFile};
use crate::output::{self, style};
use crate::stop::{Stop, bad_input, failed};

mod page;
mod tables;

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.analyze/2";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard analyze captures/yard.pcap
  flowyard analyze big.pcapng.gz --adapter e810 --queues 32 --policy rss,arfs,yard
  flowyard analyze captures/yard.pcap --migrate-every 50ms --html report.html
  flowyard analyze --interface eth0 --seconds 10
  flowyard analyze captures/yard.pcap --policy rss --itr 50us --vectors 4
  flowyard analyze captures/guests.pcap --policy rss --tenants tenants.txt
  tcpdump -w - -c 100000 | flowyard analyze -")]
pub(crate) struct Args {
    /// Capture files to read one after another: pcap or pcapng, also compressed by gzip; - is
    /// standard input
    #[arg(required_unless_present = "seconds", value_name = "CAPTURE")]
    captures: Vec<String>,

    /// Analyze the live traffic of --interface for this many seconds, its headers only
    #[arg(long, value_name = "N", conflicts_with = "captures", requires = "interface", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,

    #[command(flatten)]
    model: ModelArgs,

    /// A flow with more than this share of all received bytes (0 to 1) is listed as an elephant
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, help_heading = "Report")]
    elephant: f64,

    /// Maximum number of elephants to list
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Report")]
    top: usize,

    /// Length of the time windows in which the imbalance between cores is measured, such as 100ms
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = humantime::parse_duration, help_heading = "Report")]
    window: Duration,

    /// Print JSON (schema flowyard.analyze/2) instead of tables
    #[arg(long, help_heading = "Report")]
    json: bool,

    /// Also write the report with plots to this file, as one self-contained HTML page
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let captures = args.captures.iter().map(Path::new);
    let reads = captures.chain(args.model.files());
    outfile::distinct(&[("--html", "page", args.html.as_deref())], reads)?;
    let mut setup = args.model.setup()?;
    if !(0.0..=1.0).contains(&args.elephant) {
        return Err(bad_input(format!(
            "--elephant: must be a share of 0 to 1, not {}",
            args.elephant
        )));
    }
    if args.window.is_zero() {
        return Err(bad_input("--window: must be longer than 0"));
    }
    setup.elephant_share = args.elephant;
    setup.elephants_most = args.top;
    setup.window = nanos(args.window);

    let page = OutFile::new(args.html.as_ref(), "page")?;
    let mut analyzer = Analyzer::new(setup).map_err(bad_input)?;
    if let (Some(seconds), Some(interface)) = (args.seconds, args.model.interface()) {
        let mut frames = crate::live::frames(interface, Duration::from_secs(seconds.into()))?;
        analyzer.read(&format!("interface {interface}"), &mut frames, |_| {})?;
        return report(analyzer, args, page);
    }
    let ender = crate::interrupt::ender().map_err(failed("catching signals"))?;
    let mut files = args.captures.iter();
    while let Some(file) = files.next().filter(|_| !ender.has_ended()) {
        let name = if file == "-" { "standard input" } else { file };
        let mut source = match pcap::open_until(file, &ender) {
            Err(_) if ender.has_ended() => {
                let why = anyhow::anyhow!("{name}: interrupted before its first packet");
                return Err(Stop::Failed(why));
            }
            opened => opened?,
        };
        let bar = Bar::new(name, source.progress());
        analyzer.read(name, &mut source, |source| bar.at(source))?;
    }
    if ender.has_ended() {
        tell("interrupted; the report is about the packets that were read until then");
    }
    report(analyzer, args, page)
}

/// Prints and writes the results.
fn report(analyzer: Analyzer, args: &Args, page: Option<OutFile<'_>>) -> Result<(), Stop> {
    let analysis = analyzer.finish();
    is_of_the_host(&analysis, args)?;
    let command = output::command_line();
    let written = page.map_or(Ok(()), |file| file.write_page(&page::page(&analysis, &command)));
    print(&analysis, args, written.is_ok())?;
    refused_rules(&analysis, args.model.rule_files().next()).iter().for_each(|line| tell(line));
    written?;
    damage(&analysis)
}

/// Refuses addresses of the host that no packet has: then nothing in the report would be about the host.
fn is_of_the_host(analysis: &Analysis, args: &Args) -> Result<(), Stop> {
    let traffic = &analysis.traffic;
    if traffic.foreign == 0 || traffic.foreign + traffic.not_ip < traffic.packets {
        return Ok(());
    }
    let (option, with) = match args.model.interface().filter(|_| !args.model.has_local()) {
        Some(interface) => (format!("--interface {interface}"), " with --local"),
        None => ("--local".to_owned(), ""),
    };
    Err(bad_input(format!(
        "{option}: none of the {} packets comes from or goes to {}; name an address that is in the capture{with}, or \
         write --local all for a monitor that receives every packet",
        traffic.packets, analysis.setup.local
    )))
}

/// Says something on standard error, where it is seen also if the report goes into a file.
fn tell(what: &str) {
    let line = what.replace(char::is_control, " ");
    let _closed = writeln!(stderr(), "flowyard: {line}");
}

/// A line for each rule that the adapter refuses.
fn refused_rules(analysis: &Analysis, file: Option<&str>) -> Vec<String> {
    let rules = analysis.policies.iter().flat_map(|policy| &policy.rules);
    let refused = rules.filter(|rule| rule.verdict == "refused");
    let line = |rule: &RuleSummary| {
        let which = match file {
            Some(file) => format!("{file}:{}: the rule", rule.line),
            None => format!("rule {} of the interface", rule.line),
        };
        format!("{which} is refused by {}: {}", analysis.setup.adapter, rule.why)
    };
    refused.map(line).collect()
}

/// A capture that could be read only in part is a failure, although that part is in the report.
fn damage(analysis: &Analysis) -> Result<(), Stop> {
    let damaged: Vec<_> =
        analysis.captures.iter().filter_map(|capture| capture.damage.clone()).collect();
    if damaged.is_empty() {
        return Ok(());
    }
    Err(Stop::Failed(anyhow::anyhow!(damaged.join("; "))))
}

fn print(analysis: &Analysis, args: &Args, is_written: bool) -> Result<(), Stop> {
    if args.json {
        return output::json(SCHEMA, analysis);
    }
    let mut text = tables::text(analysis, &style());
    if let Some(path) = args.html.as_ref().filter(|_| is_written) {
        text += &format!("\nPage with plots: {}\n", path.display());
    }
    output::text(&text)
}

/// A progress bar on standard error; none if that is not a terminal.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new(file: &str, progress: Progress) -> Self {
        if !stderr().is_terminal() {
            return Self(None);
        }
        let bar = match progress.total {
            Some(total) => {
                let template = "{msg} {wide_bar} {percent} % {bytes_per_sec} {eta} left";
                let style = ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
                ProgressBar::new(total).with_style(output::for_locale(style))
            }
            None => ProgressBar::new_spinner()
                .with_style(output::for_locale(ProgressStyle::default_spinner())),
        };
        bar.set_message(file.to_owned());
        Self(Some(bar))
    }

    fn at(&self, source: &dyn Source) {
        if let Some(bar) = &self.0 {
            bar.set_position(source.progress().done);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
