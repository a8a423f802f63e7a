#!/usr/bin/env python3
"""memcached load: many parallel TCP connections, each asking one question at a time.

    memcached_load.py SERVER --sources A1,A2,... --connections N --requests R --seed S

Connections are spread over the source addresses. Keys follow a Zipf-like law, values are 64 bytes as
in Intel's Flow Director paper (10 clients x 12 threads x 1 connection = 120 connections), one request
in ten is a set. Connection c asks R x (1 + c mod 7) / 4 times: some talk much, some little. Fails
when any answer is not what the protocol (memcached's protocol.txt) allows.
"""
import argparse
import asyncio
import random

KEYS, VALUE_BYTES = 1000, 64


async def get(reader, writer, key):
    writer.write(f"get {key}\r\n".encode())
    line = await reader.readline()
    if line == b"END\r\n":
        return 0
    if not line.startswith(f"VALUE {key} 0 {VALUE_BYTES}".encode()):
        raise RuntimeError(f"answer to get {key}: {line!r}")
    await reader.readexactly(VALUE_BYTES + 2 + len(b"END\r\n"))
    return 1


async def put(reader, writer, key, value):
    writer.write(f"set {key} 0 0 {VALUE_BYTES}\r\n{value}\r\n".encode())
    line = await reader.readline()
    if line != b"STORED\r\n":
        raise RuntimeError(f"answer to set {key}: {line!r}")


async def talk(args, number, sources):
    dice = random.Random(args.seed * 1000 + number)
    await asyncio.sleep(dice.random() * 0.5)
    reader, writer = await asyncio.open_connection(
        args.server, 11211, local_addr=(sources[number % len(sources)], 0))
    hits = 0
    for _ in range(max(1, args.requests * (1 + number % 7) // 4)):
        key = f"item:{int(KEYS ** dice.random()):06d}"
        if dice.random() < 0.1:
            await put(reader, writer, key, f"{dice.getrandbits(4 * VALUE_BYTES):0{VALUE_BYTES}x}")
        else:
            hits += await get(reader, writer, key)
        # Requests come in bursts with pauses between them.
        await asyncio.sleep(0 if dice.random() < 0.7 else dice.expovariate(1 / args.pause))
    writer.close()
    await writer.wait_closed()
    return hits


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("--sources", required=True)
    parser.add_argument("--connections", type=int, default=120)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.5, help="mean pause between bursts, seconds")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sources = args.sources.split(",")
    hits = await asyncio.gather(*(talk(args, number, sources) for number in range(args.connections)))
    print(f"{args.connections} connections, {sum(hits)} hits")


asyncio.run(main())
