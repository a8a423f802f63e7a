use super::*;

const MS: Nanos = 1_000_000;
const STEERINGS: [Steering; 3] = [Steering::None, Steering::Rps, Steering::Rfs];

fn costs() -> Costs {
    let costs = crate::closed::tests::costs();
    let host = crate::closed::Costs { ipi_send: 500, ipi_take: 700, ..costs };
    Costs {
        host,
        ask: 150,
        take: 350,
        turn: 100,
        poll: 300,
        armed: 700,
        timer: 3000,
        idle_poll: 3700,
        idle_timer: 6000,
        slice: 4 * MS,
    }
}

/// The same, with all paths as the near one and nothing that depends on what runs: a processor is one server.
fn even() -> Costs {
    let mut costs = costs();
    costs.host.ways = [costs.host.ways[0]; 4];
    (costs.host.wake_near, costs.host.wake_far) = (0, 0);
    (costs.host.idle_exit, costs.host.idle_wake, costs.idle_timer) = (0, 0, 0);
    (costs.host.switch, costs.host.epoll, costs.host.event, costs.host.nothing) = (0, 0, 0, 0);
    (costs.turn, costs.poll, costs.armed, costs.timer, costs.idle_poll) = (1, 1, 1, 1, 1);
    costs
}

fn setup(steering: Steering, rate: f64) -> Setup {
    Setup { costs: costs(), steering, connections: 120, rate, seed: 1, time: 100 * MS }
}

#[test]
fn the_counters_balance_and_equal_seeds_give_equal_runs() {
    for steering in STEERINGS {
        let mut means = Vec::new();
        // Far below the wall, near it, and far above.
        for rate in [1e3, 1e5, 3e5] {
            let setup = setup(steering, rate);
            let outcome = setup.run();
            assert!(outcome.is_balanced(), "{outcome:?}");
            // Answers are waited for, so none is left.
            assert_eq!((outcome.accounting.held, outcome.accounting.dropped), (0, 0));
            assert_eq!(outcome, setup.run());
            assert!(0 < outcome.p50_ns && outcome.p50_ns <= outcome.p99_ns, "{outcome:?}");
            assert!(outcome.mean_ns < outcome.p99_ns as f64, "{outcome:?}");
            assert_ne!(outcome, Setup { seed: 2, ..setup }.run());
            // Poisson: the standard deviation of the count is its root.
            let due = rate * 0.1;
            assert!((outcome.due as f64 - due).abs() < 5.0 * due.sqrt(), "{outcome:?}");
            means.push(outcome.mean_ns);
        }
        assert!(means.is_sorted(), "{means:?}");
    }
}

/// The counters of a run that is cut off still balance: what is in queues is counted there.
#[test]
fn requests_in_queues_are_held() {
    let Costs { host, ask, take, turn, poll, armed, timer, idle_poll, idle_timer, slice } = costs();
    let (rate, time) = (2e5, [0, 50 * MS]);
    let load = Generator { ask, take, turn, poll, armed, timer, idle_poll, idle_timer, rate, time };
    for steering in STEERINGS {
        let load = Load::Open(load);
        let host = Host {
            costs: host,
            steering,
            servers: 2,
            clients: 1,
            connections: 60,
            seed: 1,
            slice,
            load,
        };
        let mut run = Run::new(&host);
        while let Some(event) = run.events.next_before(20 * MS) {
            run.apply(event);
        }
        // Above the wall most requests wait: two threads offer 8000 in this time.
        assert!(run.held() > 500, "{steering:?}: {}", run.held());
        assert_eq!(run.asked, run.read + run.held(), "{steering:?}");
    }
}

