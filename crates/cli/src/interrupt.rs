//! What Ctrl-C does: reports are made of what was read, and long measurements say how to continue.

use std::io::{Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowyard_ports::pcap::Ender;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

/// An ender that SIGINT and SIGTERM activate. A second signal ends the process at once.
pub(crate) fn ender() -> std::io::Result<Ender> {
    let ender = Ender::new()?;
    let once = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and sets it, the second one exits.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&once))?;
        signal_hook::flag::register(signal, Arc::clone(&once))?;
        signal_hook::low_level::pipe::register(signal, ender.writer()?)?;
    }
    Ok(ender)
}

/// The reading of a capture before other work. SIGINT and SIGTERM end the reading; when it is over, they end the
/// process.
pub(crate) struct Reading {
    ender: Ender,
    is_over: Arc<AtomicBool>,
    signals: Vec<SigId>,
}

impl Reading {
    /// Begins.
    pub(crate) fn begin() -> std::io::Result<Self> {
        let (ender, is_over) = (Ender::new()?, Arc::new(AtomicBool::new(false)));
        let mut signals = Vec::new();
        for signal in [SIGINT, SIGTERM] {
            let over = Arc::clone(&is_over);
            signals.push(signal_hook::flag::register_conditional_shutdown(signal, 130, over)?);
            signals.push(signal_hook::flag::register(signal, Arc::clone(&is_over))?);
            signals.push(signal_hook::low_level::pipe::register(signal, ender.writer()?)?);
        }
        Ok(Self { ender, is_over, signals })
    }

    /// What ends the reading.
    pub(crate) const fn ender(&self) -> &Ender {
        &self.ender
    }

    /// Whether a signal ended the reading.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.ender.has_ended()
    }

    /// The reading is over: from now on, a signal ends the process.
    pub(crate) fn over(self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// As [`Self::over`], for a command that calls [`last_words`] next: SIGINT is left to that. SIGTERM ends the process.
    pub(crate) fn hand_over(self) -> std::io::Result<()> {
        for signal in &self.signals {
            signal_hook::low_level::unregister(*signal);
        }
        // Without a handler of this process, the signal would be ignored.
        self.is_over.store(true, Ordering::Relaxed);
        signal_hook::flag::register_conditional_shutdown(SIGTERM, 143, self.is_over)?;
        Ok(())
    }
}

/// Makes SIGINT print what `words` returns, and end the process.
pub(crate) fn last_words(words: impl FnOnce() -> String + Send + 'static) -> std::io::Result<()> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    signal_hook::low_level::pipe::register(SIGINT, writer)?;
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        let mut byte = [0];
        while rustix::io::read(&reader, &mut byte) == Err(rustix::io::Errno::INTR) {}
        let _closed = writeln!(stderr(), "\nflowyard: {}", words());
        std::process::exit(130);
    })?;
    Ok(())
}
