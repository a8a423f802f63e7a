//! What the network stack does with a request: the choice of a processor, its backlog, its interrupt, the server's socket.

use flowyard_adapter::linux::CpuQueues;

use super::{AT_SERVER, CPUS, Event, Run, Steering};

struct Backlogs([u32; CPUS as usize], [u32; CPUS as usize]);

impl CpuQueues for Backlogs {
    fn head(&self, cpu: u16) -> u32 {
        self.0[usize::from(cpu)]
    }

    fn tail(&self, cpu: u16) -> u32 {
        self.1[usize::from(cpu)]
    }

    fn online(&self, cpu: u16) -> bool {
        cpu < CPUS
    }
}

impl Run<'_> {
    /// The processor that the kernel chooses for a request of `conn` that was sent on `cpu`.
    pub(super) fn steer(&mut self, conn: usize, cpu: u16) -> u16 {
        let hash = self.conns[conn].hash;
        let mut backlogs = Backlogs(self.heads, self.tails);
        let target = match (&mut self.rfs, self.of.steering) {
            (Some(rfs), _) => rfs.receive(hash, 0, &mut backlogs),
            (None, Steering::Rps) => self.rps.cpu(hash, &backlogs),
            (None, _) => None,
        };
        target.unwrap_or(cpu)
    }

    /// Begins the stack's work for the next frame of the backlog, which delays the current chunk.
    pub(super) fn begin_stack(&mut self, cpu: u16) {
        let costs = self.of.costs;
        let Some(&(conn, interrupted)) = self.cpus[usize::from(cpu)].soft.front() else { return };
        let saved = if interrupted { 0 } else { costs.ipi_take };
        let hop = self.ops(conn).hop.saturating_sub(saved);
        let ns = (hop + self.wake_cost(self.conns[conn].server, cpu)).max(1);
        let own = &mut self.cpus[usize::from(cpu)];
        own.in_softirq = true;
        if own.busy {
            own.stolen += ns;
        } else {
            own.worked += ns;
        }
        self.events.after(ns, Event::Stack(cpu));
    }

    /// The stack has processed the first frame of the backlog.
    pub(super) fn end_stack(&mut self, cpu: u16) {
        let own = &mut self.cpus[usize::from(cpu)];
        let frame = own.soft.pop_front();
        (own.in_softirq, own.polls) = (!own.soft.is_empty(), !own.soft.is_empty());
        let (more, busy) = (own.in_softirq, own.busy);
        if let Some((conn, _)) = frame {
            self.heads[usize::from(cpu)] = self.heads[usize::from(cpu)].wrapping_add(1);
            self.deliver(conn, cpu);
        }
        if more {
            self.begin_stack(cpu);
        } else if !busy {
            self.next(cpu);
        }
    }

    /// Puts a request into the backlog of the processor `stack`; returns whether that must be interrupted.
    pub(super) fn hand_over(&mut self, conn: usize, stack: u16) -> bool {
        self.tails[usize::from(stack)] = self.tails[usize::from(stack)].wrapping_add(1);
        let costs = self.of.costs;
        let other = &mut self.cpus[usize::from(stack)];
        let interrupts = !std::mem::replace(&mut other.polls, true);
        other.soft.push_back((conn, interrupts));
        if interrupts {
            let before = self.ops(conn).ask.saturating_sub(costs.ipi_send);
            let flight = costs.ipi_flight.saturating_sub(before);
            self.events.after(flight, Event::Arrive(stack));
        }
        interrupts
    }

    /// Puts a request into the server's socket.
    pub(super) fn deliver(&mut self, conn: usize, cpu: u16) {
        let server = self.conns[conn].server;
        self.stacks += 1;
        self.local += u64::from(self.threads[server].cpu == cpu);
        let state = &mut self.conns[conn];
        state.received += 1;
        if !std::mem::replace(&mut state.listed[AT_SERVER], true) {
            self.threads[server].ready.push_back(conn);
        }
        self.wake(server);
    }
}