/// One request at a time: its latency is the sum of the path, since nothing else runs.
#[test]
fn at_a_low_load_the_latency_is_the_sum_of_the_path() {
    // The generator sleeps until the request is due, on an idle processor.
    let costs = costs();
    let timer = 6000 + 400 + 200 + 100; // idle_timer, switch, epoll, turn
    let server = 400 + 200 + 100 + 300 + 1000 + 4000 + 100; // switch, epoll, event, read, request, answer, nothing
    let asked = 150 + 4000 + 500; // ask, wake of the server, which is as long for a near thread as for a far one
    let back = 400 + 200 + 100 + 300 + 350; // switch, epoll, event, take
    // The generator's ppoll after it has asked, in which it finds nothing, goes before the server; it is woken by the
    // answer.
    let near = timer + asked + 700 + server + 500 + back;
    let mut only_near = setup(Steering::None, 200.0);
    only_near.costs.host.ways = [costs.host.ways[0]; 4];
    only_near.costs.host.wake_far = 500;
    only_near.time = 1000 * MS;
    let run = only_near.run();
    // To the thread of the other processor: the wake-up of an idle one twice, and no ppoll, epoll and switch in between.
    let far = timer + asked + 2000 + server + 500 + 2000 + back;
    let mean = f64::from(near + far) / 2.0;
    assert!((run.mean_ns / mean - 1.0).abs() < 0.05, "{run:?} {mean}");
    // Each part that is doubled is found in the latency.
    let mut slow = only_near.clone();
    slow.costs.host.request += 10_000;
    assert!((slow.run().mean_ns - run.mean_ns - 10_000.0).abs() < 500.0, "{:?}", slow.run());
}

/// A processor with constant costs and no steering to another one is a queue with one server (M/D/1): with utilisation
/// rho, the mean number of requests in the system follows from the formula of Pollaczek and Khinchine.
#[test]
fn waiting_grows_as_in_a_queue_with_one_server() {
    let costs = even();
    let service = 4000 + 150 + 300 + 1000 + 4000 + 300 + 350;
    let wait = |rho: f64| {
        let rate = 2.0 * rho * 1e9 / f64::from(service);
        Setup { costs, rate, time: 2000 * MS, ..setup(Steering::None, 0.0) }.run()
    };
    for rho in [0.3, 0.5, 0.7] {
        let run = wait(rho);
        assert!((run.busy[0] - rho).abs() < 0.04, "{rho}: {run:?}");
        // Work that waits at an instant is the same for every order of service that does not idle.
        let mean = f64::from(service) * (1.0 + rho / (2.0 * (1.0 - rho)));
        assert!((0.8..1.6).contains(&(run.mean_ns / mean)), "{rho}: {} {mean}", run.mean_ns);
    }
    assert!(wait(0.9).mean_ns > 2.0 * wait(0.5).mean_ns);
}

/// The highest rate that holds, to half a percent.
fn wall_of(costs: Costs, steering: Steering) -> f64 {
    let holds = |rate| Setup { costs, ..setup(steering, rate) }.run().holds(2 * MS);
    let (mut low, mut high) = (20_000.0, 400_000.0);
    assert!(holds(low) && !holds(high));
    while high / low > 1.005 {
        let middle = f64::midpoint(low, high);
        *(if holds(middle) { &mut low } else { &mut high }) = middle;
    }
    low
}

/// Two processors divided by the cost of a request. Requests that wait on one connection share the two
/// reads, so the wall is between that of single requests and that without reads.
#[test]
fn the_wall_is_where_the_processors_are_full() {
    let wall = wall_of(even(), Steering::None);
    let alone = 2e9 / f64::from(4000 + 150 + 300 + 1000 + 4000 + 300 + 350);
    let shared = 2e9 / f64::from(4000 + 150 + 1000 + 350 + 4000);
    assert!(wall > 0.97 * alone && wall < 1.02 * shared, "{alone} {wall} {shared}");
}

