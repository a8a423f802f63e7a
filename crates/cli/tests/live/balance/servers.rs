//! Servers on backends: nginx, HAProxy in front of an nginx, memcached, and a UDP echo. All end with the
//! test.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use super::site::{Site, vips};
use crate::yard::wait_until;
use flowyard_livekit::net::Net;
use flowyard_testkit::harness::{self, Need};

/// A server process in a namespace.
pub(crate) struct Server {
    child: Child,
    pub(crate) folder: TempDir,
}

impl Server {
    fn start(net: &Net, program: &str, args: &[&str], folder: TempDir) -> Self {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder.path()).stdin(Stdio::null());
        let file = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
        command.stdout(file("out")).stderr(file("err"));
        flowyard_livekit::sys::within(&mut command, &net.0);
        Self { child: command.spawn().unwrap(), folder }
    }

    /// Waits until it listens.
    #[track_caller]
    fn listens(mut self, net: &Net, how: &str, port: u16) -> Self {
        wait_until("the server", || {
            let said = || std::fs::read_to_string(self.folder.path().join("err")).unwrap();
            assert!(self.child.try_wait().unwrap().is_none(), "{}", said());
            net.sh(&format!("ss -Hln{how}")).contains(&format!(":{port} "))
        });
        self
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let (_killed, _waited) = (self.child.kill(), self.child.wait());
    }
}

/// An nginx that returns its name at `/who`, serves `files` at `/files/`, and stores uploads to `/up/` in
/// its folder.
pub(crate) fn nginx(net: &Net, name: &str, port: u16, files: &Path) -> Server {
    nginx_that(net, name, port, files, "")
}

/// As [`nginx`], with more words after `listen`. With PROXY protocol, `/from` and the file `log` have the
/// client's address and port.
pub(crate) fn nginx_that(net: &Net, name: &str, port: u16, files: &Path, more: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display();
    let files = files.display();
    let log = if more.is_empty() { "off".into() } else { format!("{here}/log from") };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("{what}_temp_path {here}/tmp;\n"))
        .collect();
    let text = format!(
        "daemon off; master_process off; user root; pid {here}/pid; error_log stderr crit;\n\
         worker_rlimit_nofile 16384; events {{ worker_connections 8192; }}\n\
         http {{ log_format from '$proxy_protocol_addr $proxy_protocol_port $request_uri';\n\
         access_log {log}; {temporary} sendfile on; keepalive_requests 1000000;\n\
         server {{ listen {port} backlog=4096 {more}; listen [::]:{port} ipv6only=on backlog=4096 {more};\n\
         default_type text/plain; add_header X-Backend {name} always;\n\
         location = /who {{ return 200 \"{name}\"; }}\n\
         location = /from {{ return 200 \"$proxy_protocol_addr $proxy_protocol_port\"; }}\n\
         location /files/ {{ alias {files}/; }}\n\
         location /up/ {{ root {here}; dav_methods PUT; create_full_put_path on;\n\
                          client_max_body_size 0; }} }} }}\n"
    );
    std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
    let config = folder.path().join("nginx.conf").display().to_string();
    let prefix = folder.path().display().to_string();
    let args = ["-p", &prefix, "-e", "stderr", "-c", &config];
    Server::start(net, "nginx", &args, folder).listens(net, "t", port)
}

/// A HAProxy on port 80 in front of a server on port `behind`, with more words after `bind`; `/from` returns
/// the client's address and port as HAProxy sees them.
pub(crate) fn haproxy_that(net: &Net, behind: u16, more: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "global\n  maxconn 4000\ndefaults\n  mode http\n  timeout connect 30s\n  timeout client 60s\n  \
         timeout server 60s\nfrontend web\n  bind 0.0.0.0:80 {more}\n  bind :::80 v6only {more}\n  \
         http-request return status 200 content-type text/plain lf-string \"%[src] %[src_port]\" \
         if {{ path /from }}\n  default_backend nginx\nbackend nginx\n  server one 127.0.0.1:{behind}\n"
    );
    std::fs::write(folder.path().join("haproxy.cfg"), text).unwrap();
    let server = Server::start(net, "haproxy", &["-db", "-f", "haproxy.cfg"], folder);
    server.listens(net, "t", 80)
}

