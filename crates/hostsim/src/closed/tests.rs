use super::*;

/// Costs of a plausible machine.
pub(crate) fn costs() -> Costs {
    let near = Ops { ask: 4000, hop: 0, read: 300, answer: 4000, take: 300 };
    let far = Ops { ask: 5000, answer: 5000, ..near };
    let hop = Ops { ask: 2000, hop: 4000, ..far };
    Costs {
        ways: [near, far, hop, hop],
        nothing: 100,
        epoll: 200,
        event: 100,
        wake_near: 500,
        wake_far: 800,
        switch: 400,
        idle_exit: 2000,
        idle_wake: 600,
        ipi_send: 0,
        ipi_take: 0,
        ipi_flight: 1000,
        request: 1000,
    }
}

fn setup(steering: Steering) -> Setup {
    let costs = costs();
    let (servers, clients, connections) = (2, 8, 8);
    Setup { costs, steering, servers, clients, connections, seed: 1, time: [2_000_000, 30_000_000] }
}

#[test]
fn the_counters_balance_and_equal_seeds_give_equal_runs() {
    for steering in [Steering::None, Steering::Rps, Steering::Rfs] {
        for (servers, clients) in [(1, 1), (2, 8), (1, 8), (0, 1), (2, 0)] {
            let setup = Setup { servers, clients, ..setup(steering) };
            let outcome = setup.run();
            assert!(outcome.is_balanced(), "{outcome:?}");
            assert_eq!(outcome, setup.run());
            assert_eq!(outcome.accounting.entered > 0, servers > 0 && clients > 0);
        }
    }
}

#[test]
fn rfs_is_local_and_the_others_are_local_by_chance() {
    let share = |steering| setup(steering).run().local_share;
    assert!(share(Steering::Rfs) > 0.99);
    assert!((share(Steering::None) - 0.5).abs() < 0.05);
    let many = Setup { connections: 200, ..setup(Steering::Rps) };
    assert!((many.run().local_share - 0.5).abs() < 0.05);
}

/// One client and one server on the same processor: nothing overlaps, so a request takes the sum.
#[test]
fn alone_a_request_takes_the_sum_of_its_parts() {
    let mut setup = Setup { servers: 2, clients: 1, connections: 2, ..setup(Steering::None) };
    // Requests to the other processor's server cost the same as those to the server of the same processor.
    setup.costs.ways[1] = setup.costs.ways[0];
    setup.costs.wake_far = setup.costs.wake_near;
    (setup.costs.idle_exit, setup.costs.idle_wake) = (0, 0);
    let outcome = setup.run();
    // ask + wake, switch, event, read, request, answer, nothing, wake, epoll twice, switch, take
    let sum = 4000 + 500 + 400 + 100 + 300 + 1000 + 4000 + 100 + 500 + 400 + 400 + 300;
    let most = 2.0 * 1e9 / f64::from(sum);
    assert!(outcome.rate < most * 1.05 && outcome.rate > most * 0.6, "{outcome:?} {most}");
}

#[test]
fn more_expensive_hops_slow_rps_and_rfs_only() {
    let rate = |steering, hop: Nanos| {
        let mut setup = setup(steering);
        setup.costs.ways.iter_mut().for_each(|ops| ops.hop *= hop);
        setup.run().rate
    };
    for steering in [Steering::Rps, Steering::Rfs] {
        assert!(rate(steering, 3) < 0.9 * rate(steering, 1));
    }
    assert_eq!(rate(Steering::None, 3), rate(Steering::None, 1));
}

#[test]
fn one_server_is_beside_its_clients() {
    let run = |steering| Setup { servers: 1, ..setup(steering) }.run();
    assert_eq!(run(Steering::None).local_share, 0.0);
    assert!(run(Steering::Rfs).local_share > 0.99);
    // Its processor only serves: at least 300 + 1000 + 5000 + 100 for a request, with 800 for a wake-up.
    let one = run(Steering::None);
    assert!(one.rate < 1e9 / 6400.0 && one.busy[1] > 0.9, "{one:?}");
}

#[test]
fn a_processor_that_processes_its_backlog_is_not_interrupted_again() {
    let rate = |ipi| {
        let mut setup = setup(Steering::Rfs);
        (setup.costs.ipi_send, setup.costs.ipi_take) = (ipi, ipi);
        setup.run().rate
    };
    assert!(rate(1500) > 1.001 * rate(0), "{} {}", rate(1500), rate(0));
}

/// A setting that the papers do not list: half the interrupt's cost helps the steerings that interrupt.
#[test]
fn half_the_interrupt_cost_helps_rps_and_rfs_alone() {
    let rate = |steering, part: Nanos| {
        let mut setup = setup(steering);
        let costs = &mut setup.costs;
        for ops in &mut costs.ways[2..] {
            (ops.ask, ops.hop) = (ops.ask + 6000 / part, ops.hop + 6000 / part);
        }
        (costs.ipi_send, costs.ipi_take) = (6000 / part, 6000 / part);
        setup.run().rate
    };
    assert_eq!(rate(Steering::None, 1), rate(Steering::None, 2));
    for steering in [Steering::Rps, Steering::Rfs] {
        assert!(rate(steering, 2) > 1.1 * rate(steering, 1), "{steering:?}");
        // Where an interrupt costs more than the cache misses that it saves, no steering is better.
        assert!(rate(steering, 1) < rate(Steering::None, 1), "{steering:?}");
    }
}

#[test]
fn a_profile_without_the_costs_names_the_missing_one() {
    let profile = Profile::named("kth").unwrap();
    assert!(Costs::of(&profile).unwrap_err().to_string().contains("'tcp_near_ask_ns'"));
}

/// The assumption behind the figure `host-rps-rfs`: taking an interrupt of another processor costs RPS its rate, and
/// costs nothing where no packet changes processors.
#[test]
fn an_expensive_interrupt_lowers_the_rate_of_rps_and_not_that_without_steering() {
    let fall = |steering| {
        let base = setup(steering);
        let mut costly = base.clone();
        // Ops::hop has the part that takes the interrupt.
        for way in &mut costly.costs.ways[2..] {
            way.hop += 6000;
        }
        costly.costs.ipi_take += 6000;
        costly.run().rate / base.run().rate - 1.0
    };
    let [none, rps] = [Steering::None, Steering::Rps].map(fall);
    assert_eq!(none, 0.0);
    assert!((-0.20..-0.05).contains(&rps), "{rps}");
}
