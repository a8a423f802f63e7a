//! Profiles: cycles by function of the paper's tables, by firmware function, and by address.
//!
//! The firmware declares which code belongs to which function of the paper: sections give the symbols
//! `__cat_N_begin` and `__cat_N_end`, and inlined locks are listed in `.nicprof`. This executes no
//! instructions. A firmware without these declarations is profiled by firmware function only.

use schemars::JsonSchema;
use serde::Serialize;

use crate::counters::{Heat, Window};
use crate::elf::Image;
use crate::isa;

/// The rows of Tables 1, 5 and 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// The entry and the main loop.
    Other,
    /// Fetch Send BD.
    FetchSendBd,
    /// Send Frame.
    SendFrame,
    /// Send Dispatch and Ordering.
    SendOrdering,
    /// Send Locking.
    SendLocking,
    /// Fetch Receive BD.
    FetchReceiveBd,
    /// Receive Frame.
    ReceiveFrame,
    /// Receive Dispatch and Ordering.
    ReceiveOrdering,
    /// Receive Locking.
    ReceiveLocking,
    /// RSS, Flow Director, and handlers of the user.
    Steering,
}

impl Category {
    /// All categories, in the order of their numbers in the firmware.
    pub const ALL: [Self; 10] = [
        Self::Other,
        Self::FetchSendBd,
        Self::SendFrame,
        Self::SendOrdering,
        Self::SendLocking,
        Self::FetchReceiveBd,
        Self::ReceiveFrame,
        Self::ReceiveOrdering,
        Self::ReceiveLocking,
        Self::Steering,
    ];

    /// The name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "Main loop",
            Self::FetchSendBd => "Fetch Send BD",
            Self::SendFrame => "Send Frame",
            Self::SendOrdering => "Send Dispatch and Ordering",
            Self::SendLocking => "Send Locking",
            Self::FetchReceiveBd => "Fetch Receive BD",
            Self::ReceiveFrame => "Receive Frame",
            Self::ReceiveOrdering => "Receive Dispatch and Ordering",
            Self::ReceiveLocking => "Receive Locking",
            Self::Steering => "Steering, own handlers",
        }
    }

    /// Whether it is counted for each sent frame; otherwise for each received frame.
    pub fn is_send(self) -> bool {
        matches!(self, Self::FetchSendBd | Self::SendFrame | Self::SendOrdering | Self::SendLocking)
    }
}

/// The counters of a part of the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// Instructions.
    pub instructions: u64,
    /// Memory accesses.
    pub accesses: u64,
    /// Cycles of instructions and stalls.
    pub cycles: u64,
}

impl Share {
    fn add(&mut self, heat: Heat, is_memory: bool) {
        self.instructions += heat.count;
        self.accesses += if is_memory { heat.count } else { 0 };
        self.cycles += heat.count + heat.stall;
    }
}

/// The counters of one firmware function.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its first address.
    pub addr: u32,
    /// The counters of its code.
    pub share: Share,
}

/// The profile of a measured period.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Profile {
    /// Counters by category, in the order of [`Category::ALL`].
    pub categories: [Share; 10],
    /// Counters by function; the function with the most cycles is first.
    pub functions: Vec<Function>,
    /// Passes of the dispatch loop; 0 if the firmware has no label `nic_pass`.
    pub passes: u64,
    /// Passes that found nothing to do; 0 if the firmware has no label `nic_idle`.
    pub idle_passes: u64,
}

/// The category of every instruction word.
pub fn categories(image: &Image) -> Vec<Category> {
    let mut map = vec![Category::Other; image.text.len()];
    let mut mark = |from: u32, to: u32, category: Category| {
        let words = from as usize / 4..(to as usize / 4).min(image.text.len());
        if let Some(part) = map.get_mut(words) {
            part.fill(category);
        }
    };
    for (number, category) in Category::ALL.into_iter().enumerate() {
        let edge = |end: &str| image.symbol_addr(&format!("__cat_{number}_{end}"));
        if let (Some(from), Some(to)) = (edge("begin"), edge("end")) {
            mark(from, to.max(from), category);
        }
    }
    for &(from, to, number) in &image.ranges {
        if let Some(&category) = Category::ALL.get(number as usize) {
            mark(from, to.max(from), category);
        }
    }
    map
}

impl Profile {
    /// The profile of `window`, in which `image` ran.
    pub fn of(image: &Image, window: &Window) -> Self {
        let mut all = [Share::default(); 10];
        let map = categories(image);
        let mut functions: Vec<_> = image
            .symbols
            .iter()
            .filter(|symbol| symbol.is_function)
            .map(|symbol| Function {
                name: symbol.name.clone(),
                addr: symbol.addr,
                share: Share::default(),
            })
            .collect();
        for (index, &heat) in window.heat.iter().enumerate() {
            let pc = 4 * index as u32;
            let is_memory = isa::decode(image.text[index], pc).is_some_and(|i| i.is_memory());
            all[map[index] as usize].add(heat, is_memory);
            if heat.count > 0
                && let Some(function) = image.function(pc)
                && let Some(row) = functions.iter_mut().find(|row| row.addr == function.addr)
            {
                row.share.add(heat, is_memory);
            }
        }
        functions.retain(|row| row.share.instructions > 0);
        functions.sort_by_key(|row| std::cmp::Reverse(row.share.cycles));
        let at = |name: &str| {
            let addr = image.symbol_addr(name)?;
            window.heat.get((addr / 4) as usize).map(|heat| heat.count)
        };
        Self {
            categories: all,
            functions,
            passes: at("nic_pass").unwrap_or(0),
            idle_passes: at("nic_idle").unwrap_or(0),
        }
    }

    /// The counters of one category.
    pub fn share(&self, category: Category) -> Share {
        self.categories[category as usize]
    }

    /// The sum of all categories.
    pub fn total(&self) -> Share {
        self.categories.iter().fold(Share::default(), |sum, part| Share {
            instructions: sum.instructions + part.instructions,
            accesses: sum.accesses + part.accesses,
            cycles: sum.cycles + part.cycles,
        })
    }
}
