#!/usr/bin/env python3
"""Encapsulations this kernel may lack, as user-space interfaces.

    shim.py vlan  IFNAME --parent DEV --mac MAC --tags 0x8100:100 [0x88a8:200 ...]
    shim.py gre   IFNAME --local A --remote B [--key N]
    shim.py nvgre IFNAME --local A --remote B --key N --mac MAC
    shim.py 6in4  IFNAME --local A --remote B

      kernel stack -- TAP or TUN "IFNAME" -- this process -- parent device or raw socket

A VLAN interface puts 802.1Q tags (outermost first) on what it sends through DEV and takes back what
arrives with exactly these tags. GRE is RFC 2784 with the key of RFC 2890, NVGRE is RFC 7637 (key =
VSID << 8 | flow id), 6in4 is RFC 4213. The IPv4 header around a tunnel is the kernel's own.
Configure the interface with ip(8) once this process has printed "ready".
"""
import argparse
import fcntl
import select
import socket
import struct
import sys
import os

TUNSETIFF, IFF_TUN, IFF_TAP, IFF_NO_PI = 0x400454CA, 1, 2, 0x1000
SOL_PACKET, PACKET_AUXDATA, ETH_P_ALL, OUTGOING = 263, 8, 3, 4
TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6


def open_tun(name, mode):
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), mode | IFF_NO_PI))
    return fd


def receive_with_tags(sock):
    """One frame with its outermost tag back in place: the kernel takes it off before we see it."""
    frame, control, _, address = sock.recvmsg(65536, 256)
    if address[2] == OUTGOING:
        return b""
    for level, kind, data in control:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", data[:20])
            if status & TP_STATUS_VLAN_VALID:
                tpid = tpid if status & TP_STATUS_VLAN_TPID_VALID else 0x8100
                frame = frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
    return frame


def vlan(args, tap):
    tags = b"".join(struct.pack("!HH", *(int(x, 0) for x in tag.split(":"))) for tag in args.tags)
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.bind((args.parent, ETH_P_ALL))
    wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    mine = bytes.fromhex(args.mac.replace(":", ""))

    def inward():
        frame = receive_with_tags(wire)
        end = 12 + len(tags)
        for_us = frame[:6] == mine or (frame and frame[0] & 1)
        # A longer stack of tags belongs to another interface.
        if for_us and frame[12:end] == tags and frame[end:end + 2] not in (b"\x81\x00", b"\x88\xa8"):
            os.write(tap, frame[:12] + frame[end:])

    def outward():
        frame = os.read(tap, 65536)
        wire.send(frame[:12] + tags + frame[12:])

    return wire, inward, outward


def tunnel(args, tun):
    number = 41 if args.kind == "6in4" else 47
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, number)
    raw.bind((args.local, 0))
    raw.connect((args.remote, 0))
    key = b"" if args.key is None else struct.pack("!I", args.key)
    flags = 0x2000 if key else 0

    def header(payload):
        if args.kind == "6in4":
            return b""
        if args.kind == "nvgre":
            protocol = 0x6558
        else:
            protocol = 0x86DD if payload[0] >> 4 == 6 else 0x0800
        return struct.pack("!HH", flags, protocol) + key

    def inward():
        packet = raw.recv(65536)
        inner = packet[4 * (packet[0] & 15):]
        skip = 0 if args.kind == "6in4" else 4 + len(key)
        if args.kind == "6in4" or inner[:2] + inner[4:skip] == struct.pack("!H", flags) + key:
            os.write(tun, inner[skip:])

    def outward():
        payload = os.read(tun, 65536)
        try:
            raw.send(header(payload) + payload)
        except OSError:
            pass  # too big for the path, or no neighbour yet: lost, as on a wire

    return raw, inward, outward


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["vlan", "gre", "nvgre", "6in4"])
    parser.add_argument("name")
    parser.add_argument("--parent")
    parser.add_argument("--mac")
    parser.add_argument("--tags", nargs="+")
    parser.add_argument("--local")
    parser.add_argument("--remote")
    parser.add_argument("--key", type=lambda text: int(text, 0))
    args = parser.parse_args()
    tap = open_tun(args.name, IFF_TAP if args.kind in ("vlan", "nvgre") else IFF_TUN)
    wire, inward, outward = (vlan if args.kind == "vlan" else tunnel)(args, tap)
    print("ready", flush=True)
    while True:
        for ready in select.select([wire, tap], [], [])[0]:
            try:
                inward() if ready is wire else outward()
            except OSError as error:
                # The interface is still down, or a frame is larger than the device: say it, carry on.
                print(f"{args.name}: {error}", file=sys.stderr)


main()
