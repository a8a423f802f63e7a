//! `flowyard top`: a running yard by the second.
//!
//! Drawn with the tables of every other command on the terminal's second screen; keys are read
//! with the terminal set to give each at once. That is all a terminal library would be used for
//! here, so there is none.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::time::Duration;

use flowyard_operate::client::Client;
use flowyard_operate::client::ClientError;
use flowyard_operate::protocol::{Cores, Drops, Elephants, Lb, Queues, Request, Tables};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use crate::show::{AskArgs, refused, tables, text};
use crate::stop::{Stop, bad_input};

/// Watch a running yard: cores, queues, tables, elephants and drops, by the second.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard top
  flowyard top --interval 0.5
  flowyard top --once | head

q leaves.")]
pub(crate) struct Args {
    #[command(flatten)]
    ask: AskArgs,

    /// Seconds between two looks
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    interval: f64,

    /// Print one frame, of two looks, and leave
    #[arg(long)]
    once: bool,
}

/// One look.
#[derive(serde::Serialize)]
struct Look {
    cores: Cores,
    queues: Queues,
    tables: Tables,
    elephants: Elephants,
    drops: Drops,
    /// Of a balancer.
    lb: Option<Lb>,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if !(0.05..=3600.0).contains(&args.interval) {
        return Err(bad_input("--interval: from 0.05 to 3600 seconds"));
    }
    let mut yard = args.ask.connect()?;
    let interval = Duration::from_secs_f64(args.interval);
    let mut before = look(&mut yard)?;
    if args.once || args.ask.json || !stdout().is_terminal() || !stdin().is_terminal() {
        std::thread::sleep(interval);
        let now = look(&mut yard)?;
        return args.ask.print("flowyard.top/1", &now, |now| frame(now, &before));
    }
    let _screen = Screen::take()?;
    loop {
        if key(interval)? {
            return Ok(());
        }
        let now = look(&mut yard)?;
        draw(&text(&frame(&now, &before), &crate::style()))?;
        before = now;
    }
}

fn look(yard: &mut Client) -> Result<Look, Stop> {
    Ok(Look {
        cores: yard.ask(&Request::Cores).map_err(refused)?,
        queues: yard.ask(&Request::Queues).map_err(refused)?,
        tables: yard.ask(&Request::Tables { entries: 0 }).map_err(refused)?,
        elephants: yard.ask(&Request::Elephants).map_err(refused)?,
        drops: yard.ask(&Request::Drops).map_err(refused)?,
        lb: match yard.ask(&Request::Lb) {
            Ok(lb) => Some(lb),
            Err(ClientError::Refused(_)) => None, // it is none
            Err(error) => return Err(refused(error)),
        },
    })
}

fn frame(now: &Look, before: &Look) -> Vec<flowyard_report::Table> {
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

/// Draws over what was there, as far as the terminal has room.
fn draw(text: &str) -> Result<(), Stop> {
    let rows = terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0));
    let mut out = stdout().lock();
    write!(out, "\x1b[H")?;
    for line in text.lines().take(rows.saturating_sub(1)) {
        write!(out, "{line}\x1b[K\r\n")?;
    }
    write!(out, "\x1b[Jq leaves")?;
    Ok(out.flush()?)
}

/// Waits for a key; whether it is one that leaves.
fn key(wait: Duration) -> Result<bool, Stop> {
    let input = stdin();
    let wait = Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos().into() };
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    match poll(&mut polled, Some(&wait)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false), // a resize draws anew
        Ok(_) => {}
        Err(error) => return Err(std::io::Error::from(error).into()),
    }
    let mut keys = [0; 64];
    let got = rustix::io::read(&input, &mut keys).map_err(std::io::Error::from)?;
    // Nothing to read is a terminal that went away; Ctrl-C comes as a key.
    Ok(got == 0 || keys[..got].iter().any(|key| matches!(key, b'q' | b'Q' | 3)))
}

/// The terminal's second screen, given back when dropped.
struct Screen(Termios);

impl Screen {
    fn take() -> Result<Self, Stop> {
        let before = tcgetattr(stdin()).map_err(std::io::Error::from)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(std::io::Error::from)?;
        let screen = Self(before); // from here on it is given back
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
