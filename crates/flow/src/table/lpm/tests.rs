use std::net::{Ipv4Addr, Ipv6Addr};

use flowyard_frame::FlowKey;
use flowyard_testkit::batch;
use proptest::prelude::*;

use super::super::answers::answers;
use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn action(n: u32) -> Action {
    Action { mark: n, ..Action::queue(n as u16) }
}

/// The reference model: a list of all prefixes.
#[derive(Default)]
struct Model(Vec<(IpNet, Action)>);

impl Model {
    fn put(&mut self, net: IpNet, action: Action) -> Option<Action> {
        let before = self.del(&net);
        self.0.push((net, action));
        before
    }

    fn del(&mut self, net: &IpNet) -> Option<Action> {
        let at = self.0.iter().position(|(known, _)| known == net)?;
        Some(self.0.swap_remove(at).1)
    }

    fn get(&self, addr: IpAddr) -> Option<Action> {
        let has = self.0.iter().filter(|(net, _)| net.contains(&addr));
        has.max_by_key(|(net, _)| net.prefix_len()).map(|&(_, action)| action)
    }
}

/// The results of a batch lookup of these addresses.
fn looked_up(table: &mut Lpm, addrs: &[IpAddr]) -> Vec<Option<Action>> {
    let key = |addr: &IpAddr| FlowKey::five_tuple(17, *addr, 1, *addr, 2);
    answers(table, &addrs.iter().map(key).collect::<Vec<_>>())
}

#[test]
fn the_longest_wins() {
    let mut table = Lpm::new(100);
    let routes = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "::/0"];
    for (n, route) in (1..).zip(routes) {
        assert_eq!(table.put(&net(route), action(n)), Ok(None));
    }
    let addrs = ["9.9.9.9", "10.9.9.9", "10.1.9.9", "10.1.2.9", "10.1.2.3", "2001:db8::1"];
    let addrs = addrs.map(|text| text.parse().unwrap());
    let all = |table: &mut Lpm| {
        looked_up(table, &addrs).iter().map(|a| a.map_or(0, |a| a.mark)).collect::<Vec<_>>()
    };
    assert_eq!(all(&mut table), [1, 2, 3, 4, 5, 6]);
    assert_eq!(table.del(&net("10.1.2.0/24")), Some(action(4)));
    assert_eq!(table.del(&net("0.0.0.0/0")), Some(action(1)));
    assert_eq!(table.del(&net("10.0.0.0/9")), None);
    assert_eq!(all(&mut table), [0, 2, 3, 3, 5, 6]);
    assert_eq!(table.put(&net("10.1.77.77/16"), action(9)), Ok(Some(action(3))), "host bits");
    assert_eq!(all(&mut table), [0, 2, 9, 9, 5, 6]);
}

#[test]
fn frames_that_are_not_ip_and_a_full_table() {
    let mut table = Lpm::new(1);
    assert_eq!(table.put(&net("0.0.0.0/0"), action(1)), Ok(None));
    assert_eq!(table.put(&net("::/0"), action(1)), Err(Reason::Full { capacity: 1 }));
    assert_eq!(table.put(&net("0.0.0.0/0"), action(2)), Ok(Some(action(1))), "replaced");
    let mut batch = batch([FlowKey { eth_type: 0x0806, ..FlowKey::ZERO }]);
    let all = batch.lanes();
    assert_eq!(table.lookup(&mut batch, all), all);
}

/// Nested and adjacent prefixes: few different bits, any length.
fn any_net() -> impl Strategy<Value = IpNet> {
    let v4 = (any::<u32>(), 0..=32_u8).prop_map(|(bits, len)| {
        IpNet::new(Ipv4Addr::from_bits(bits & 0x8103_0381).into(), len).unwrap()
    });
    let v6 = (any::<u128>(), 0..=128_u8).prop_map(|(bits, len)| {
        let mask = 0x8003_0000_0081_0000_0000_0100_0000_0003;
        IpNet::new(Ipv6Addr::from_bits(bits & mask).into(), len).unwrap()
    });
    prop_oneof![v4, v6].prop_map(|net| net.trunc())
}

proptest! {
    #[test]
    fn a_table_is_its_model(
        steps in prop::collection::vec((any_net(), any::<u32>(), 0..3_u8), 1..120),
        more in prop::collection::vec(any::<u32>(), 8),
    ) {
        let (mut table, mut model) = (Lpm::new(1000), Model::default());
        let empty = (table.nodes.items.len(), table.results.items.len());
        for (net, n, what) in &steps {
            if *what == 0 {
                // Mostly a prefix that is in the table.
                let known = model.0.get(*n as usize % (model.0.len() + 1)).map_or(*net, |k| k.0);
                prop_assert_eq!(table.del(&known), model.del(&known));
            } else {
                prop_assert_eq!(table.put(net, action(*n)), Ok(model.put(*net, action(*n))));
            }
            prop_assert_eq!(table.len(), model.0.len());
        }
        let mut addrs: Vec<IpAddr> = more.iter().map(|&n| Ipv4Addr::from_bits(n).into()).collect();
        for (net, ..) in &steps {
            addrs.extend([net.network(), net.broadcast()]);
        }
        let slow: Vec<_> = addrs.iter().map(|&addr| model.get(addr)).collect();
        prop_assert_eq!(addrs.iter().map(|&a| table.get(a).copied()).collect::<Vec<_>>(), &slow[..]);
        prop_assert_eq!(looked_up(&mut table, &addrs), slow);
        // After all prefixes are deleted the tree is empty.
        let used = (table.nodes.items.len(), table.results.items.len());
        for (net, action) in std::mem::take(&mut model.0) {
            prop_assert_eq!(table.del(&net), Some(action));
        }
        prop_assert!(table.is_empty() && used >= empty);
        for family in &table.families {
            prop_assert!(family.root.iter().all(|root| root.node == 0 && root.best == 0));
        }
        prop_assert!(addrs.iter().all(|&addr| table.get(addr).is_none()));
    }
}
