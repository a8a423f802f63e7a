//! What Ctrl-C does: reports are made of what was read, and long measurements say how to continue.

use std::io::{Write, stderr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowyard_ports::pcap::Ender;
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

/// Makes SIGINT print a hint and end the process.
pub(crate) fn hint(hint: String) -> std::io::Result<()> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    signal_hook::low_level::pipe::register(SIGINT, writer)?;
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        let mut byte = [0];
        while rustix::io::read(&reader, &mut byte) == Err(rustix::io::Errno::INTR) {}
        let _closed = writeln!(stderr(), "\nflowyard: {hint}");
        std::process::exit(130);
    })?;
    Ok(())
}
