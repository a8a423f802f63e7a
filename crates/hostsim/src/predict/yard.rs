//! Frames that the engine forwards: by number of cores, and by offered load.

use flowyard_report::exhibit::Rows;

use super::{Case, Curve, Point, PredictError, Predicted, Prediction, Settings};
use crate::pipeline::{Flow, Pipeline, Role, stages_of};

/// The model of the engine has no settings that are no numbers.
#[derive(Clone, Copy, Debug)]
pub struct Yard;

/// Loads of the curve, as shares of the rate without a limit of the offered load.
const SHARES: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5];

/// The most cores that can be predicted.
const MOST: u64 = 128;

impl Yard {
    /// The numbers of the setup, with defaults for what is `None`.
    #[must_use]
    pub fn settings(cores: Option<f64>, work_ns: Option<f64>) -> Settings {
        Settings::default()
            .with("cores", cores, 8.0, "those of a small server")
            .with("work_ns", work_ns, 273.0, "a load balancer, as in figure dlb-here")
            .with("window", None, 512.0, "frames in the queue, as in flowyard bench engine")
            .with("tx_window", None, 256.0, "frames in the transmit queue, as there")
    }

    /// The run on `cores` cores: all of them work, the first receives, the last transmits.
    fn run(case: &Case, cores: u16, offered_pps: Option<f64>) -> Result<Flow, PredictError> {
        let settings = &case.settings;
        let work_ns = settings.get("work_ns");
        let stages = stages_of(&case.costs.profile(), cores > 1, work_ns)?;
        let role =
            |core| Role { receives: core == 0, works: true, transmits: core + 1 == cores, stages };
        let flow = Pipeline {
            window: settings.count("window", 1 << 20)?,
            tx_window: settings.count("tx_window", 1 << 20)?,
            offered_pps,
            ..Pipeline::yard((0..cores).map(role).collect())
        }
        .run();
        if flow.is_balanced() { Ok(flow) } else { Err(PredictError::Unbalanced) }
    }

    fn cores(case: &Case) -> Result<u16, PredictError> {
        case.settings.count("cores", MOST)
    }

    pub(super) fn rows(self, case: &Case) -> Result<Rows, PredictError> {
        let cores = Self::cores(case)?;
        let all = Self::run(case, cores, None)?.pps;
        let one = Self::run(case, 1, None)?.pps;
        Ok(vec![
            ("frames/s on all cores".to_owned(), all),
            ("frames/s on one core".to_owned(), one),
            ("gain by all cores, times".to_owned(), all / one),
        ])
    }

    /// The curves by cores, and by load at shares of `full`.
    pub(super) fn curves(self, case: &Case, full: f64) -> Result<Vec<Curve>, PredictError> {
        let most = Self::cores(case)?;
        let mut by_cores = Vec::new();
        for cores in 1..=most {
            by_cores.push(point(f64::from(cores), None, &Self::run(case, cores, None)?));
        }
        let mut by_load = Vec::new();
        for share in SHARES {
            let offered = full * share;
            by_load.push(point(offered, Some(offered), &Self::run(case, most, Some(offered))?));
        }
        Ok(vec![
            Curve { axis: "cores".to_owned(), points: by_cores },
            Curve { axis: "offered, frames/s".to_owned(), points: by_load },
        ])
    }

    pub(super) fn predict(self, case: &Case) -> Result<Prediction, PredictError> {
        let most = Self::cores(case)?;
        let rows = self.rows(case)?;
        let curves = self.curves(case, rows.first().map_or(0.0, |row| row.1))?;
        let notes = std::iter::once("All cores work on the flow; the first one also receives, the last one also transmits. The model has no latency.".to_owned());
        Ok(Prediction {
            model: "yard".to_owned(),
            title: format!("One flow through the engine in order, on up to {most} cores"),
            choices: Vec::new(),
            inputs: case.inputs(),
            rows: Predicted::of(rows),
            curves,
            notes: notes.chain(case.costs.notes.iter().cloned()).collect(),
        })
    }
}

fn point(at: f64, offered: Option<f64>, flow: &Flow) -> Point {
    Point {
        at,
        offered,
        rate: flow.pps,
        lost_share: offered.map_or(0.0, |offered| (1.0 - flow.pps / offered).max(0.0)),
        latency: None,
        busiest_share: flow.busy.iter().copied().fold(0.0, f64::max),
        rate_between: None,
        mean_us_between: None,
    }
}
