//! Processors: where cores run, and who disturbs them there.

use super::text::{join, list};
use crate::doctor::{Finding, Machine, Wanted};

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
    let why = "each core is a thread with a loop; two on one processor wait for each other";
    let (cores, cpus) = (wanted.cores.max(1), online.len());
    let found = |what: String| Finding::new("processors", what, why);
    if cpus == 0 {
        return found("which are online cannot be read".into()).warn("mount /sys");
    }
    let gone: Vec<_> = wanted.pin.iter().copied().filter(|cpu| !online.contains(cpu)).collect();
    if !gone.is_empty() {
        return found(format!("cores are pinned to {}, not online", join(&gone)))
            .problem(format!("choose 'pin' in [yard] from {}", join(online)));
    }
    if cores > cpus {
        let what = format!("{cores} cores on {cpus} processors");
        let found = found(what);
        return match wanted.busy {
            true => found.problem("write idle = \"sleep\" in [yard], or fewer cores"),
            false => found.warn(format!("write cores = {cpus} in [yard], or fewer")),
        };
    }
    if wanted.pin.is_empty() && wanted.cores > 0 {
        let pin = online.iter().rev().take(cores).rev().copied().collect::<Vec<_>>();
        return found(format!(
            "{cores} cores on {cpus} processors, not pinned: the scheduler moves them"
        ))
        .warn(format!("write pin = [{}] in [yard]", join(&pin)));
    }
    found(format!("{cores} cores on {cpus} processors"))
}

fn isolated(machine: &dyn Machine, wanted: &Wanted) -> Finding {
    let why = "on a processor that is not isolated others run, too: frames wait for milliseconds";
    let isolated = machine.read(&format!("{CPUS}/isolated")).map(|text| list(&text));
    let isolated = isolated.unwrap_or_default();
    let shared: Vec<_> = wanted.pin.iter().copied().filter(|cpu| !isolated.contains(cpu)).collect();
    if shared.is_empty() {
        return Finding::new("isolation", format!("{} are isolated", join(&wanted.pin)), why);
    }
    let pins = join(&wanted.pin);
    Finding::new("isolation", format!("{} are not isolated", join(&shared)), why).warn(format!(
        "add to the kernel's command line, and reboot: isolcpus={pins} nohz_full={pins} rcu_nocbs={pins}"
    ))
}

/// Two pins on one physical core.
fn siblings(machine: &dyn Machine, wanted: &Wanted) -> Option<Finding> {
    let why = "two threads of one physical core share its units: each is slower";
    let twins = wanted.pin.iter().find_map(|&cpu| {
        let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        let others = list(&machine.read(&path)?);
        let other = others.into_iter().find(|other| *other != cpu && wanted.pin.contains(other))?;
        Some((cpu, other))
    });
    let (cpu, other) = twins?;
    let what = format!("processors {cpu} and {other} are threads of one physical core");
    let mend = format!(
        "take {other} out of 'pin' in [yard] (see {CPUS}/cpu*/topology/thread_siblings_list)"
    );
    Some(Finding::new("siblings", what, why).warn(mend))
}

fn governor(machine: &dyn Machine, wanted: &Wanted, online: &[usize]) -> Option<Finding> {
    let why = "a governor that saves power raises the clock only after frames have waited";
    let used = if wanted.pin.is_empty() { online } else { &wanted.pin };
    let governor = |cpu: &usize| machine.read(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor"));
    let all: Vec<_> = used.iter().filter_map(governor).map(|text| text.trim().to_owned()).collect();
    let slow = all.iter().find(|governor| *governor != "performance");
    match (all.is_empty(), slow) {
        (true, _) => None, // a guest: its host decides
        (false, None) => Some(Finding::new("governor", "performance", why)),
        (false, Some(slow)) => Some(
            Finding::new("governor", slow.as_str(), why)
                .warn(format!("echo performance | tee {CPUS}/cpu*/cpufreq/scaling_governor")),
        ),
    }
}
