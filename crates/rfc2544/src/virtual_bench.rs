//! The test bench under virtual time: the device under test is a simulated yard.

use crate::dut::{YardDut, YardSpec};
use crate::measure::{Measure, MeasureError};
use crate::setup::Setup;
use crate::suite::Bench;
use crate::tester::VirtualTester;

/// Builds a new yard for each frame size.
#[derive(Clone, Copy, Debug)]
pub struct YardBench(pub YardSpec);

impl Bench for YardBench {
    fn at(&mut self, setup: &Setup) -> Result<Box<dyn Measure + '_>, MeasureError> {
        let spec = YardSpec { line: setup.line, ports: setup.topology.ports(), ..self.0 };
        Ok(Box::new(VirtualTester::new(YardDut::new(spec)?, setup.clone())?))
    }
}
