//! `flowyard top`: the state of a running instance, refreshed at an interval.
//!
//! The tables of the other commands are drawn on the terminal's alternate screen, which keys scroll. The terminal is set
//! to deliver keys without waiting for a whole line. Nothing else of a terminal library would be used here,
//! so there is none.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::time::Duration;

use flowyard_operate::client::Client;
use flowyard_operate::client::ClientError;
use flowyard_operate::protocol::{Cores, Drops, Elephants, Lb, Queues, Request, Steer, Tables};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use self::view::{Key, View};
use crate::show::{self, AskArgs, refused, tables};
use crate::stop::{Stop, bad_input};

mod view;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard top
  flowyard top --interval 0.5
  flowyard top --once | head

Keys: arrows (or j, k), PgUp, PgDn, Home and End scroll, Tab goes to the next table, q quits.")]
pub(crate) struct Args {
    #[command(flatten)]
    ask: AskArgs,

    /// Seconds between two updates, 0.05 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,

    /// Print the rates of one interval and exit; this is the default if the output is not a terminal
    #[arg(long)]
    once: bool,
}

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.top/2";

/// The state of the instance at one time.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct State {
    /// Counters of the cores.
    cores: Cores,
    /// The queues.
    queues: Queues,
    /// The tables of the cores.
    tables: Tables,
    /// Flows that are split over cores, and decisions about them.
    elephants: Elephants,
    /// Dropped frames.
    drops: Drops,
    /// The load balancer; `null` if the instance is not a load balancer.
    lb: Option<Lb>,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if !(0.05..=3600.0).contains(&args.interval) {
        return Err(bad_input("--interval: must be 0.05 to 3600 seconds"));
    }
    let mut client = args.ask.connect()?;
    match client.ask::<Steer>(&Request::Steer) {
        Ok(_) => {
            let query = |client: &mut Client| client.ask(&Request::Steer).map_err(refused);
            watch(args, show::STEER, &mut client, query, |now: &Steer, before| {
                show::steer::tables(now, Some(before))
            })
        }
        Err(ClientError::Refused(_)) => watch(args, SCHEMA, &mut client, query, all_tables), // a yard
        Err(error) => Err(refused(error)),
    }
}

/// The longest interval for which a connection is kept: the control socket closes one without a request after 10 s.
const KEPT: Duration = Duration::from_secs(5);

/// Prints the state once, or draws it until the user quits.
fn watch<S: serde::Serialize>(
    args: &Args,
    schema: &'static str,
    client: &mut Client,
    query: impl Fn(&mut Client) -> Result<S, Stop>,
    all_tables: impl Fn(&S, &S) -> Vec<flowyard_report::Table>,
) -> Result<(), Stop> {
    let interval = Duration::from_secs_f64(args.interval);
    let mut before = query(client)?;
    let mut query_again = || {
        if interval > KEPT {
            *client = args.ask.connect()?;
        }
        query(client)
    };
    if args.once || args.ask.json || !stdout().is_terminal() || !stdin().is_terminal() {
        std::thread::sleep(interval);
        let now = query_again()?;
        return args.ask.print(schema, &now, |now| all_tables(now, &before));
    }
    let _screen = Screen::enter()?;
    let clock = crate::clock::new();
    let mut view = View::default();
    let mut next = clock() + interval.as_nanos() as u64;
    loop {
        match wait(next.saturating_sub(clock()))? {
            // No byte means that the terminal was closed.
            Some(typed) if typed.is_empty() => return Ok(()),
            Some(typed) => {
                for key in view::keys(&typed) {
                    if key == Key::Quit {
                        return Ok(());
                    }
                    view.press(key, rows());
                }
            }
            None if clock() < next => {} // the terminal was resized
            None => {
                let now = query_again()?;
                let style = crate::output::style();
                let tables = all_tables(&now, &before);
                let texts: Vec<_> = tables.iter().map(|table| table.to_text(&style)).collect();
                view.show(&texts);
                (before, next) = (now, clock() + interval.as_nanos() as u64);
            }
        }
        draw(&view)?;
    }
}

fn query(client: &mut Client) -> Result<State, Stop> {
    Ok(State {
        cores: client.ask(&Request::Cores).map_err(refused)?,
        queues: client.ask(&Request::Queues).map_err(refused)?,
        tables: client.ask(&Request::Tables { entries: 0 }).map_err(refused)?,
        elephants: client.ask(&Request::Elephants).map_err(refused)?,
        drops: client.ask(&Request::Drops).map_err(refused)?,
        lb: match client.ask(&Request::Lb) {
            Ok(lb) => Some(lb),
            Err(ClientError::Refused(_)) => None, // not a load balancer
            Err(error) => return Err(refused(error)),
        },
    })
}

fn all_tables(now: &State, before: &State) -> Vec<flowyard_report::Table> {
    let span = now.cores.at_s - before.cores.at_s;
    let mut all = vec![
        tables::cores(&now.cores, Some(&before.cores)),
        tables::queues(&now.queues, Some(&before.queues)),
        tables::occupancy(&now.tables, Some((&before.tables, span))),
    ];
    all.extend(now.lb.as_ref().map(|lb| crate::lb::tables::services(lb, before.lb.as_ref())));
    all.extend(tables::elephants(&now.elephants, 5));
    all.extend(tables::drops(&now.drops, 5));
    all
}

/// Lines of the terminal that show text; the last one shows the keys.
fn rows() -> usize {
    let height = terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0));
    height.saturating_sub(1)
}

/// Draws over the previous text.
fn draw(view: &View) -> Result<(), Stop> {
    let mut out = stdout().lock();
    write!(out, "\x1b[H")?;
    for line in view.visible(rows()) {
        write!(out, "{line}\x1b[K\r\n")?;
    }
    write!(out, "\x1b[J{}", view.status(rows()))?;
    Ok(out.flush()?)
}

/// Waits for keys, at most for `nanos`. `None` without keys.
fn wait(nanos: u64) -> Result<Option<Vec<u8>>, Stop> {
    let input = stdin();
    let wait =
        Timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    match poll(&mut polled, Some(&wait)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None), // INTR: the terminal was resized
        Ok(_) => {}
        Err(error) => return Err(std::io::Error::from(error).into()),
    }
    let mut keys = [0; 64];
    let got = rustix::io::read(&input, &mut keys).map_err(std::io::Error::from)?;
    Ok(Some(keys[..got].to_vec()))
}

/// The terminal's alternate screen; the former screen and settings are restored when this is dropped.
struct Screen(Termios);

impl Screen {
    fn enter() -> Result<Self, Stop> {
        let before = tcgetattr(stdin()).map_err(std::io::Error::from)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(std::io::Error::from)?;
        let screen = Self(before); // before the next write, so that its failure restores the terminal
        write!(stdout(), "\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _gone = write!(stdout(), "\x1b[?25h\x1b[?1049l");
        let _gone = stdout().flush();
        let _gone = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
