//! A network driver with rules (`ethtool -N`) and RSS contexts (`ethtool -X`) for machines whose adapters have none, for
//! tests only.
//!
//! ```text
//!  ethtool -N eth9 ...  ──┐  LD_PRELOAD=libflowyard_ethshim.so
//!  flowyard_host::ntuple ─┴──> ioctl(SIOCETHTOOL) ──> driver ──> verdict of the adapter's model
//!                                                        └────> FLOWYARD_ETHSHIM/{rules,passed,rss,channels}
//! ```
//!
//! The library replaces `ioctl` in the program that it is preloaded into. Requests of ethtool for the interface `eth9`
//! are answered here, all others by the kernel. The folder that FLOWYARD_ETHSHIM names holds the driver's state.
//!
//! Thread-safety: the state is read and written by each request; the tests run one program at a time.

mod driver;
mod rss;
mod shim;
mod words;
