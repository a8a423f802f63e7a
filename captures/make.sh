#!/usr/bin/env bash
# Makes yard.pcap: real programs talking across network namespaces, captured at the server's interface.
#
#   near --- bridge --- server   (tcpdump listens on the server's lan0)
#              |
#            router --- far      (a link with MTU 1400 and 100 Mbit/s)
#
# Everything (interfaces, processes, mounts, host name) lives in namespaces of its own, made by the
# unshare below: the machine's interfaces are not even visible from here, and when the first process
# of the namespace ends, the kernel ends the rest. So it may be interrupted and run again at any time.
#
#   apt-get install bind9-dnsutils curl dnsmasq-base ethtool iperf3 iproute2 iputils-ping memcached \
#                   nginx-light openssl python3 tcpdump tshark
#   sudo captures/make.sh [OUTPUT]
set -euo pipefail

readonly snaplen=144          # Ethernet, IPv6, UDP, VXLAN, Ethernet, IPv6 and TCP fit; lengths on the wire are kept
readonly limit_bytes=4000000
here=$(cd "$(dirname "$0")" && pwd)

if [[ -z ${YARD_INSIDE:-} ]]; then
    out=$(realpath -m "${1:-$here/yard.pcap}")
    [[ $EUID -eq 0 ]] || { echo "make.sh: needs root, to make network namespaces" >&2; exit 1; }
    for tool in capinfos curl dig dnsmasq ethtool iperf3 ip memcached nginx openssl ping python3 tcpdump tshark unshare; do
        command -v "$tool" >/dev/null || { echo "make.sh: $tool is not installed; see the list in this file" >&2; exit 1; }
    done
    exec env -i PATH="$PATH" LC_ALL=C TZ=UTC YARD_INSIDE=1 \
        unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc -- "$here/make.sh" "$out"
fi

out=$1
mount -t tmpfs tmpfs /run     # ip-netns keeps its names there
hostname yard                 # the machine's own name must not reach a packet
tmp=$(mktemp -d)
trap 'status=$?; kill $(jobs -p) 2>/dev/null || true; rm -rf "$tmp"; exit $status' EXIT
trap 'exit 130' INT TERM

# ---------------------------------------------------------------------------------------- helpers

at() { local ns=$1; shift; ip netns exec "$ns" "$@"; }

daemon() { # daemon NAME NS COMMAND...: a server that lives until the end
    local name=$1 ns=$2; shift 2
    ip netns exec "$ns" "$@" >"$tmp/$name.log" 2>&1 &
}

client() { # client NAME FUNCTION ARGS...: a job that must end well
    local name=$1; shift
    ( set -e; "$@" ) >"$tmp/$name.log" 2>&1 &
    clients[$!]=$name
}
declare -A clients=()

