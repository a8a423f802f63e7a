//! The programs that teach where flows are consumed: attached, and run as if this host had sent a frame.

use aya::Btf;
use aya::programs::links::{FdLink, LinkOrder};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{
    BtfTracePoint, ProgramError, SchedClassifier, TcAttachType, TestRun, TestRunOptions,
};

use super::{Error, Program, chain, refused};
use crate::policy::Follow;

impl Program {
    /// Attaches the program that teaches where flows are consumed.
    pub(crate) fn attach_learner(&mut self, interface: &str) -> Result<(), Error> {
        match self.follow {
            None => Ok(()),
            Some(Follow::Senders { .. }) => {
                let link = self.attach_sends(interface).map_err(|error| {
                    let what = "attaching the program that sees what is sent";
                    let needs = "policy atr needs Linux 6.6";
                    Error::Learner { what, error: chain(&error), needs }
                })?;
                self.keep_learner("sends", link)
            }
            Some(Follow::Readers) => {
                let link = self.attach_reads()?;
                self.keep_learner("reads", link)
            }
        }
    }

    fn attach_sends(&mut self, interface: &str) -> Result<FdLink, ProgramError> {
        let program = self.ebpf.program_mut("sends").ok_or(ProgramError::NotLoaded)?;
        let program: &mut SchedClassifier = program.try_into()?;
        if program.fd().is_err() {
            program.load()?;
        }
        // By a link, which ends with this process; older kernels have only filters that stay.
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        let id = program.attach_with_options(interface, TcAttachType::Egress, order)?;
        FdLink::try_from(program.take_link(id)?).map_err(|_| ProgramError::NotAttached)
    }

    /// Runs the learner of policy `atr` as if this host had sent a frame on the caller's CPU (BPF_PROG_TEST_RUN).
    ///
    /// # Errors
    /// When the kernel does not run the program, or there is another policy.
    pub fn sends(&mut self, frame: &[u8]) -> Result<(), Error> {
        let fail =
            |error: ProgramError| refused("running the program that sees what is sent", &error);
        let program = self.ebpf.program_mut("sends").ok_or(ProgramError::NotLoaded);
        let program: &mut SchedClassifier = program.and_then(TryInto::try_into).map_err(fail)?;
        if program.fd().is_err() {
            program.load().map_err(fail)?;
        }
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        program.test_run(options).map(drop).map_err(fail)
    }

    fn attach_reads(&mut self) -> Result<FdLink, Error> {
        let what = "attaching the program that sees threads read";
        let needs = "policy rfs needs a kernel with type information (CONFIG_DEBUG_INFO_BTF)";
        let fail = |error: String| Error::Learner { what, error, needs };
        let btf = Btf::from_sys_fs().map_err(|error| fail(chain(&error)))?;
        let program = self.ebpf.program_mut("reads").and_then(|one| one.try_into().ok());
        let program: &mut BtfTracePoint = program.ok_or_else(|| fail("no program".into()))?;
        // Before Linux 6.3 only TCP has a tracepoint where a thread reads.
        let names = ["sock_recv_length", "tcp_rcv_space_adjust"];
        let is_loaded = program.load(names[0], &btf).is_ok();
        let loaded = if is_loaded { Ok(()) } else { program.load(names[1], &btf) };
        let id = loaded.and_then(|()| program.attach()).map_err(|error| fail(chain(&error)))?;
        let link = program.take_link(id).map_err(|error| fail(chain(&error)))?;
        Ok(link.into())
    }
}
