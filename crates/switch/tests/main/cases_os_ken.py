"""The cases of os-ken's switch tester (Apache-2.0, inside its package), one line each, in hex.

    case FILE DESCRIPTION
    mod MESSAGE                 installed before
    in FRAME                    then one of: out FRAME | punt FRAME | miss TABLE..
    packets PPS SECONDS FRAME.. then one or more: through KBPS|- PPS|- MESSAGE
"""
import glob
import json
import logging
import os
import random
import sys

os.environ.setdefault("OSKEN_HUB_TYPE", "eventlet")
logging.disable(logging.CRITICAL)
from os_ken.tests.switch import tester  # noqa: E402
from os_ken import cfg  # noqa: E402
from os_ken.ofproto import ofproto_v1_0, ofproto_v1_3, ofproto_v1_4  # noqa: E402

versions = {"of10": ofproto_v1_0, "of13": ofproto_v1_3, "of14": ofproto_v1_4}
name = sys.argv[1]
cfg.CONF([], project="os_ken", default_config_files=[])
tester.OfTester.target_ver = versions[name].OFP_VERSION
tester.OfTester.tester_ver = ofproto_v1_3.OFP_VERSION
random.seed(1)
out = sys.stdout


def packet(texts):
    data = eval("/".join(texts), vars(tester))
    data.serialize()
    return bytes(data.data).hex()


root = os.path.join(os.path.dirname(tester.__file__), name)
for path in sorted(glob.glob(root + "/**/*.json", recursive=True)):
    for test in tester.TestFile(path, logging.getLogger()).tests:
        out.write("case %s %s\n" % (os.path.relpath(path, root), test.description))
        for mod in test.prerequisite:
            out.write("mod %s\n" % bytes(mod.buf).hex())
        for one in test.tests:
            if "ingress" in one:
                out.write("in %s\n" % bytes(one["ingress"]).hex())
            else:
                many = one["packets"]
                count = 3000 if many["randomize"] else 1
                frames = [packet(many["packet_text"]) for _ in range(count)]
                out.write("packets %s %s %s\n" % (many["pktps"], many["duration_time"], " ".join(frames)))
            if "egress" in one:
                out.write("out %s\n" % bytes(one["egress"]).hex())
            if "PACKET_IN" in one:
                out.write("punt %s\n" % bytes(one["PACKET_IN"]).hex())
            if "table-miss" in one:
                out.write("miss %s\n" % " ".join(map(str, one["table-miss"])))
            for through in one.get("throughput", []):
                mod = through[tester.KEY_FLOW]
                mod.serialize()
                out.write("through %s %s %s\n" % (through["kbps"] or "-", through["pktps"] or "-", bytes(mod.buf).hex()))
