//! Checks of the CPUs that the engine's cores run on.

use super::text::{join, list};
use crate::doctor::config::Wanted;
use crate::doctor::finding::Finding;
use crate::doctor::machine::Machine;

const CPUS: &str = "/sys/devices/system/cpu";

pub(super) fn all(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    let online = machine.read(&format!("{CPUS}/online")).map(|text| list(&text));
    let online = online.unwrap_or_default();
    let mut found = vec![count(&online, wanted)];
    if !wanted.pin.is_empty() {
        found.push(isolated(machine, wanted));
        found.extend(siblings(machine, wanted));
    }
    found.extend(governor(machine, wanted, &online));
    found
}

fn count(online: &[usize], wanted: &Wanted) -> Finding {
    let why =
        "each core of the engine is a polling thread; two threads on one CPU delay each other";
    let (cores, cpus) = (wanted.cores.max(1), online.len());
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
        let found = found(format!("{cores} cores on {cpus} CPUs"));
        return match wanted.busy {
            true => found.problem("write idle = \"sleep\" in [yard], or fewer cores"),
            false => found.warn(format!("write cores = {cpus} in [yard], or fewer")),
        };
    }
    if wanted.pin.is_empty() && wanted.cores > 0 {
        let pin = online.iter().rev().take(cores).rev().copied().collect::<Vec<_>>();
        return found(format!(
            "{cores} cores on {cpus} CPUs are not pinned, so the scheduler migrates them"
        ))
        .warn(format!("write pin = [{}] in [yard]", join(&pin)));
    }
    found(format!("{cores} cores on {cpus} CPUs"))
}

fn isolated(machine: &dyn Machine, wanted: &Wanted) -> Finding {
    let why =
        "other threads run on CPUs that are not isolated, and can delay frames by milliseconds";
    let isolated = machine.read(&format!("{CPUS}/isolated")).map(|text| list(&text));
    let isolated = isolated.unwrap_or_default();
    let shared: Vec<_> = wanted.pin.iter().copied().filter(|cpu| !isolated.contains(cpu)).collect();
    if shared.is_empty() {
        let what = format!("the CPUs {} are isolated", join(&wanted.pin));
        return Finding::new("isolation", what, why);
    }
    let pins = join(&wanted.pin);
    let what = format!("the CPUs {} are not isolated", join(&shared));
    Finding::new("isolation", what, why).warn(format!(
        "add to the kernel's command line and reboot: isolcpus={pins} nohz_full={pins} rcu_nocbs={pins}"
    ))
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
