//! Checks of the CPUs that the engine's cores run on.

use super::text::{join, list};
use crate::doctor::config::Wanted;
use crate::doctor::finding::Finding;
use crate::doctor::machine::Machine;

const CPUS: &str = "/sys/devices/system/cpu";

pub(super) fn all(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    let online = online(machine);
    let mut found = vec![count(&online, wanted)];
    if !wanted.pin.is_empty() {
        found.extend(isolated(machine, wanted, &online));
        found.extend(siblings(machine, wanted));
    }
    found.extend(governor(machine, wanted, &online));
    found
}

fn online(machine: &dyn Machine) -> Vec<usize> {
    machine.read(&format!("{CPUS}/online")).map(|text| list(&text)).unwrap_or_default()
}

/// See [`crate::doctor::offline`].
pub(in crate::doctor) fn offline(machine: &dyn Machine, wanted: &Wanted) -> Vec<usize> {
    let online = online(machine);
    let gone = |cpu: &usize| !online.is_empty() && !online.contains(cpu);
    wanted.pin.iter().copied().filter(gone).collect()
}

fn count(online: &[usize], wanted: &Wanted) -> Finding {
    let why = match wanted.busy {
        true => {
            "each core of the engine is a thread that polls without a pause; two on one CPU delay each other"
        }
        false => "each core of the engine is a thread; two on one CPU delay each other",
    };
    let (cores, cpus) = (wanted.cores.max(1), online.len());
    let some = if cores == 1 { "1 core".into() } else { format!("{cores} cores") };
    let all = if cpus == 1 { "1 CPU".into() } else { format!("{cpus} CPUs") };
    let found = |what: String| Finding::new("processors", what, why);
    if cpus == 0 {
        return found("the list of online CPUs cannot be read".into()).warn("mount /sys");
    }
    let gone: Vec<_> = wanted.pin.iter().copied().filter(|cpu| !online.contains(cpu)).collect();
    if !gone.is_empty() {
        return found(format!("cores are pinned to CPUs {}, which are not online", join(&gone)))
            .problem(format!("choose 'pin' in [yard] from {}", join(online)));
    }
    if cores > cpus {
        let found = found(format!("{some} on {all}"));
        return match wanted.busy {
            true => found.problem("write idle = \"sleep\" in [yard], or fewer cores"),
            false => found.warn(format!("write cores = {cpus} in [yard], or fewer")),
        };
    }
    if wanted.pin.is_empty() && wanted.cores > 0 {
        let (are, them) = if cores == 1 { ("is", "it") } else { ("are", "them") };
        let pin = online.iter().rev().take(cores).rev().copied().collect::<Vec<_>>();
        return found(format!(
            "the engine's {some} on {all} {are} not pinned, so the scheduler migrates {them}"
        ))
        .warn(format!("write pin = [{}] in [yard]", join(&pin)));
    }
    found(format!("{some} on {all}"))
}

/// Whether the CPUs that cores are pinned to are isolated. CPUs that are not online are reported elsewhere.
fn isolated(machine: &dyn Machine, wanted: &Wanted, online: &[usize]) -> Option<Finding> {
    let why =
        "other threads run on CPUs that are not isolated, and can delay frames by milliseconds";
    let isolated = machine.read(&format!("{CPUS}/isolated")).map(|text| list(&text));
    let isolated = isolated.unwrap_or_default();
    let pinned = wanted.pin.iter().copied();
    let pinned: Vec<_> = pinned.filter(|cpu| online.is_empty() || online.contains(cpu)).collect();
    if pinned.is_empty() {
        return None;
    }
    let shared: Vec<_> = pinned.iter().copied().filter(|cpu| !isolated.contains(cpu)).collect();
    let pins = join(&pinned);
    if shared.is_empty() {
        return Some(Finding::new("isolation", format!("the CPUs {pins} are isolated"), why));
    }
    let what = format!("the CPUs {} are not isolated", join(&shared));
    Some(Finding::new("isolation", what, why).warn(format!(
        "add to the kernel's command line and reboot: isolcpus={pins} nohz_full={pins} rcu_nocbs={pins}"
    )))
}

/// Two pinned CPUs that are hardware threads of one physical core.
fn siblings(machine: &dyn Machine, wanted: &Wanted) -> Option<Finding> {
    let why = "hardware threads of one physical core share its execution units, so each is slower";
    let twins = wanted.pin.iter().find_map(|&cpu| {
        let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        let others = list(&machine.read(&path)?);
        let other = others.into_iter().find(|other| *other != cpu && wanted.pin.contains(other))?;
        Some((cpu, other))
    });
    let (cpu, other) = twins?;
    let what = format!("CPUs {cpu} and {other} are hardware threads of one physical core");
    let fix = format!(
        "replace {other} in 'pin' in [yard] (see {CPUS}/cpu*/topology/thread_siblings_list)"
    );
    Some(Finding::new("siblings", what, why).warn(fix))
}

fn governor(machine: &dyn Machine, wanted: &Wanted, online: &[usize]) -> Option<Finding> {
    let why = "a power-saving governor raises the clock frequency only after frames have waited";
    let used = if wanted.pin.is_empty() { online } else { &wanted.pin };
    let governor = |cpu: &usize| machine.read(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor"));
    let all: Vec<_> = used.iter().filter_map(governor).map(|text| text.trim().to_owned()).collect();
    let slow = all.iter().find(|governor| *governor != "performance");
    match (all.is_empty(), slow) {
        (true, _) => None, // a virtual machine: its host controls the frequency
        (false, None) => Some(Finding::new("governor", "performance", why)),
        (false, Some(slow)) => Some(
            Finding::new("governor", slow.as_str(), why)
                .warn(format!("echo performance | tee {CPUS}/cpu*/cpufreq/scaling_governor")),
        ),
    }
}
