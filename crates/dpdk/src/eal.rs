//! The environment of DPDK (EAL): started once in a process, with the user's options.
//!
//! DPDK pins the thread that starts it and regards it as its main thread. That thread is one of our own, which does
//! nothing else, so that the caller's processor affinity stays as it is.
//!
//! Invariants: [`Eal`] exists only after a successful start. A start that failed is not tried again, because DPDK does
//! not support it; the same error is returned.
//! Thread-safety: all of it may be used by any thread.
#![allow(unsafe_code, reason = "calls of C functions")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use crate::{Error, error, sys};

/// Evidence that DPDK runs in this process.
#[derive(Clone, Copy, Debug)]
pub struct Eal(());

struct Started {
    options: Vec<String>,
    result: Result<(), Error>,
}

static STARTED: Mutex<Option<Started>> = Mutex::new(None);

const HUGE_PAGES: &str = "reserve huge pages (echo 512 > /proc/sys/vm/nr_hugepages), or use ordinary memory with the \
     EAL options '--no-huge', '-m', '256'; DPDK's own messages are on standard error";

impl Eal {
    /// Starts DPDK with these EAL options, in addition to those that flowyard needs: no shared files, no telemetry
    /// socket, one thread, warnings and errors only. `pci` are the PCI devices that may be used, by address; without
    /// any, the PCI bus is not searched. If DPDK runs already with the same options, nothing is done.
    ///
    /// # Errors
    /// When DPDK refuses the options or lacks memory, when an earlier start failed, or when it runs with other options.
    pub fn start(options: &[String], pci: &[String]) -> Result<Self, Error> {
        let all: Vec<String> = ours(options, pci);
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        let started =
            started.get_or_insert_with(|| Started { result: start(&all), options: all.clone() });
        if started.options != all {
            let what = format!(
                "DPDK runs already with other options: '{}' in place of '{}'",
                started.options.join(" "),
                all.join(" ")
            );
            return Err(Error::new(
                what,
                "DPDK can be started only once in a process; restart flowyard",
            ));
        }
        started.result.clone().map(|()| Self(()))
    }

    /// Whether devices address memory as the process does, through the IOMMU or because they copy.
    #[must_use]
    pub fn is_virtual(self) -> bool {
        // SAFETY: reads a setting of DPDK, which runs.
        unsafe { sys::fy_iova_is_va() != 0 }
    }

    /// Adds a device, such as `net_null0,size=64` or `0000:03:00.0`. A device that DPDK found at the start is not added
    /// again.
    ///
    /// # Errors
    /// When there is no such driver or device, or the driver refuses the arguments.
    pub(crate) fn add(self, arguments: &str) -> Result<(), Error> {
        let text = c_text(arguments)?;
        let _guard = changing();
        // SAFETY: the text ends with a zero; DPDK copies it.
        let result = unsafe { sys::fy_device_add(text.as_ptr()) };
        if result < 0 && result != -libc::EEXIST {
            return Err(Error::code(
                &format!("adding the DPDK device '{arguments}'"),
                result,
                "check the driver's name and its arguments (DPDK's guide 'Network Interface Controller Drivers')",
            ));
        }
        Ok(())
    }
}

/// A thread that DPDK knows, until it ends.
struct Registered(bool);

impl Drop for Registered {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: the thread was registered, and ends.
            unsafe { sys::fy_thread_unregister() };
        }
    }
}

thread_local! {
    // SAFETY: DPDK runs, because there is a device.
    static REGISTERED: Registered = Registered(unsafe { sys::fy_thread_register() } == 0);
}

/// Makes this thread known to DPDK, which runs; `false` if DPDK knows too many threads already.
#[inline]
pub(crate) fn is_registered() -> bool {
    REGISTERED.with(|registered| registered.0)
}

/// The right to add or remove devices, which DPDK does not do on two threads at a time.
pub(crate) fn changing() -> MutexGuard<'static, ()> {
    static CHANGING: Mutex<()> = Mutex::new(());
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The version of the DPDK library, as `DPDK 22.11.11`.
#[must_use]
pub fn version() -> String {
    // SAFETY: a constant string of DPDK.
    unsafe { CStr::from_ptr(sys::fy_version()) }.to_string_lossy().into_owned()
}

pub(crate) fn c_text(text: &str) -> Result<CString, Error> {
    CString::new(text)
        .map_err(|_| Error::new(format!("'{}' has a zero byte", text.escape_debug()), "remove it"))
}

/// The name of a device in its arguments.
pub(crate) fn name_of(arguments: &str) -> &str {
    arguments.split(',').next().unwrap_or_default()
}

fn ours(options: &[String], pci: &[String]) -> Vec<String> {
    // Neither leaves files behind; DPDK refuses the first one without huge pages.
    let has_huge_pages = !options.iter().any(|option| option == "--no-huge");
    let files = if has_huge_pages { "--in-memory" } else { "--no-shconf" };
    let fixed = [files, "--file-prefix=flowyard", "--no-telemetry", "--log-level=*:warning"];
    let mut all: Vec<String> = fixed.map(str::to_owned).into();
    let names_cpus = |option: &String| {
        ["-l", "-c", "--lcores"].iter().any(|cpus| option.starts_with(cpus))
            && !option.starts_with("--log")
    };
    if !options.iter().any(names_cpus) {
        all.push(format!("--lcores=0@{}", first_cpu()));
    }
    if pci.is_empty()
        && !options.iter().any(|option| option == "-a" || option.starts_with("--allow"))
    {
        all.push("--no-pci".into());
    }
    for device in pci {
        all.extend(["-a".to_owned(), device.clone()]);
    }
    all.extend(options.iter().filter(|option| *option != "--no-pci").cloned());
    all
}

/// The first processor that this thread may use.
fn first_cpu() -> usize {
    // SAFETY: a set of processors is plain data, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is as large as said.
    unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: each number is below the size of the set.
    (0..libc::CPU_SETSIZE as usize).find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).unwrap_or(0)
}

fn start(options: &[String]) -> Result<(), Error> {
    let mut words = vec![c_text("flowyard")?];
    for option in options {
        words.push(c_text(option)?);
    }
    let (report, result) = mpsc::channel();
    let body = move || {
        let _ = report.send(init(words));
        loop {
            std::thread::park(); // DPDK's main thread must not end
        }
    };
    let spawned = std::thread::Builder::new().name("dpdk-main".into()).spawn(body);
    if let Err(error) = spawned {
        return Err(Error::new(
            format!("starting a thread for DPDK failed: {error}"),
            "end other programs",
        ));
    }
    let code = result.recv().unwrap_or(-libc::EIO);
    if code < 0 {
        return Err(Error::new(
            format!("DPDK cannot start with '{}': {}", options.join(" "), error::text(code)),
            HUGE_PAGES,
        ));
    }
    Ok(())
}

fn init(words: Vec<CString>) -> c_int {
    // DPDK keeps the pointers, and changes their order, for the life of the process.
    let mut words: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
    words.push(std::ptr::null_mut());
    let words = words.leak();
    // SAFETY: strings that end with zeros and are never freed, as the array is, which ends with a null pointer.
    unsafe { sys::fy_eal_start(words.len() as c_int - 1, words.as_mut_ptr()) }
}