/// The destination addresses of packets that arrive at backend `n`.
fn addresses(site: &Site, n: usize) -> [IpAddr; 2] {
    if !site.mode.translates() {
        return vips();
    }
    [format!("10.2.0.{n}"), format!("fd02::{n}")].map(|addr| addr.parse().unwrap())
}

/// A memcached over UDP.
pub(crate) fn memcached(site: &Site, n: usize) -> Server {
    let listen = addresses(site, n).map(|addr| addr.to_string()).join(",");
    let args = ["-u", "root", "-l", &listen, "-p", "0", "-U", "11211", "-t", "1"];
    let net = &site.backends[n - 1];
    Server::start(net, "memcached", &args, tempfile::tempdir().unwrap()).listens(net, "u", 11211)
}

/// Returns datagrams to their sender, with the backend's number in the first byte.
pub(crate) struct Echo {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start(site: &Site, n: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let net = &site.backends[n - 1];
        let thread = |addr: IpAddr| {
            let socket = net.within(move || UdpSocket::bind((addr, 7)).unwrap());
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            flowyard_livekit::sys::big_buffer(&socket);
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                while !over.load(Ordering::Relaxed) {
                    let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                    buffer[0] = n as u8;
                    // If this fails, the client does not get its answer and fails.
                    let _sent = socket.send_to(&buffer[..len], from);
                }
            })
        };
        let threads = addresses(site, n).map(thread).into();
        Self { over, threads }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// All web servers of a site, and the files that they serve.
pub(crate) struct Farm {
    /// Servers of each backend; the last one listens on port 80.
    pub(crate) web: Vec<Vec<Server>>,
    pub(crate) files: TempDir,
    kind: Kind,
}

/// The programs that serve a farm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// nginx on all backends, with HAProxy in front of it on the second one, if installed.
    Mixed,
    /// nginx on all backends.
    Nginx,
    /// As `Mixed`; they learn the client's address by PROXY protocol.
    Proxied,
}

impl Farm {
    /// Starts a web server of kind [`Kind::Mixed`] on each backend. `file` is at `/files/big`, [`small`](super::load::small) at `/files/small`.
    pub(crate) fn start(site: &Site, file: &[u8]) -> Self {
        Self::of(site, file, Kind::Mixed)
    }

    pub(crate) fn of(site: &Site, file: &[u8], kind: Kind) -> Self {
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("big"), file).unwrap();
        std::fs::write(files.path().join("small"), super::load::small()).unwrap();
        let mut farm = Self { web: Vec::new(), files, kind };
        for n in 1..=site.backends.len() {
            farm.web.push(Vec::new());
            farm.start_one(site, n);
        }
        farm
    }

    /// Starts the web server of backend `n`.
    pub(crate) fn start_one(&mut self, site: &Site, n: usize) {
        let (net, name) = (&site.backends[n - 1], format!("b{n}"));
        let files = self.files.path();
        let (listen, bind) = match self.kind {
            Kind::Proxied => ("proxy_protocol", "accept-proxy"),
            _ => ("", ""),
        };
        self.web[n - 1] = if n == 2
            && self.kind != Kind::Nginx
            && harness::can_run("HAProxy as a server", Need::Program("haproxy"))
        {
            vec![nginx(net, &name, 8081, files), haproxy_that(net, 8081, bind)]
        } else {
            vec![nginx_that(net, &name, 80, files, listen)]
        };
    }

    pub(crate) fn stop_one(&mut self, n: usize) {
        self.web[n - 1].clear();
    }

    /// The file uploaded to `/up/{name}` of backend `n`.
    pub(crate) fn uploaded(&self, n: usize, name: &str) -> std::io::Result<Vec<u8>> {
        std::fs::read(self.web[n - 1][0].folder.path().join("up").join(name))
    }
}
