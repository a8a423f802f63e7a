//! The gRPC check: `grpc.health.v1.Health/Check` over HTTP/2 without TLS.
//!
//! HTTP/2 is that of `h2`, which is driven here without a runtime: its futures are polled when the socket is ready, until the deadline.
//!
//! ```text
//!  poll ──pending──> poll(2) on the socket, up to the deadline ──┐
//!    ^───────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants: at most [`LONGEST`] bytes of a response are read; the call ends at the deadline, whatever the server sends.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use flowyard_lb::check::{Grpc, grpc};
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::deadline::{Deadline, Fault};

/// The most bytes of messages that are read.
const LONGEST: usize = 4 << 10;
/// The most bytes of header fields that are accepted.
const FIELDS: u32 = 16 << 10;
/// The names of the status codes of gRPC, from 0.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Asks the server for the health of a service.
///
/// # Errors
/// The service does not accept requests, or there is no such answer in time.
pub(super) fn ask(
    stream: &TcpStream,
    wanted: &Grpc,
    at: SocketAddr,
    deadline: Deadline<'_>,
) -> Result<(), Fault> {
    let told = |error: io::Error| deadline.fault(&error);
    stream.set_nonblocking(true).map_err(told)?;
    let socket = Socket { stream, is_full: Cell::new(false) };
    let host = wanted.host.clone().unwrap_or_else(|| at.to_string());
    let left = deadline.left().map_err(told)?;
    let request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("http://{host}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "flowyard")
        .header("grpc-timeout", format!("{}m", left.as_millis().max(1)));
    let request = request.body(()).map_err(|error| Fault::Cannot(format!("'{host}': {error}")))?;
    let message = Bytes::from(grpc::question(&wanted.service));
    let answer = block_on(call(&socket, request, message), &socket, deadline).map_err(told)?;
    let answer = answer.map_err(|error| match error.is_io() {
        true => {
            error.into_io().map_or_else(|| Fault::wrong("HTTP/2"), |error| deadline.fault(&error))
        }
        false => Fault::wrong(format!("the server does not speak HTTP/2 as expected: {error}")),
    })?;
    answer.verify(&wanted.service).map_err(Fault::Wrong)
}

/// What the server has answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Answer {
    status: StatusCode,
    is_grpc: bool,
    /// The messages, up to [`LONGEST`] bytes.
    body: Vec<u8>,
    /// The status code of gRPC, if there is one.
    code: Option<u32>,
    /// What the server says about it.
    message: String,
}

impl Answer {
    /// Reads the fields that may be in the header or in the trailer.
    fn end(&mut self, fields: &HeaderMap) {
        let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
        if let Some(code) = text("grpc-status") {
            self.code = code.parse().ok();
            self.message = text("grpc-message").unwrap_or_default().chars().take(200).collect();
        }
    }

    /// Whether the service accepts requests; otherwise, why it does not.
    fn verify(&self, service: &str) -> Result<(), String> {
        let what = if service.is_empty() { "the server".into() } else { format!("'{service}'") };
        if self.status != StatusCode::OK {
            return Err(format!("the response has status {}", self.status.as_u16()));
        }
        if !self.is_grpc {
            return Err("the response is not one of gRPC".into());
        }
        match self.code {
            None => return Err("the response has no grpc-status".into()),
            Some(0) => {}
            Some(code) => {
                let name = CODES.get(code as usize).copied().unwrap_or("not defined");
                let message = &self.message;
                let colon = if message.is_empty() { "" } else { ": " };
                return Err(format!("{what}: gRPC status {code} ({name}){colon}{message}"));
            }
        }
        match grpc::answer(&self.body) {
            Some(grpc::SERVING) => Ok(()),
            Some(status) => Err(format!("{what}: {}", grpc::name(status))),
            None => Err("the response has no message about health".into()),
        }
    }
}

/// Sends the request over a new connection, and reads the response.
async fn call(
    socket: &Socket<'_>,
    request: Request<()>,
    message: Bytes,
) -> Result<Answer, h2::Error> {
    let mut builder = Builder::new();
    builder.enable_push(false).max_header_list_size(FIELDS).initial_max_send_streams(1);
    let (send, connection) = builder.handshake::<_, Bytes>(socket).await?;
    let mut connection = pin!(connection);
    let mut exchange = pin!(exchange(send, request, message));
    std::future::poll_fn(|context| {
        if let Poll::Ready(answer) = exchange.as_mut().poll(context) {
            let _goodbye = connection.as_mut().poll(context);
            return Poll::Ready(answer);
        }
        let Poll::Ready(ended) = connection.as_mut().poll(context) else { return Poll::Pending };
        // What came before the end of the connection counts.
        match (exchange.as_mut().poll(context), ended) {
            (Poll::Ready(answer), _) => Poll::Ready(answer),
            (Poll::Pending, Err(error)) => Poll::Ready(Err(error)),
            (Poll::Pending, Ok(())) => Poll::Ready(Err(h2::Reason::NO_ERROR.into())),
        }
    })
    .await
}

async fn exchange(
    send: SendRequest<Bytes>,
    request: Request<()>,
    message: Bytes,
) -> Result<Answer, h2::Error> {
    let (response, mut body) = send.ready().await?.send_request(request, false)?;
    body.send_data(message, true)?;
    let (head, mut body) = response.await?.into_parts();
    let kind = head.headers.get("content-type").and_then(|value| value.to_str().ok());
    let mut answer = Answer {
        status: head.status,
        is_grpc: kind.is_some_and(|kind| kind.starts_with("application/grpc")),
        ..Answer::default()
    };
    answer.end(&head.headers);
    while let Some(data) = body.data().await {
        let data = data?;
        let _freed = body.flow_control().release_capacity(data.len());
        let room = LONGEST - answer.body.len();
        answer.body.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok(answer); // it is no answer to this request
        }
    }
    if let Some(fields) = body.trailers().await? {
        answer.end(&fields);
    }
    Ok(answer)
}

/// A connection that does not block.
struct Socket<'a> {
    stream: &'a TcpStream,
    /// Whether the last write found no room.
    is_full: Cell<bool>,
}

fn ready<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

impl AsyncRead for &Socket<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stream = self.stream;
        ready(stream.read(into.initialize_unfilled())).map_ok(|read| into.advance(read))
    }
}

impl AsyncWrite for &Socket<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut stream = self.stream;
        let written = ready(stream.write(from));
        self.is_full.set(written.is_pending());
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(std::net::Shutdown::Write))
    }
}

/// Notes that a future can go on without anything from the socket.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs a future that waits for `socket` and nothing else, until the deadline.
fn block_on<T>(
    future: impl Future<Output = T>,
    socket: &Socket<'_>,
    deadline: Deadline<'_>,
) -> io::Result<T> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Ok(done);
        }
        let left = deadline.left()?;
        if !woken.0.swap(false, Ordering::AcqRel) {
            wait(socket, left)?;
        }
    }
}

/// Waits until the socket can be read, or written if that is needed, or the time is over.
fn wait(socket: &Socket<'_>, left: Duration) -> io::Result<()> {
    let out = if socket.is_full.get() { PollFlags::OUT } else { PollFlags::empty() };
    let mut polled = [PollFd::new(socket.stream, PollFlags::IN | out)];
    let left = Timespec::try_from(left).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    match rustix::event::poll(&mut polled, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