/// Perturbations: the cost that each request pays moves the wall by its share, and what no request pays does not.
#[test]
fn costs_move_the_wall_by_their_share() {
    let change = |steering, with: fn(&mut Costs)| {
        let mut changed = costs();
        with(&mut changed);
        wall_of(changed, steering) / wall_of(costs(), steering) - 1.0
    };
    for steering in STEERINGS {
        // All work on sockets: most of a request.
        let twice = change(steering, |costs| {
            for ops in &mut costs.host.ways {
                for ns in
                    [&mut ops.ask, &mut ops.hop, &mut ops.read, &mut ops.answer, &mut ops.take]
                {
                    *ns *= 2;
                }
            }
        });
        assert!((-0.50..-0.40).contains(&twice), "{steering:?}: {twice}");
        let request = change(steering, |costs| costs.host.request *= 2);
        assert!((-0.14..-0.03).contains(&request), "{steering:?}: {request}");
    }
    let interrupt = |costs: &mut Costs| {
        costs.host.ways[2..].iter_mut().for_each(|ops| ops.hop += 3000);
    };
    assert_eq!(change(Steering::None, interrupt), 0.0);
    let rps = change(Steering::Rps, interrupt);
    assert!((-0.20..-0.05).contains(&rps), "{rps}");
}

/// Perturbation: what an idle processor costs is paid for each request at a low load, and hardly at the wall.
#[test]
fn an_idle_processor_costs_time_at_low_loads() {
    let cost = |costs: Costs| {
        let run = Setup { costs, time: 500 * MS, ..setup(Steering::None, 2e3) }.run();
        run.busy.iter().sum::<f64>() * 1e9 / run.answered_rps
    };
    let (before, wall) = (cost(costs()), wall_of(costs(), Steering::None));
    // A request is sent when a timer has ended the idle time.
    let mut timer = costs();
    timer.idle_poll += 3000;
    timer.idle_timer += 3000;
    let more = cost(timer) - before;
    assert!((2700.0..3100.0).contains(&more), "{more}");
    // Half of the requests are for the other processor: it is woken, and wakes the generator with the answer.
    let mut wake = costs();
    wake.host.idle_wake += 3000;
    wake.host.idle_exit += 3000;
    let more = cost(wake) - before;
    assert!((2600.0..3200.0).contains(&more), "{more}");
    for changed in [timer, wake] {
        let moved = wall_of(changed, Steering::None) / wall - 1.0;
        assert!(moved.abs() < 0.02, "{moved}");
    }
}

#[test]
fn rfs_is_local_and_the_others_are_local_by_chance() {
    let share = |steering| setup(steering, 5e4).run().local_share;
    assert!(share(Steering::Rfs) > 0.99);
    assert!((share(Steering::None) - 0.5).abs() < 0.05);
    assert!((share(Steering::Rps) - 0.5).abs() < 0.2);
}

/// Above the wall, a server that never sleeps leaves the generator its processor only after a time slice.
#[test]
fn a_longer_time_slice_delays_what_the_other_thread_has_to_do() {
    let of = |slice| {
        let mut setup = setup(Steering::None, 1.5e5);
        setup.costs.slice = slice;
        setup.run().p99_ns
    };
    assert_ne!(of(MS / 10), of(20 * MS));
}

#[test]
fn the_wall_is_the_highest_rate_before_two_that_do_not_hold() {
    let rates = [10.0, 20.0, 30.0, 40.0];
    assert_eq!(wall(&rates, &[true, false, true, false]), (Some(30.0), 4));
    assert_eq!(wall(&rates, &[true, false, false, true]), (Some(10.0), 3));
    assert_eq!(wall(&rates, &[false; 4]), (None, 2));
    assert_eq!(wall(&rates, &[true; 4]), (Some(40.0), 4));
    assert!(holds(950, 1000, 5.0, 5) && !holds(949, 1000, 5.0, 5) && !holds(1000, 1000, 5.1, 5));
}

#[test]
fn a_profile_without_the_costs_names_the_missing_one() {
    let profile = Profile::named("kth").unwrap();
    assert!(Costs::of(&profile).unwrap_err().to_string().contains("'tcp_near_ask_ns'"));
}
