"""A learning switch on os-ken, controlled by a test.

It writes events to the file `events` and reads commands from the file `commands`. Both have one JSON value
per line. `LEARNER_IDLE` is the idle timeout of its flows, in seconds.
"""

import json
import os

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import hub
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3

IDLE = int(os.environ.get("LEARNER_IDLE", "2"))


class Learner(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.events = open("events", "a", buffering=1)
        self.switch = None
        self.ports = {}
        hub.spawn(self.run_commands)

    def report(self, event, **what):
        self.events.write(json.dumps({"event": event, **what}) + "\n")

    def run_commands(self):
        """Runs the commands in order."""
        with open("commands") as commands:
            rest = ""
            while True:
                rest += commands.read()
                *lines, rest = rest.split("\n")
                for line in lines:
                    word, *arguments = json.loads(line)
                    getattr(self, "do_" + word)(*arguments)
                hub.sleep(0.02)

    # Commands.

    def do_role(self, name, generation):
        of = self.switch.ofproto
        role = getattr(of, "OFPCR_ROLE_" + name)
        self.switch.send_msg(self.switch.ofproto_parser.OFPRoleRequest(self.switch, role, generation))

    def do_barrier(self):
        self.switch.send_msg(self.switch.ofproto_parser.OFPBarrierRequest(self.switch))

    def do_drop(self, mac):
        """Adds a flow without timeout that drops frames to an address."""
        match = self.switch.ofproto_parser.OFPMatch(eth_dst=mac)
        self.flow(100, match, [])

    def do_send(self, port, data):
        """Sends a frame out of a port, or of all (`ALL`)."""
        of, parser = self.switch.ofproto, self.switch.ofproto_parser
        out = parser.OFPActionOutput(of.OFPP_ALL if port == "ALL" else port)
        self.out(of.OFPP_CONTROLLER, [out], bytes.fromhex(data))

    def do_table(self, data, in_port):
        """Sends a frame through the tables."""
        of, parser = self.switch.ofproto, self.switch.ofproto_parser
        self.out(in_port, [parser.OFPActionOutput(of.OFPP_TABLE)], bytes.fromhex(data))

    def do_down(self, port, down):
        """Disables or enables a port."""
        of, parser = self.switch.ofproto, self.switch.ofproto_parser
        bit = of.OFPPC_PORT_DOWN
        self.switch.send_msg(
            parser.OFPPortMod(self.switch, port, self.ports[port], bit if down else 0, bit, 0))

    # Messages to the switch.

    def flow(self, priority, match, actions, idle=0, flags=0, buffer=None):
        of, parser = self.switch.ofproto, self.switch.ofproto_parser
        apply = [parser.OFPInstructionActions(of.OFPIT_APPLY_ACTIONS, actions)]
        self.switch.send_msg(parser.OFPFlowMod(
            datapath=self.switch, priority=priority, match=match, instructions=apply, idle_timeout=idle, flags=flags,
            buffer_id=of.OFP_NO_BUFFER if buffer is None else buffer))

    def out(self, in_port, actions, data):
        self.switch.send_msg(self.switch.ofproto_parser.OFPPacketOut(
            datapath=self.switch, buffer_id=self.switch.ofproto.OFP_NO_BUFFER, in_port=in_port, actions=actions,
            data=data))

    # Events.

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, ev):
        self.switch = ev.msg.datapath
        of, parser = self.switch.ofproto, self.switch.ofproto_parser
        self.seen = {}
        to_us = [parser.OFPActionOutput(of.OFPP_CONTROLLER, of.OFPCML_NO_BUFFER)]
        self.flow(0, parser.OFPMatch(), to_us)
        self.switch.send_msg(parser.OFPPortDescStatsRequest(self.switch, 0))
        self.report("up", datapath=self.switch.id, tables=ev.msg.n_tables)

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def down(self, ev):
        self.report("down")

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, MAIN_DISPATCHER)
    def port_desc(self, ev):
        self.ports = {port.port_no: port.hw_addr for port in ev.msg.body}
        self.report("ports", names=sorted(port.name.decode() for port in ev.msg.body))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, ev):
        msg = ev.msg
        of, parser = self.switch.ofproto, self.switch.ofproto_parser
        in_port = msg.match["in_port"]
        eth = packet.Packet(msg.data).get_protocol(ethernet.ethernet)
        self.report("packet_in", port=in_port, reason=msg.reason, bytes=len(msg.data), whole=msg.total_len,
                  type=eth.ethertype)
        self.seen[eth.src] = in_port
        port = self.seen.get(eth.dst, of.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(port)]
        if port != of.OFPP_FLOOD:
            match = parser.OFPMatch(in_port=in_port, eth_dst=eth.dst, eth_src=eth.src)
            self.flow(1, match, actions, idle=IDLE, flags=of.OFPFF_SEND_FLOW_REM)
        self.out(in_port, actions, msg.data)

    @set_ev_cls(ofp_event.EventOFPFlowRemoved, MAIN_DISPATCHER)
    def flow_removed(self, ev):
        msg = ev.msg
        self.report("flow_removed", reason=msg.reason, packets=msg.packet_count, bytes=msg.byte_count,
                  seconds=msg.duration_sec, idle=msg.idle_timeout, priority=msg.priority)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port_status(self, ev):
        port = ev.msg.desc
        self.report("port_status", reason=ev.msg.reason, port=port.port_no, state=port.state, config=port.config)

    @set_ev_cls(ofp_event.EventOFPRoleReply, MAIN_DISPATCHER)
    def role(self, ev):
        names = {value: name for name, value in vars(ev.msg.datapath.ofproto).items()
                 if name.startswith("OFPCR_ROLE_")}
        self.report("role", role=names[ev.msg.role][11:], generation=ev.msg.generation_id)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def barrier(self, ev):
        self.report("barrier")

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def error(self, ev):
        self.report("error", type=ev.msg.type, code=ev.msg.code)
