//! The bench under virtual time: a yard, or another device, made anew for each size.

use crate::dut::{YardDut, YardSpec};
use crate::setup::Setup;
use crate::suite::Bench;
use crate::tester::{Measure, MeasureError, VirtualTester};

/// A yard, built for each size.
#[derive(Clone, Copy, Debug)]
pub struct YardBench(pub YardSpec);

impl Bench for YardBench {
    fn at(&mut self, setup: &Setup) -> Result<Box<dyn Measure + '_>, MeasureError> {
        let spec = YardSpec { line: setup.line, ports: setup.topology.ports(), ..self.0 };
        Ok(Box::new(VirtualTester::new(YardDut::new(spec)?, setup.clone())?))
    }
}
