"""Asks a switch all that os-ken can ask, and reads the answers with os-ken: ask_os_ken.py PORT VERSION."""
import socket
import struct
import sys

from os_ken.ofproto import ofproto_parser, ofproto_protocol

port, version = int(sys.argv[1]), int(sys.argv[2])
dp = ofproto_protocol.ProtocolDesc(version=version)
ofp, p = dp.ofproto, dp.ofproto_parser
s = socket.create_connection(("127.0.0.1", port), 5)
s.sendall(struct.pack("!BBHI", version, 0, 8, 0))


def read():
    head = b""
    while len(head) < 8:
        head += s.recv(8 - len(head)) or sys.exit("closed")
    length = struct.unpack("!BBHI", head)[2]
    while len(head) < length:
        head += s.recv(length - len(head)) or sys.exit("closed")
    ver, kind, length, xid = struct.unpack("!BBHI", head[:8])
    return xid, kind, ofproto_parser.msg(dp, ver, kind, length, xid, head)


number = 100


def ask(request, answered=True):
    global number
    number += 1
    request.set_xid(number)
    request.serialize()
    s.sendall(bytes(request.buf))
    if not answered:
        return
    while True:
        xid, kind, answer = read()
        if xid == number:
            break
    if isinstance(answer, p.OFPErrorMsg):
        sys.exit("%s: error %s %s" % (type(request).__name__, answer.type, answer.code))
    print(type(answer).__name__)


ask(p.OFPFeaturesRequest(dp))
ask(p.OFPGetConfigRequest(dp))
ask(p.OFPSetConfig(dp, 0, 128), False)
ask(p.OFPDescStatsRequest(dp, 0))
ask(p.OFPTableStatsRequest(dp, 0))
if version == 1:
    match = p.OFPMatch(in_port=1, dl_type=0x800, nw_proto=6, tp_dst=80)
    actions = [p.OFPActionSetNwSrc(0x0A000001), p.OFPActionOutput(1)]
    ask(p.OFPFlowMod(dp, match, 0, ofp.OFPFC_ADD, actions=actions), False)
    ask(p.OFPFlowStatsRequest(dp, 0, p.OFPMatch(), 0xFF, ofp.OFPP_NONE))
    ask(p.OFPAggregateStatsRequest(dp, 0, p.OFPMatch(), 0xFF, ofp.OFPP_NONE))
    ask(p.OFPPortStatsRequest(dp, 0, ofp.OFPP_NONE))
    ask(p.OFPQueueStatsRequest(dp, 0, ofp.OFPP_ALL, ofp.OFPQ_ALL))
else:
    match = p.OFPMatch(in_port=1, eth_type=0x800, ipv4_src=("10.0.0.0", "255.0.0.0"))
    bucket = p.OFPBucket(1, ofp.OFPP_ANY, ofp.OFPG_ANY, [p.OFPActionOutput(1)])
    ask(p.OFPGroupMod(dp, ofp.OFPGC_ADD, ofp.OFPGT_SELECT, 1, [bucket]), False)
    bands = [p.OFPMeterBandDrop(1000, 100), p.OFPMeterBandDscpRemark(500, 10, 1)]
    ask(p.OFPMeterMod(dp, ofp.OFPMC_ADD, ofp.OFPMF_KBPS, 1, bands), False)
    actions = [p.OFPActionSetField(ipv4_dst="10.1.1.1"), p.OFPActionGroup(1)]
    inst = [p.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions), p.OFPInstructionMeter(1)]
    ask(p.OFPFlowMod(dp, match=match, instructions=inst, priority=9), False)
    ask(p.OFPFlowStatsRequest(dp))
    ask(p.OFPAggregateStatsRequest(dp, 0, ofp.OFPTT_ALL, ofp.OFPP_ANY, ofp.OFPG_ANY, 0, 0, p.OFPMatch()))
    ask(p.OFPPortStatsRequest(dp, 0, ofp.OFPP_ANY))
    ask(p.OFPQueueStatsRequest(dp, 0, ofp.OFPP_ANY, ofp.OFPQ_ALL))
    ask(p.OFPGroupStatsRequest(dp, 0, ofp.OFPG_ALL))
    ask(p.OFPGroupDescStatsRequest(dp, 0))
    ask(p.OFPGroupFeaturesStatsRequest(dp, 0))
    ask(p.OFPMeterStatsRequest(dp, 0, ofp.OFPM_ALL))
    ask(p.OFPMeterConfigStatsRequest(dp, 0, ofp.OFPM_ALL))
    ask(p.OFPMeterFeaturesStatsRequest(dp, 0))
    ask(p.OFPTableFeaturesStatsRequest(dp, 0))
    if version == 4:
        ask(p.OFPPortDescStatsRequest(dp, 0))
        ask(p.OFPQueueGetConfigRequest(dp, ofp.OFPP_ANY))
    else:
        ask(p.OFPPortDescStatsRequest(dp, 0))
        ask(p.OFPTableDescStatsRequest(dp, 0))
        ask(p.OFPQueueDescStatsRequest(dp, 0, ofp.OFPP_ANY, ofp.OFPQ_ALL))
        ask(p.OFPFlowMonitorRequest(dp, 0, 1, ofp.OFPP_ANY, ofp.OFPG_ANY, 1, 255, 0, p.OFPMatch()))
        ask(p.OFPBundleCtrlMsg(dp, 7, ofp.OFPBCT_OPEN_REQUEST, 3, []))
        ask(p.OFPBundleCtrlMsg(dp, 7, ofp.OFPBCT_COMMIT_REQUEST, 3, []))
    ask(p.OFPRoleRequest(dp, ofp.OFPCR_ROLE_MASTER, 1))
    ask(p.OFPGetAsyncRequest(dp))
ask(p.OFPEchoRequest(dp))
ask(p.OFPBarrierRequest(dp))
