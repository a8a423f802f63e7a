"""The other side of tests/os_ken.rs: what os-ken makes of a message.

Prints the package's own vectors (`vector NAME HEX`), then for each line of hex on stdin what its codec reads and writes again
(`same`, `other HEX`, `read` for what it does not write, or `error WORDS`).
"""

import logging
import os
import signal
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import os_ken
from os_ken.ofproto import ofproto_parser, ofproto_protocol
from os_ken.ofproto import ofproto_v1_0_parser, ofproto_v1_3_parser, ofproto_v1_4_parser  # noqa: F401

base = os.path.join(os.path.dirname(os_ken.__file__), "tests", "packet_data")
for part in ("of10", "of13", "of14"):
    folder = os.path.join(base, part)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(".packet"):
            with open(os.path.join(folder, name), "rb") as file:
                print("vector", f"{part}/{name}", file.read().hex())
print("end")


def late(*_):
    raise TimeoutError("it does not come back")


# Some of its loops take a length of 0 for a step.
signal.signal(signal.SIGALRM, late)
for line in sys.stdin:
    if not line.strip():
        continue
    wire = bytes.fromhex(line)
    version, kind = wire[0], wire[1]
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        datapath = ofproto_protocol.ProtocolDesc(version=version)
        xid = int.from_bytes(wire[4:8], "big")
        message = ofproto_parser.msg(datapath, version, kind, len(wire), xid, wire)
        if message is None:
            raise ValueError("not read")
        message.buf = None
        message.serialize()
        again = bytes(message.buf)
        # Most of what a switch sends it reads and does not write: then there is only a header.
        written = len(again) > 8 or len(wire) == 8
        print("same" if again == wire else "other " + again.hex() if written else "read")
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Exception as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("error", type(error).__name__, str(error).replace("\n", " ")[:80])