await() { # await WHAT COMMAND...: up to five seconds
    local what=$1; shift
    for _ in {1..50}; do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    echo "make.sh: waited five seconds for $what" >&2; cat "$tmp"/*.log >&2; exit 1
}

listening() { at server ss -lntuH "sport = :$1" | grep -q .; }

# One veth pair from the bridge or a namespace to another; frames as large as on a real wire, all
# checksums computed in software, so that what is captured is what a NIC would have seen.
real_frames() { at "$1" ethtool -K "$2" tso off gso off gro off tx off rx off sg off >/dev/null 2>&1; }

plug() { # plug NS IFNAME MAC: onto the bridge
    ip link add "sw-$1" address "02:00:00:00:ff:${3##*:}" type veth peer name "$2" netns "$1" address "$3"
    ethtool -K "sw-$1" tso off gso off gro off tx off rx off sg off >/dev/null 2>&1
    ip link set "sw-$1" master br0 up
    real_frames "$1" "$2"
}

# ---------------------------------------------------------------------------------------- the wires

sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 # the bridge stays silent
ip link add br0 address 02:00:00:00:ff:00 type bridge mcast_snooping 0
ip link set br0 up
for ns in server near router far; do
    ip netns add "$ns"
    at "$ns" sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0
    at "$ns" ip link set lo up
done
plug server lan0 02:00:00:00:00:10
plug near lan0 02:00:00:00:00:65
plug router lan0 02:00:00:00:00:01
at router ip link add wan0 mtu 1400 address 02:00:00:00:01:01 type veth \
    peer name wan0 netns far mtu 1400 address 02:00:00:00:01:0a
for ns in router far; do
    real_frames "$ns" wan0
    at "$ns" tc qdisc add dev wan0 root tbf rate 100mbit burst 16k latency 50ms
done
at near sysctl -qw net.ipv4.tcp_ecn=1
at router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1

at server ip link set lan0 up
ip netns exec server tcpdump -i lan0 -s $snaplen -B 16384 -Z root --time-stamp-precision=nano -w "$tmp/yard.pcap" \
    2>"$tmp/tcpdump.log" &
sniffer=$!
await tcpdump grep -q "listening on" "$tmp/tcpdump.log"

# From here on everything is in the capture, beginning with duplicate address detection.
address() { at "$1" ip address add "$3" dev "$2"; }
address server lan0 192.0.2.10/24
address server lan0 2001:db8:1::10/64
near4=() near6=()
for host in {101..112}; do
    address near lan0 "192.0.2.$host/24";     near4+=("192.0.2.$host")
    address near lan0 "2001:db8:1::$host/64"; near6+=("2001:db8:1::$host")
done
address router lan0 192.0.2.1/24
address router lan0 2001:db8:1::1/64
address router wan0 198.51.100.1/24
address router wan0 2001:db8:2::1/64
far4=() far6=()
for host in {10..14}; do
    address far wan0 "198.51.100.$host/24";  far4+=("198.51.100.$host")
    address far wan0 "2001:db8:2::$host/64"; far6+=("2001:db8:2::$host")
done
for end in "near lan0" "router lan0" "router wan0" "far wan0"; do
    read -r ns dev <<<"$end"
    at "$ns" ip link set "$dev" up
done
at server ip route add default via 192.0.2.1
at server ip -6 route add default via 2001:db8:1::1
at far ip route add default via 198.51.100.1
at far ip -6 route add default via 2001:db8:2::1

# ------------------------------------------------------------------------ tags and tunnels to near, far

overlay() { # overlay NS IFNAME MTU ADDRESS...
    local ns=$1 dev=$2 mtu=$3 a; shift 3
    real_frames "$ns" "$dev" || true # a TAP does not know them all
    for a in "$@"; do address "$ns" "$dev" "$a"; done
    at "$ns" ip link set "$dev" mtu "$mtu" up
}

shim() { # shim NS KIND IFNAME OPTIONS...
    local ns=$1; shift
    daemon "shim-$ns-$2" "$ns" python3 "$here/shim.py" "$@"
    await "shim $2" grep -q ready "$tmp/shim-$ns-$2.log"
}

n=0
for ns in server near; do
    n=$((n + 1))
    at "$ns" ip link add vx100 address "02:00:00:00:10:0$n" type vxlan id 100 group 239.1.1.100 dev lan0 dstport 4789
    overlay "$ns" vx100 1450 "10.1.0.$n/24" "fd00:1::$n/64"
    shim "$ns" vlan vlan100 --parent lan0 --mac "02:00:00:00:20:0$n" --tags 0x8100:100
    at "$ns" ip link set vlan100 address "02:00:00:00:20:0$n"
    overlay "$ns" vlan100 1496 "10.100.0.$n/24" "fd00:100::$n/64"
    shim "$ns" vlan qinq --parent lan0 --mac "02:00:00:00:30:0$n" --tags 0x88a8:200 0x8100:100
    at "$ns" ip link set qinq address "02:00:00:00:30:0$n"
    overlay "$ns" qinq 1492 "10.200.0.$n/24" "fd00:200::$n/64"
done
ends=("server 1 192.0.2.10 192.0.2.101" "near 2 192.0.2.101 192.0.2.10")
for end in "${ends[@]}"; do
    read -r ns n here4 there4 <<<"$end"
    shim "$ns" nvgre nv300 --local "$here4" --remote "$there4" --key 0x00012c00 --mac "02:00:00:00:40:0$n"
    at "$ns" ip link set nv300 address "02:00:00:00:40:0$n"
    overlay "$ns" nv300 1458 "10.4.0.$n/24"
    shim "$ns" 6in4 sit1 --local "$here4" --remote "$there4"
    overlay "$ns" sit1 1480 "fd00:5::$n/64"
done
ends=("server 1 192.0.2.10 198.51.100.10" "far 2 198.51.100.10 192.0.2.10")
for end in "${ends[@]}"; do
    read -r ns n here4 there4 <<<"$end"
    shim "$ns" gre gre1 --local "$here4" --remote "$there4"
    overlay "$ns" gre1 1376 "10.3.0.$n/24" "fd00:3::$n/64"
done
await "duplicate address detection" bash -c '! ip netns exec server ip -6 address show tentative | grep -q inet6'
ends=("server 1 2001:db8:1::10 2001:db8:1::101" "near 2 2001:db8:1::101 2001:db8:1::10")
for end in "${ends[@]}"; do # over IPv6; needs the addresses to be there
    read -r ns n here6 there6 <<<"$end"
    at "$ns" ip link add vx200 address "02:00:00:00:50:0$n" type vxlan id 200 local "$here6" remote "$there6" \
        dev lan0 dstport 4789
    overlay "$ns" vx200 1430 "10.2.0.$n/24"
done
await "near's addresses" bash -c '! ip netns exec near ip -6 address show tentative | grep -q inet6'

# ---------------------------------------------------------------------------------------- servers

mkdir "$tmp/www"
head -c 300 /dev/zero | tr '\0' y >"$tmp/www/small"
head -c 4000 /dev/zero | tr '\0' y >"$tmp/www/page"
head -c 60000 /dev/zero | tr '\0' y >"$tmp/www/picture"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=www.yard.test \
    -keyout "$tmp/key" -out "$tmp/cert" 2>/dev/null
cat >"$tmp/nginx.conf" <<NGINX
user root; worker_processes 1; daemon off; pid $tmp/nginx.pid; error_log $tmp/nginx.err;
events { worker_connections 512; }
http {
    access_log off; server_tokens off; client_body_temp_path $tmp/body; proxy_temp_path $tmp/proxy;
    fastcgi_temp_path $tmp/fastcgi; uwsgi_temp_path $tmp/uwsgi; scgi_temp_path $tmp/scgi;
    server {
        listen 80; listen [::]:80; listen 443 ssl; listen [::]:443 ssl; root $tmp/www;
        ssl_certificate $tmp/cert; ssl_certificate_key $tmp/key;
    }
}
NGINX
chmod 755 "$tmp"
daemon nginx server nginx -c "$tmp/nginx.conf" -e "$tmp/nginx.err"
daemon memcached server memcached -u root -t 2 -U 0 -l 0.0.0.0,:: -p 11211
{
    echo "keep-in-foreground"; echo "user=root"; echo "no-hosts"; echo "no-resolv"; echo "pid-file=$tmp/dnsmasq.pid"
    echo "local=/test/"; echo "edns-packet-max=4096"
    for host in {101..112}; do echo "host-record=desk$host.yard.test,192.0.2.$host,2001:db8:1::$host"; done
    echo "host-record=www.yard.test,192.0.2.10,2001:db8:1::10"
    echo "mx-host=yard.test,www.yard.test,10"
    echo "srv-host=_memcached._tcp.yard.test,www.yard.test,11211"
    for n in {1..14}; do echo "txt-record=big.yard.test,$n-$(head -c 200 /dev/zero | tr '\0' x)"; done
} >"$tmp/dnsmasq.conf"
daemon dnsmasq server dnsmasq --conf-file="$tmp/dnsmasq.conf"
for port in 5201 5202 5203 5204 5205 5206; do daemon "iperf-$port" server iperf3 -s -1 -p $port; done
for port in 53 80 443 11211 5201 5202 5203 5204 5205 5206; do await "port $port" listening $port; done

# ---------------------------------------------------------------------------------------- clients

web() { # web NS SERVER COUNT SOURCES...: short connections, one request each
    local ns=$1 server=$2 count=$3 i; shift 3
    local sources=("$@") files=(small small small page page picture)
    for ((i = 0; i < count; i++)); do
        at "$ns" curl -sS --fail -o /dev/null --interface "${sources[i % $#]}" \
            "http://$server/${files[i % 6]}"
    done
}

web_kept() { # web_kept NS SERVER REQUESTS SOURCES...: HTTP keep-alive, one connection for many requests
    local ns=$1 server=$2 requests=$3 source; shift 3
    for source in "$@"; do
        at "$ns" curl -sS --fail --interface "$source" "http://$server/small?[1-$requests]" >/dev/null
    done
}

web_tls() { # web_tls NS SERVER COUNT SOURCES...
    local ns=$1 server=$2 count=$3 i; shift 3
    local sources=("$@")
    for ((i = 0; i < count; i++)); do
        at "$ns" curl -sSk --fail -o /dev/null --interface "${sources[i % $#]}" \
            --resolve "www.yard.test:443:$server" https://www.yard.test/page
    done
}

names() { # names NS SERVER COUNT SOURCES...: A, AAAA, MX, SRV, PTR, a name that is not there; UDP and TCP
    local ns=$1 server=$2 count=$3 i; shift 3
    local sources=("$@")
    for ((i = 0; i < count; i++)); do
        at "$ns" dig "@$server" -b "${sources[i % $#]}" +tries=1 desk$((101 + i % 12)).yard.test A \
            desk$((101 + i % 12)).yard.test AAAA desk$((200 + i)).yard.test A
    done
    at "$ns" dig "@$server" -b "$1" yard.test MX _memcached._tcp.yard.test SRV -x 192.0.2.10
    for ((i = 0; i < count / 2; i++)); do
        at "$ns" dig "@$server" -b "${sources[i % $#]}" +tcp desk$((101 + i % 12)).yard.test
    done
    at "$ns" dig "@$server" -b "$1" +bufsize=4096 +ignore big.yard.test TXT # answered in IP fragments
    at "$ns" dig "@$server" -b "$1" +bufsize=512 big.yard.test TXT          # truncated, asked again over TCP
}

elephant() { # elephant NS SERVER PORT BYTES RATE OPTIONS...: one long flow, paced by the kernel
    local ns=$1 server=$2 port=$3 bytes=$4 rate=$5; shift 5
    at "$ns" iperf3 -c "$server" -p "$port" -n "$bytes" --fq-rate "$rate" -l 16K -C cubic "$@"
}

datagrams() { # datagrams NS SERVER PORT BYTES RATE OPTIONS...
    local ns=$1 server=$2 port=$3 bytes=$4 rate=$5; shift 5
    at "$ns" iperf3 -u -c "$server" -p "$port" -n "$bytes" -b "$rate" -l 1200 "$@"
}

cache() { # cache NS SERVER CONNECTIONS REQUESTS SEED SOURCES...
    local ns=$1 server=$2 connections=$3 requests=$4 seed=$5; shift 5
    at "$ns" python3 "$here/memcached_load.py" "$server" --connections "$connections" --requests "$requests" \
        --seed "$seed" --sources "$(IFS=,; echo "$*")"
}

echoes() { # small, large enough to be fragmented, and too large for far's link without fragments
    local host
    for host in 192.0.2.10 2001:db8:1::10; do
        at near ping -q -c 10 -i 0.3 "$host"
        at near ping -q -c 5 -i 0.2 -s 4000 "$host"
        at far ping -q -c 5 -i 0.2 -s 3000 "$host"
    done
    at server ping -q -c 5 -i 0.2 192.0.2.101
    # The router answers the first of each with "too big"; the kernel learns the path's MTU from it.
    at server ping -q -c 4 -i 0.2 -s 1450 -M do 198.51.100.11 || true
    at server ping -q -c 4 -i 0.2 -s 1440 -M do 2001:db8:2::11 || true
}

refused() { # nobody listens there: RST, ICMP port unreachable; nobody lives there: ICMP host unreachable
    local i
    for i in {1..6}; do
        ! at near curl -s --max-time 2 "http://192.0.2.10:808$i/"
        ! at near curl -s --max-time 2 "http://[2001:db8:1::10]:808$i/"
        at near bash -c "echo anyone >/dev/udp/192.0.2.10/900$i; echo anyone >/dev/udp/2001:db8:1::10/900$i"
        sleep 0.3
    done
    ! at server ping -q -c 1 -W 4 198.51.100.99
}

inside() { # inside NS SERVER...: a little of everything through a tag or a tunnel
    local ns=$1 server; shift
    for server in "$@"; do
        local url=$server; [[ $server == *:* ]] && url="[$server]"
        at "$ns" ping -q -c 3 -i 0.2 "$server"
        at "$ns" curl -sS --fail -o /dev/null "http://$url/picture"
        for _ in {1..6}; do at "$ns" curl -sS --fail -o /dev/null "http://$url/page"; done
        for n in {101..106}; do at "$ns" dig "@$server" +tries=1 "desk$n.yard.test"; done
    done
}

echo "make.sh: traffic begins"
client cache4       cache near 192.0.2.10 120 14 1 "${near4[@]}"
client cache6       cache near 2001:db8:1::10 36 10 2 "${near6[@]}"
client cache-far    cache far 192.0.2.10 20 8 3 "${far4[@]}"
client elephant4    elephant near 192.0.2.10 5201 6000000 4M
client elephant6    elephant near 2001:db8:1::10 5202 3000000 3M
client elephant-out elephant far 192.0.2.10 5203 3000000 6M -R
client datagrams4   datagrams near 192.0.2.10 5204 1200000 1M
client datagrams6   datagrams far 2001:db8:1::10 5205 600000 1M
client elephant-vx  elephant near 10.1.0.1 5206 600000 1M
client web4         web near 192.0.2.10 120 "${near4[@]}"
client web6         web near '[2001:db8:1::10]' 60 "${near6[@]}"
client web-far4     web far 192.0.2.10 40 "${far4[@]}"
client web-far6     web far '[2001:db8:1::10]' 30 "${far6[@]}"
client kept4        web_kept near 192.0.2.10 40 "${near4[@]:0:6}"
client kept6        web_kept near '[2001:db8:1::10]' 40 "${near6[@]:0:3}"
client tls4         web_tls near 192.0.2.10 20 "${near4[@]}"
client tls6         web_tls far '[2001:db8:1::10]' 10 "${far6[@]}"
client names4       names near 192.0.2.10 30 "${near4[@]}"
client names6       names far 2001:db8:1::10 20 "${far6[@]}"
client echoes       echoes
client refused      refused
client inside-near  inside near 10.1.0.1 fd00:1::1 10.2.0.1 10.4.0.1 fd00:5::1 10.100.0.1 fd00:100::1 10.200.0.1 fd00:200::1
client inside-far   inside far 10.3.0.1 fd00:3::1
for pid in "${!clients[@]}"; do
    wait "$pid" || { echo "make.sh: ${clients[$pid]} failed:" >&2; tail -20 "$tmp/${clients[$pid]}.log" >&2; exit 1; }
done
sleep 1 # the last FINs
kill -TERM "$sniffer" # background jobs ignore INT
wait "$sniffer" || true

# ---------------------------------------------------------------------------------------- the result

grep -q "^0 packets dropped by kernel" "$tmp/tcpdump.log" || { echo "make.sh: tcpdump dropped packets; run it again" >&2; cat "$tmp/tcpdump.log" >&2; exit 1; }
bytes=$(stat -c %s "$tmp/yard.pcap")
((bytes <= limit_bytes)) || { echo "make.sh: $bytes bytes, more than $limit_bytes: ask the clients for less" >&2; exit 1; }
install -m 644 "$tmp/yard.pcap" "$out"
"$here/summary.sh" "$out"
