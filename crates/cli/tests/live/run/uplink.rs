//! Interfaces that carry the default route.

use crate::yard::ends;
use flowyard_livekit::line::{Kind, Line, Plan};

flowyard_testkit::tests! {
    an_uplink_is_refused_unless_confirmed,
    a_tap_with_the_default_route_is_accepted,
}

/// Exit status and output of the command.
fn said(line: &Line, args: &[&str]) -> (Option<i32>, String) {
    let output = ends(line.yard(), &line.plan.text(), args);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn an_uplink_is_refused_unless_confirmed() {
    for kind in [Kind::Packet, Kind::Xdp] {
        let line = Line::new(Plan::of(kind));
        let yard = line.yard();
        let valid = (Some(0), "y.toml: the configuration is valid\n".to_owned());
        yard.address("vb", 7);
        yard.sh("ip addr add 10.8.0.7/24 dev vc");
        assert_eq!(said(&line, &["--check"]), valid, "routes, but no default");
        for (add, to, at) in [
            ("ip route add default via 10.9.0.1 dev vb", "0.0.0.0/0", "7:13: 'vb'"),
            ("ip route add default dev vc metric 9", "0.0.0.0/0", "14:13: 'vc'"),
            ("ip -6 route add default via fd09::1 dev vb", "::/0", "7:13: 'vb'"),
        ] {
            yard.sh(add);
            let line_of = format!(
                "flowyard: y.toml:{at} carries the default route ({to}), and the machine may be cut \
                 off; name another interface, or use --yes-this-is-my-uplink\n"
            );
            assert_eq!(said(&line, &["--check"]), (Some(2), line_of.clone()), "{kind:?}: {add}");
            assert_eq!(said(&line, &[]), (Some(2), line_of));
            assert_eq!(said(&line, &["--check", "--yes-this-is-my-uplink"]), valid);
            yard.sh(&add.replace("route add", "route del"));
        }
        // Unreachable default routes: none uses the instance's interfaces.
        yard.sh("ip route add unreachable default; ip -6 route add unreachable default");
        assert_eq!(said(&line, &["--check"]), valid);
        assert!(!yard.sh("ip -d link").contains("xdp"), "an XDP program is left");
    }
}

/// A host may have its default route through a tap of the instance.
fn a_tap_with_the_default_route_is_accepted() {
    let line = Line::new(Plan::of(Kind::Tap));
    line.a.sh("ip tuntap add tap0 mode tap; ip link set tap0 up");
    line.a.address("tap0", 1);
    line.a.sh("ip route add default dev tap0");
    assert_eq!(said(&line, &["--check"]), (Some(0), "y.toml: the configuration is valid\n".into()));
}
