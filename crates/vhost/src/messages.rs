//! The messages of the protocol, as the library gives them to a back end.
//!
//! Source: "Vhost-user Protocol" of QEMU (docs/interop/vhost-user.rst).

use std::fs::File;
use std::io;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use crate::PAIRS;
use crate::device::{Device, OFFERED};
use crate::memory::RegionPlace;
use crate::ring::RingPlace;

/// CONFIGURE_MEM_SLOTS is not offered: QEMU 7.2 adds each region once for each queue pair then.
const PROTOCOL: VhostUserProtocolFeatures =
    VhostUserProtocolFeatures::MQ.union(VhostUserProtocolFeatures::REPLY_ACK);

impl Device {
    /// Notes why a message is refused.
    fn note<T>(&mut self, result: std::result::Result<T, impl ToString>) -> Result<T> {
        result.map_err(|error| {
            let text = error.to_string();
            self.refused = Some(text.clone());
            Error::ReqHandlerError(io::Error::other(text))
        })
    }

    /// A message about something that was not offered.
    fn unknown<T>(&mut self, what: &str) -> Result<T> {
        self.note(Err(format!("{what} was not offered")))
    }
}

const fn place_of(region: &VhostUserMemoryRegion) -> RegionPlace {
    RegionPlace {
        guest: region.guest_phys_addr,
        len: region.memory_size,
        user: region.user_addr,
        offset: region.mmap_offset,
    }
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        // Old front ends send it when the guest resets; what follows sets everything again.
        self.pause();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.unknown("resetting the device")
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(OFFERED)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let result = self.agree(features);
        self.note(result)
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let all: Vec<_> = regions.iter().map(place_of).zip(files).collect();
        let result = self.set_memory(&all);
        self.note(result).map(|()| None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let result = self.set_size(index, size);
        self.note(result)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        if !flags.is_empty() {
            return self.unknown("a log of written pages");
        }
        let place = RingPlace { size: 0, descriptors, available, used, base: None };
        let result = self.set_place(index, place);
        self.note(result)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let result = self.set_base(index, base);
        self.note(result)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let result = self.base(index);
        self.note(result).map(|base| VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let result = self.set_kick(index.into(), file);
        self.note(result)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let result = self.set_call(index.into(), file);
        self.note(result)
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let result = self.set_error(index.into(), file);
        self.note(result)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        if features & !PROTOCOL.bits() == 0 {
            self.replies = features & VhostUserProtocolFeatures::REPLY_ACK.bits() != 0;
            Ok(())
        } else {
            self.unknown(&format!("protocol feature {:#x}", features & !PROTOCOL.bits()))
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(PAIRS as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let result = self.enable(index, enable);
        self.note(result)
    }

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        self.unknown("the configuration space")
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        self.unknown("the configuration space")
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        self.unknown("a socket for graphics")
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        self.unknown("sharing objects")
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        self.unknown("tracking of requests in flight")
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        self.unknown("tracking of requests in flight")
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        self.unknown("adding regions of memory")
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        self.unknown("adding regions of memory")
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.unknown("removing regions of memory")
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        self.unknown("a transfer of the device's state")
    }

    fn check_device_state(&mut self) -> Result<()> {
        self.unknown("a transfer of the device's state")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        self.unknown("memory of the device")
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        self.unknown("a log of written pages")
    }
}
