# A test lab: a tester, a device under test and the cables between them, in network namespaces. Source it.
#
#   lab_up cable              t0 ───── t1                      the tester's ports joined by a cable
#   lab_up DEVICE [PORTS]     t0 ── d0 [device] d1 ── t1       forward, bridge, flowyard, flowyard-xdp
#
# The namespaces are ${LAB}t (tester) and ${LAB}d (device); they are deleted when the script exits. The
# device's interfaces have the addresses that the bench's "patterned" frames are sent to, and the hosts
# behind them have permanent neighbour entries, so that no ARP is needed. LAB_NICE="nice -n 19" runs the
# bench at low priority.
set -euo pipefail

LAB=${LAB:-fybench$$}
FLOWYARD=${FLOWYARD:-$(dirname "${BASH_SOURCE[0]}")/../../target/release/flowyard}
FLOWYARD=$(realpath -m "$FLOWYARD")
lab_dir=$(mktemp -d)
lab_yard=

lab_skip() { echo "skipped: needs $1"; exit 77; }

lab_needs() {
    [[ $(id -u) == 0 ]] || lab_skip "root, for network namespaces"
    command -v ip >/dev/null || lab_skip "the program ip"
    unshare --net true 2>/dev/null || lab_skip "network namespaces"
    [[ -x $FLOWYARD ]] || lab_skip "$FLOWYARD (cargo build --release -p flowyard-cli)"
}

lab_t() { ip netns exec "${LAB}t" "$@"; }
lab_d() { ip netns exec "${LAB}d" "$@"; }

lab_down() {
    if [[ -n $lab_yard ]]; then
        kill -TERM "$lab_yard" 2>/dev/null || true
        wait "$lab_yard" 2>/dev/null || true
        lab_yard=
    fi
    ip netns del "${LAB}t" 2>/dev/null || true
    ip netns del "${LAB}d" 2>/dev/null || true
}

lab_end() { lab_down; rm -rf "$lab_dir"; }
trap lab_end EXIT
trap 'exit 130' INT TERM

lab_silent() { # lab_silent NAMESPACE: the kernel sends no IPv6 frames of its own there
    ip netns exec "$1" sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
        echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ip link set lo up'
}

lab_up() {
    local device=$1 ports=${2:-2} p
    lab_down
    ip netns add "${LAB}t"; lab_silent "${LAB}t"
    if [[ $device == cable ]]; then
        ip -n "${LAB}t" link add t0 mtu 1600 type veth peer name t1 mtu 1600
        ip -n "${LAB}t" link set t0 up; ip -n "${LAB}t" link set t1 up
        return
    fi
    ip netns add "${LAB}d"; lab_silent "${LAB}d"
    for ((p = 0; p < ports; p++)); do
        ip -n "${LAB}t" link add "t$p" mtu 1600 type veth peer name "d$p" mtu 1600 netns "${LAB}d"
        ip -n "${LAB}t" link set "t$p" up
        ip -n "${LAB}d" link set "d$p" up
    done
    case $device in
    forward)
        lab_d sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward
            for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done'
        for ((p = 0; p < ports; p++)); do
            ip -n "${LAB}d" link set "d$p" address "02:00:00:00:02:0$((p ^ 1))"
            ip -n "${LAB}d" addr add "10.0.$p.1/24" dev "d$p"
            ip -n "${LAB}d" neigh add "10.0.$p.2" lladdr "02:00:00:00:01:0$p" dev "d$p" nud permanent
            ip -n "${LAB}d" route add "198.19.$((65 + p)).0/24" via "10.0.$p.2" dev "d$p"
        done ;;
    bridge)
        ip -n "${LAB}d" link add br0 type bridge
        for ((p = 0; p < ports; p++)); do ip -n "${LAB}d" link set "d$p" master br0; done
        ip -n "${LAB}d" link set br0 up ;;
    flowyard | flowyard-xdp | flowyard-ordered)
        lab_config "$device" "$ports" >"$lab_dir/yard.toml"
        ip netns exec "${LAB}d" "$FLOWYARD" run "$lab_dir/yard.toml" >"$lab_dir/yard.out" 2>&1 &
        lab_yard=$!
        sleep 0.5
        kill -0 "$lab_yard" 2>/dev/null || { cat "$lab_dir/yard.out"; exit 1; } ;;
    *) echo "no device '$device'; the devices are: cable, forward, bridge, flowyard, flowyard-xdp, flowyard-ordered"; exit 2 ;;
    esac
}

lab_config() { # lab_config DEVICE PORTS: prints the configuration of flowyard
    local device=$1 ports=$2 kind=af_packet p list=
    [[ $device == flowyard-xdp ]] && kind=af_xdp
    echo "[yard]"
    echo "cores = $([[ $device == flowyard-ordered ]] && echo 2 || echo 1)"
    for ((p = 0; p < ports; p++)); do
        printf '[[port]]\nname = "p%d"\nkind = "%s"\ninterface = "d%d"\ncores = [0]\nring_frames = 4096\n' "$p" "$kind" "$p"
        [[ $kind == af_xdp ]] && echo 'match = ["all"]'
        list+="${list:+, }p$p = \"p$((p ^ 1))\""
    done
    if [[ $device == flowyard-ordered ]]; then
        printf '[[queue]]\nname = "q"\norder = "ordered"\nconsumers = [0, 1]\n'
    else
        printf '[[queue]]\nname = "q"\norder = "direct"\nconsumers = [0]\n'
    fi
    printf '[work]\nkind = "forward"\nports = { %s }\n' "$list"
}

# lab_cover DEVICE: the part of a frame that must arrive unchanged. A router changes addresses and TTL.
lab_cover() { [[ $1 == forward ]] && echo network || echo frame; }

lab_machine() { echo "machine: $(nproc) processors, Linux $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"; }
