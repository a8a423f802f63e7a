use std::collections::BTreeMap;

use flowyard_adapter::Profile as Adapter;
use flowyard_report::exhibit::{How, Interval};

use super::server::highest;
use super::*;
use crate::machine::Machine;
use crate::profile::{Constant, Profile};
use crate::server::{Costs as Read, Steering};

/// A profile of `here` with these measured constants.
fn here(constants: &[(&str, f64)]) -> Profile {
    let constant = |(name, value): &(&str, f64)| {
        let source = "a test".to_owned();
        ((*name).to_owned(), Constant { value: *value, how: How::Measured, source, interval: None })
    };
    Profile {
        name: "here".to_owned(),
        title: "a test".to_owned(),
        disturbed: Vec::new(),
        machine: Machine { sockets: 1, cores: 2, threads: 1 },
        about: BTreeMap::new(),
        constants: constants.iter().map(constant).collect(),
    }
}

/// A server with few connections, so that its runs are short.
fn case(given: Option<&Profile>, queues: Option<f64>) -> Case {
    let costs = Costs::server(given).unwrap();
    let server = Server::new(None, Some(Steering::Rss), None).unwrap();
    let settings = server.settings(costs.machine.cpus(), queues, None, Some(40.0), None);
    Case { costs, settings, model: Model::Server(server) }
}

fn yard(cores: f64, work_ns: f64, stage_ns: f64) -> Case {
    let stages = ["rx", "enqueue", "dequeue", "work", "complete", "tx"];
    let names: Vec<String> = ["yard", "yard_far"]
        .iter()
        .flat_map(|prefix| stages.map(|stage| format!("{prefix}_{stage}_ns")))
        .collect();
    let mut constants: Vec<(&str, f64)> =
        names.iter().map(|name| (name.as_str(), stage_ns)).collect();
    constants.push(("yard_rest_ns", 0.0));
    let costs = Costs::yard(&here(&constants)).unwrap();
    let settings = Yard::settings(Some(cores), Some(work_ns));
    Case { costs, settings, model: Model::Yard(Yard) }
}

#[test]
fn measured_costs_replace_defaults_and_are_not_scaled() {
    let given = here(&[("epoll_ns", 321.0), ("rps_ipi_take_ns", 77.0), ("clock_ns", 9.0)]);
    let costs = Costs::server(Some(&given)).unwrap();
    assert_eq!(costs.machine, given.machine);
    let of = |name: &str| costs.inputs().find(|input| input.name == name).cloned();
    let epoll = of("here.epoll_ns").unwrap();
    assert_eq!((epoll.value, epoll.how), (321.0, How::Measured));
    // The model knows the interrupt of another processor by another name, and does not read the clock's cost.
    assert_eq!(of("here.rps_ipi_take_ns").unwrap().value, 77.0);
    assert!(of("here.clock_ns").is_none() && of("rose-city.epoll_ns").is_none());
    // A default is multiplied by the fitted scale, and so it is fitted itself; line_far_ns is not.
    let stack = of("rose-city.stack_ns").unwrap();
    assert!((stack.value - 900.0 * 1.09).abs() < 1e-9 && stack.how == How::Fitted, "{stack:?}");
    assert_eq!(of("rose-city.line_far_ns").unwrap().how, How::Assumed);
    assert!(costs.notes[0].contains("5 M responses/s"), "{:?}", costs.notes);
    let read = Read::of(&costs.profile()).unwrap();
    assert_eq!((read.epoll, read.ipi_take, read.stack), (321, 77, 981));
}

/// Without costs of the user, the model reads what the figures read.
#[test]
fn defaults_are_those_of_the_figures() {
    let costs = Costs::server(None).unwrap();
    let figures = Read::of(&Profile::named("rose-city").unwrap()).unwrap();
    assert_eq!(Read::of(&costs.profile()).unwrap(), figures);
}

#[test]
fn a_cost_of_the_user_is_given_and_others_are_refused() {
    let mut costs = Costs::server(None).unwrap();
    costs.set("stack_ns", 500.0).unwrap();
    let given: Vec<&Input> = costs.inputs().filter(|input| input.how == How::Given).collect();
    assert_eq!((given.len(), &*given[0].name, given[0].value), (1, "given.stack_ns", 500.0));
    assert!(costs.set("stack", 1.0).unwrap_err().to_string().contains("stack_ns"));
    assert!(costs.set("stack_ns", f64::NAN).is_err() && costs.set("stack_ns", -1.0).is_err());
}

#[test]
fn the_search_finds_the_highest_number_from_everywhere() {
    for limit in [0, 1, 7, 500, 998, 999] {
        for near in [0, 6, 7, 8, 450, 999] {
            let mut runs = 0;
            let mut holds = |n: u32| {
                runs += 1;
                Ok::<_, ()>(n <= limit)
            };
            assert_eq!(highest(near, 999, &mut holds), Ok(Some(limit)), "near {near}");
            // The first run; six steps of 1, 4, 16, ... pass 999 numbers; ten halves divide the last step.
            assert!(runs <= 17, "{runs} runs from {near} to {limit}");
            assert!(near != limit || runs <= 2, "{runs} runs at {near}");
        }
    }
    assert_eq!(highest(5, 999, &mut |_| Ok::<_, ()>(false)), Ok(None));
    assert_eq!(highest(5, 999, &mut |_| Err(3)), Err(3));
}

