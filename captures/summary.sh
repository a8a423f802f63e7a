#!/usr/bin/env bash
# Counts what is in a capture, with tshark and capinfos: the figures in README.md.
#
#   captures/summary.sh [CAPTURE]
set -euo pipefail
export LC_ALL=C TZ=UTC
file=${1:-$(dirname "$0")/yard.pcap}
flows=$(mktemp)
trap 'rm -f "$flows"' EXIT

fields() { tshark -n -r "$file" -Y "$1" -T fields "${@:2}" 2>/dev/null; }
count() { printf '  %-44s %7d\n' "$1" "$(fields "$2" -e frame.number | wc -l)"; }

capinfos -csdulE -MSr -T "$file" | tr '\t' ' '
echo "packets (one packet may count in several lines)"
count "IPv4 straight after Ethernet"        "frame[12:2] == 08:00"
count "IPv6 straight after Ethernet"        "frame[12:2] == 86:dd"
count "ARP"                                 "arp"
count "TCP, in the open or inside"          "tcp"
count "  SYN without ACK"                   "tcp.flags.syn == 1 && tcp.flags.ack == 0"
count "  RST"                               "tcp.flags.reset == 1"
count "UDP, in the open or inside"          "udp"
count "ICMP"                                "icmp"
count "  destination unreachable"           "icmp.type == 3"
count "ICMPv6"                              "icmpv6"
count "  neighbour discovery"               "icmpv6.type >= 133 && icmpv6.type <= 137"
count "  packet too big"                    "icmpv6.type == 2"
count "IGMP"                                "igmp"
count "IPv4 fragments"                      "ip.flags.mf == 1 || ip.frag_offset > 0"
count "IPv6 fragments"                      "ipv6.fraghdr"
count "IPv6 hop-by-hop options"             "ipv6.hopopts"
count "802.1Q, one tag"                     "vlan && !ieee8021ad"
count "802.1ad + 802.1Q (QinQ)"             "ieee8021ad"
count "VXLAN over IPv4"                     "vxlan.vni == 100"
count "VXLAN over IPv6"                     "vxlan.vni == 200"
count "GRE"                                 "gre && !(gre.proto == 0x6558)"
count "NVGRE"                               "gre.proto == 0x6558"
count "6in4"                                "ip.proto == 41"
count "memcached, port 11211"               "tcp.port == 11211"
count "web, ports 80 and 443"               "tcp.port == 80 || tcp.port == 443"
count "DNS, port 53"                        "udp.port == 53 || tcp.port == 53"
count "iperf3 TCP, ports 5201-5203 and 5206" "tcp.port in {5201,5202,5203,5206}"
count "iperf3 UDP, ports 5204 and 5205"     "udp.port in {5204,5205}"

# A flow is one direction of an outermost 5-tuple (3-tuple where there are no ports; a fragment's are not read).
echo "flows: outermost addresses, protocol and, where not a fragment, TCP or UDP ports; each direction its own"
fields "ip || ipv6" -E occurrence=f -e ip.src -e ipv6.src -e ip.dst -e ipv6.dst -e ip.proto -e ipv6.nxt \
    -e tcp.srcport -e tcp.dstport -e udp.srcport -e udp.dstport -e ip.flags.mf -e ip.frag_offset |
    awk -F'\t' -v out="$flows" '{
        proto = $5 != "" ? $5 : $6; ports = ""
        if ($1 != "") { src = $1; dst = $3; v6 = 0 } else { src = $2; dst = $4; v6 = 1 }
        whole = $11 != 1 && $11 != "True" && ($12 == "" || $12 == 0)
        if (whole && proto == 6) ports = $7 " " $8
        if (whole && proto == 17) ports = $9 " " $10
        flow = src " " dst " " proto " " ports; packets[flow]++
    } END {
        for (flow in packets) { split(flow, f, " "); n++; per[f[3]]++; print packets[flow], flow | ("sort -rn >" out) }
        printf "  %d flows: %d TCP, %d UDP, %d other\n", n, per[6], per[17], n - per[6] - per[17]
    }'
awk '{ total += $1; n++; all[n] = $1 } END { for (i = 1; i <= 10; i++) top += all[i];
    printf "  the ten largest carry %.1f %% of the packets; the median flow has %d\n", 100 * top / total, all[int((n + 1) / 2)] }' \
    "$flows"

echo "checks"
badsums=$(tshark -n -r "$file" -o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE -o udp.check_checksum:TRUE \
    -Y 'ip.checksum.status == "Bad" || tcp.checksum.status == "Bad" || udp.checksum.status == "Bad" || icmp.checksum.status == "Bad" || icmpv6.checksum.status == "Bad"' \
    -T fields -e frame.number 2>/dev/null | wc -l)
echo "  wrong checksums (where the whole packet is here): $badsums"
echo "  timestamps that go back: $(fields frame -e frame.time_epoch | awk '$1 < last { n++ } { last = $1 } END { print n + 0 }')"
