//! Steer: looks frames up in an ordered list of tables. The first table that has an entry for a frame
//! decides; the last table, an indirection table, has one for every frame.

use flowyard_frame::{Batch, Lanes};

use crate::table::{Spread, Table};

/// An ordered list of tables that ends in an indirection table.
pub struct Steer {
    tables: Vec<Box<dyn Table + Send>>,
    /// Numbers of tables, in the order in which they are looked up.
    order: Vec<usize>,
    /// For each table, the lanes of the last batch that it answered.
    answered: Vec<Lanes>,
    hits: Vec<u64>,
    /// The last table.
    pub spread: Spread,
}

impl Steer {
    /// Looks up `tables` in order, then `spread`.
    #[must_use]
    pub fn new(tables: Vec<Box<dyn Table + Send>>, spread: Spread) -> Self {
        Self {
            order: (0..tables.len()).collect(),
            answered: vec![Lanes::NONE; tables.len()],
            hits: vec![0; tables.len() + 1],
            tables,
            spread,
        }
    }

    /// Changes the order of lookups, by table number. Tables that are not listed are not used, and
    /// numbers that no table has are ignored.
    pub fn set_order(&mut self, order: &[usize]) {
        self.order.clear();
        self.order.extend(order.iter().filter(|number| **number < self.tables.len()));
        self.answered.fill(Lanes::NONE);
    }

    /// Replaces table number `index`; does nothing if there is no such table.
    pub fn replace(&mut self, index: usize, table: Box<dyn Table + Send>) {
        if let Some(place) = self.tables.get_mut(index) {
            *place = table;
            self.answered[index] = Lanes::NONE;
        }
    }

    /// The lanes of the last batch that table number `index` answered, and those among them whose
    /// answers are sure ([`Table::sure`]).
    #[must_use]
    pub fn answered(&self, index: usize) -> (Lanes, Lanes) {
        match (self.answered.get(index), self.tables.get(index)) {
            (Some(&lanes), Some(table)) if !lanes.is_empty() => (lanes, table.sure()),
            _ => (Lanes::NONE, Lanes::NONE),
        }
    }

    /// Writes an action into every lane, from its key and hash. Returns the lanes that a table before
    /// the last one answered.
    #[inline]
    pub fn walk(&mut self, batch: &mut Batch) -> Lanes {
        let all = batch.lanes();
        let mut left = all;
        for &number in &self.order {
            if left.is_empty() {
                self.answered[number] = Lanes::NONE;
                continue; // every lane is answered
            }
            let missed = self.tables[number].lookup(batch, left);
            self.answered[number] = left.without(missed);
            self.hits[number] += u64::from(left.without(missed).count());
            left = missed;
        }
        self.spread.lookup(batch, left);
        if let Some(hits) = self.hits.last_mut() {
            *hits += u64::from(left.count());
        }
        all.without(left)
    }

    /// Subtracts `frames` from the hits of the last table: a later stage replaced its answers.
    pub fn overrule(&mut self, frames: u32) {
        if let Some(hits) = self.hits.last_mut() {
            *hits = hits.saturating_sub(frames.into());
        }
    }

    /// Looks up a batch of one lane without counting a hit. Returns the number of the table that
    /// answered; the answer is in the lane.
    pub fn ask(&mut self, one: &mut Batch) -> usize {
        let lane = one.lanes();
        for &number in &self.order {
            if self.tables[number].lookup(one, lane).is_empty() {
                return number;
            }
        }
        self.spread.lookup(one, lane);
        self.tables.len()
    }

    /// Whether table number `index` is the last one.
    #[must_use]
    pub const fn is_last(&self, index: usize) -> bool {
        index == self.tables.len()
    }

    /// How many frames each table answered, the last one included.
    #[must_use]
    pub fn hits(&self) -> &[u64] {
        &self.hits
    }

    /// Table number `index`, to apply edits.
    pub fn table(&mut self, index: usize) -> Option<&mut (dyn Table + Send + 'static)> {
        self.tables.get_mut(index).map(Box::as_mut)
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::{Action, Edit, FlowKey, To};
    use flowyard_testkit::hashed_batch;

    use super::*;
    use crate::table::Exact;

    #[test]
    fn the_first_table_that_knows_a_frame_decides() {
        let port = |sport| FlowKey { sport, eth_type: 0x0800, ..FlowKey::ZERO };
        let tables = || Box::new(Exact::new(8, &FlowKey::FLOW, 1));
        let mut steer = Steer::new(vec![tables(), tables()], Spread::new(4, 4).unwrap());
        for (index, list) in [vec![(1, 10)], vec![(1, 20), (2, 21)]].into_iter().enumerate() {
            let put = |(sport, queue)| Edit::Put(port(sport), Action::queue(queue));
            let edits: Vec<_> = list.into_iter().map(put).collect();
            let mut refused = Vec::new();
            steer.table(index).unwrap().apply(&edits, &mut refused);
            assert_eq!(refused, []);
        }
        let mut batch = hashed_batch((0..4).map(|sport| (port(sport), 2)));
        assert_eq!(steer.walk(&mut batch), Lanes(0b0110));
        let to: Vec<_> = batch.actions[..4].iter().map(|action| action.to).collect();
        assert_eq!(to, [2, 10, 21, 2].map(To::Queue));
        assert_eq!(steer.hits(), [1, 1, 2]);
        assert_eq!([0, 1, 2].map(|n| steer.answered(n).0), [2, 4, 0].map(Lanes));

        for (sport, to, table) in [(0, 2, 2), (1, 10, 0), (2, 21, 1)] {
            let mut one = hashed_batch([(port(sport), 2)]);
            assert_eq!((steer.ask(&mut one), one.actions[0].to), (table, To::Queue(to)));
            assert_eq!(steer.is_last(table), table == 2);
        }
        assert_eq!(steer.hits(), [1, 1, 2], "asking does not count as a hit");

        steer.set_order(&[1, 0, 9]);
        assert_eq!(steer.walk(&mut batch), Lanes(0b0110));
        let to: Vec<_> = batch.actions[..4].iter().map(|action| action.to).collect();
        assert_eq!(to, [2, 20, 21, 2].map(To::Queue), "the other table decides");
        steer.replace(1, tables());
        assert_eq!(steer.walk(&mut batch), Lanes(0b0010));
        steer.set_order(&[]);
        assert_eq!(steer.walk(&mut batch), Lanes::NONE);
        assert_eq!(steer.answered(0), (Lanes::NONE, Lanes::NONE));
    }
}