#[test]
fn the_capacity_is_where_the_latency_reaches_its_limit() {
    let given = here(&[]);
    let case = case(Some(&given), None);
    let prediction = case.predict().unwrap();
    let capacity = prediction.rows[0].value;
    let curve = &prediction.curves[0].points;
    for point in curve {
        let latency = point.latency.unwrap();
        assert!(latency.p50_us <= latency.p99_us && point.busiest_share <= 1.0);
        // The curve's points are the loads that the search ran, or others far from the limit.
        let is_quick = latency.mean_us <= 100.0;
        assert_eq!(is_quick, point.at <= capacity, "{point:?} beside {capacity}");
    }
    let last = curve.last().unwrap();
    assert!(last.rate < 0.97 * last.at, "1.5 times the capacity is too much: {last:?}");
    assert_eq!(prediction, case.predict().unwrap());
    assert_eq!(case.rows_beside(&prediction).unwrap(), prediction.values());
}

#[test]
fn costs_times_two_halve_the_capacity_and_settings_stay_whole() {
    let given = here(&[]);
    let case = case(Some(&given), Some(1.0));
    let prediction = case.predict().unwrap();
    let capacity = |case: &Case| case.rows_beside(&prediction).unwrap()[0].1;
    let all = case.inputs().into_iter().filter(|input| input.how == How::Fitted);
    let slow = all.fold(case.clone(), |case, input| case.times(&input.name, 2.0));
    let ratio = capacity(&slow) / capacity(&case);
    assert!((0.4..0.6).contains(&ratio), "{ratio}");
    // A cost of RPS, which is not used, moves nothing.
    assert_eq!(capacity(&case.times("rose-city.rps_ns", 2.0)), capacity(&case));
    // Half of one queue is one; two queues for two processors are possible, and serve more.
    assert_eq!(case.times("setup.queues", 0.5).settings.get("queues"), 1.0);
    assert!(capacity(&case.times("setup.queues", 2.0)) > 1.2 * capacity(&case));
    let four = case.times("setup.queues", 4.0).rows_beside(&prediction);
    assert!(matches!(four, Err(PredictError::Setting { name: "queues", .. })), "{four:?}");
}

#[test]
fn a_limit_below_the_latency_of_light_load_is_an_error() {
    let mut case = case(None, None);
    case.settings.times("setup.latency_limit_us", 0.01);
    let told = case.predict().unwrap_err().to_string();
    assert!(told.contains("above the limit of 1.0 us"), "{told}");
}

#[test]
fn steering_by_filters_needs_an_adapter_that_is_modelled() {
    let e810 = Adapter::find("e810");
    let told = Server::new(e810, Some(Steering::Atr), None).unwrap_err().to_string();
    assert!(told.contains("e810") && told.contains("rfs"), "{told}");
    assert!(Server::new(e810, None, None).is_ok());
}

/// The model `pipeline` with stages of 10 ns and 940 ns of work: a frame costs 1,000 ns, on each core.
#[test]
fn cores_share_a_flow_until_the_source_is_the_limit() {
    let prediction = yard(4.0, 940.0, 10.0).predict().unwrap();
    let [cores, load] = &prediction.curves[..] else { panic!("two curves") };
    let rates: Vec<f64> = cores.points.iter().map(|point| point.rate / 1e6).collect();
    for (n, rate) in (1..).zip(&rates) {
        assert!((rate / f64::from(n) - 1.0).abs() < 0.06, "{n} cores: {rate} M/s");
    }
    assert_eq!(prediction.rows[0].value, cores.points[3].rate);
    let (light, heavy) = (load.points[2], load.points[8]);
    assert!(light.lost_share < 0.01, "{light:?}");
    // Of 1.5 times what the cores can do, a third is lost.
    assert!((heavy.lost_share - 1.0 / 3.0).abs() < 0.02, "{heavy:?}");
    assert!(load.points.iter().all(|point| point.latency.is_none()));
}

#[test]
fn a_profile_without_the_engine_is_refused() {
    let told = Costs::yard(&here(&[("clock_ns", 1.0)])).unwrap_err().to_string();
    assert!(told.contains("yard_rx_ns") && told.contains("flowyard calibrate"), "{told}");
}

/// A frame costs 1,000 ns; its work has an interval of 40 ns around 10, and the stages no other.
#[test]
fn intervals_of_costs_become_ranges_of_results() {
    let plain = yard(2.0, 940.0, 10.0);
    assert!(plain.predict().unwrap().rows.iter().all(|row| row.between.is_none()));
    let mut profile = plain.costs.profile();
    let work = profile.constants.get_mut("yard_work_ns").unwrap();
    work.interval = Some(Interval { low: 0.0, high: 50.0, confidence: 0.96, rounds: 15 });
    profile.disturbed = vec!["a test ran".to_owned()];
    let case = Case { costs: Costs::yard(&profile).unwrap(), ..plain };
    let made = case.predict().unwrap();
    let one = &made.rows[1];
    assert_eq!(one.name, "frames/s on one core");
    let Between { low, high } = one.between.unwrap();
    assert!((high / low - 1040.0 / 990.0).abs() < 0.002, "{one:?}");
    assert!(low < one.value && one.value < high, "{one:?}");
    // With two cores, frames are passed on, and those costs have no interval.
    let [one, two] = [0, 1].map(|n| made.curves[0].points[n].rate_between.unwrap());
    assert!((one.high / low - 1040.0 / 990.0).abs() < 0.002 && two.low == two.high, "{two:?}");
    assert!(
        made.notes.iter().any(|note| note.contains("not quiet: a test ran")),
        "{:?}",
        made.notes
    );
}
