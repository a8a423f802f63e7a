//! Steer: the tables in order. The first that knows a frame decides; the last one always does.

use flowyard_frame::{Batch, Lanes};

use crate::table::{Spread, Table};

/// An ordered list of tables that ends in an indirection table.
pub struct Steer {
    tables: Vec<Box<dyn Table + Send>>,
    hits: Vec<u64>,
    /// The last table.
    pub spread: Spread,
}

impl Steer {
    /// A walk through `tables` in order, then `spread`.
    #[must_use]
    pub fn new(tables: Vec<Box<dyn Table + Send>>, spread: Spread) -> Self {
        Self { hits: vec![0; tables.len() + 1], tables, spread }
    }

    /// Writes an action into every lane. Keys and hashes must be there. Returns the lanes that a
    /// table in front of the last one answered.
    #[inline]
    pub fn walk(&mut self, batch: &mut Batch) -> Lanes {
        let all = batch.lanes();
        let mut left = all;
        for (table, hits) in self.tables.iter_mut().zip(&mut self.hits) {
            if left.is_empty() {
                break; // a batch that is answered needs no table
            }
            let missed = table.lookup(batch, left);
            *hits += u64::from(left.without(missed).count());
            left = missed;
        }
        self.spread.lookup(batch, left);
        if let Some(hits) = self.hits.last_mut() {
            *hits += u64::from(left.count());
        }
        all.without(left)
    }

    /// Asks the tables about a batch of one lane, counting no hit. Returns the number of the table
    /// that answered; its answer is in the lane.
    pub fn ask(&mut self, one: &mut Batch) -> usize {
        let lane = one.lanes();
        let answers = |table: &mut Box<dyn Table + Send>| table.lookup(one, lane).is_empty();
        if let Some(table) = self.tables.iter_mut().position(answers) {
            return table;
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

    /// Table number `index`, for its edits.
    pub fn table(&mut self, index: usize) -> Option<&mut (dyn Table + Send + 'static)> {
        self.tables.get_mut(index).map(Box::as_mut)
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::{Action, Edit, FlowKey, Frame, To};

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
            steer.table(index).unwrap().edits().unwrap().apply(&edits, &mut refused);
            assert_eq!(refused, []);
        }
        let mut batch = Batch::default();
        for sport in 0..4 {
            let mut frame = Frame::new(0, 0, 60);
            frame.hash = 2;
            batch.push(frame, port(sport)).unwrap();
        }
        assert_eq!(steer.walk(&mut batch), Lanes(0b0110));
        let to: Vec<_> = batch.actions[..4].iter().map(|action| action.to).collect();
        assert_eq!(to, [2, 10, 21, 2].map(To::Queue));
        assert_eq!(steer.hits(), [1, 1, 2]);
        for (sport, to, table) in [(0, 2, 2), (1, 10, 0), (2, 21, 1)] {
            let mut one = Batch::default();
            let mut frame = Frame::new(0, 0, 60);
            frame.hash = 2;
            one.push(frame, port(sport)).unwrap();
            assert_eq!((steer.ask(&mut one), one.actions[0].to), (table, To::Queue(to)));
            assert_eq!(steer.is_last(table), table == 2);
        }
        assert_eq!(steer.hits(), [1, 1, 2], "asking is no hit");
    }
}
