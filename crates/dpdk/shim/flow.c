/* Rules in the adapter (rte_flow). */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_flow.h>

#define ITEMS 7
#define ACTIONS 5

/* A rule in the form of DPDK. The pointers in `items` and `actions` refer to the other members. */
struct translated {
	struct rte_flow_attr attr;
	struct rte_flow_item items[ITEMS];
	struct rte_flow_action actions[ACTIONS];
	struct rte_flow_item_ethdev in;
	struct rte_flow_item_vlan vlan[2];
	struct rte_flow_item_ipv4 ipv4[2];
	struct rte_flow_item_ipv6 ipv6[2];
	struct rte_flow_item_tcp tcp[2];
	struct rte_flow_item_udp udp[2];
	struct rte_flow_action_ethdev out;
	struct rte_flow_action_queue queue;
	struct rte_flow_action_mark mark;
	struct rte_flow_action_count count;
};

static void item(struct translated *to, int *at, enum rte_flow_item_type type, const void *spec, const void *mask)
{
	to->items[(*at)++] = (struct rte_flow_item){ .type = type, .spec = spec, .mask = mask };
}

/* A rule that sends frames out by another port is one of the embedded switch ("transfer"), which all of its ports share: it
 * names the port whose network or function the frames come from. */
static void translate(uint16_t port, const struct fy_rule *from, struct translated *to)
{
	int items = 0, actions = 0;
	memset(to, 0, sizeof(*to));
	to->attr.priority = from->priority;
	if (from->actions & FY_DO_PORT) {
		to->attr.transfer = 1;
		to->in.port_id = port;
		item(to, &items, RTE_FLOW_ITEM_TYPE_REPRESENTED_PORT, &to->in, &rte_flow_item_ethdev_mask);
	} else {
		to->attr.ingress = 1;
	}
	item(to, &items, RTE_FLOW_ITEM_TYPE_ETH, NULL, NULL);
	if (from->matches & FY_MATCH_VLAN) {
		to->vlan[0].tci = rte_cpu_to_be_16(from->vlan);
		to->vlan[1].tci = rte_cpu_to_be_16(from->vlan_mask);
		item(to, &items, RTE_FLOW_ITEM_TYPE_VLAN, &to->vlan[0], &to->vlan[1]);
	}
	if (from->matches & FY_MATCH_IPV4) {
		memcpy(&to->ipv4[0].hdr.src_addr, from->from, 4);
		memcpy(&to->ipv4[1].hdr.src_addr, from->from_mask, 4);
		memcpy(&to->ipv4[0].hdr.dst_addr, from->to, 4);
		memcpy(&to->ipv4[1].hdr.dst_addr, from->to_mask, 4);
		item(to, &items, RTE_FLOW_ITEM_TYPE_IPV4, &to->ipv4[0], &to->ipv4[1]);
	}
	if (from->matches & FY_MATCH_IPV6) {
		memcpy(&to->ipv6[0].hdr.src_addr, from->from, 16);
		memcpy(&to->ipv6[1].hdr.src_addr, from->from_mask, 16);
		memcpy(&to->ipv6[0].hdr.dst_addr, from->to, 16);
		memcpy(&to->ipv6[1].hdr.dst_addr, from->to_mask, 16);
		item(to, &items, RTE_FLOW_ITEM_TYPE_IPV6, &to->ipv6[0], &to->ipv6[1]);
	}
	if (from->matches & FY_MATCH_TCP) {
		to->tcp[0].hdr.src_port = rte_cpu_to_be_16(from->from_port);
		to->tcp[1].hdr.src_port = rte_cpu_to_be_16(from->from_port_mask);
		to->tcp[0].hdr.dst_port = rte_cpu_to_be_16(from->to_port);
		to->tcp[1].hdr.dst_port = rte_cpu_to_be_16(from->to_port_mask);
		item(to, &items, RTE_FLOW_ITEM_TYPE_TCP, &to->tcp[0], &to->tcp[1]);
	} else if (from->matches & FY_MATCH_UDP) {
		to->udp[0].hdr.src_port = rte_cpu_to_be_16(from->from_port);
		to->udp[1].hdr.src_port = rte_cpu_to_be_16(from->from_port_mask);
		to->udp[0].hdr.dst_port = rte_cpu_to_be_16(from->to_port);
		to->udp[1].hdr.dst_port = rte_cpu_to_be_16(from->to_port_mask);
		item(to, &items, RTE_FLOW_ITEM_TYPE_UDP, &to->udp[0], &to->udp[1]);
	}
	item(to, &items, RTE_FLOW_ITEM_TYPE_END, NULL, NULL);

	if (from->actions & FY_DO_MARK) {
		to->mark.id = from->mark;
		to->actions[actions++] =
			(struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_MARK, .conf = &to->mark };
	}
	if (from->actions & FY_DO_COUNT)
		to->actions[actions++] =
			(struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_COUNT, .conf = &to->count };
	if (from->actions & FY_DO_DROP) {
		to->actions[actions++] = (struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_DROP };
	} else if (from->actions & FY_DO_PORT) {
		to->out.port_id = from->queue;
		to->actions[actions++] = (struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_REPRESENTED_PORT,
								   .conf = &to->out };
	} else if (from->actions & FY_DO_QUEUE) {
		to->queue.index = from->queue;
		to->actions[actions++] =
			(struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to->queue };
	} else {
		to->actions[actions++] = (struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_PASSTHRU };
	}
	to->actions[actions] = (struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_END };
}

/* The port that a rule is given to: for rules of the embedded switch, its transfer proxy. */
FY_EXPORT uint16_t fy_flow_proxy(uint16_t port, const struct fy_rule *rule)
{
	struct rte_flow_error error = { 0 };
	uint16_t proxy = port;
	if ((rule->actions & FY_DO_PORT) && rte_flow_pick_transfer_proxy(port, &proxy, &error) != 0)
		return port;
	return proxy;
}

static int refused(const struct rte_flow_error *error, char *why, uint32_t room)
{
	int code = rte_errno > 0 ? rte_errno : EINVAL;
	snprintf(why, room, "%s", error->message != NULL ? error->message : rte_strerror(code));
	return -code;
}

FY_EXPORT int fy_flow_validate(uint16_t port, const struct fy_rule *rule, char *why, uint32_t room)
{
	struct translated to;
	struct rte_flow_error error = { 0 };
	translate(port, rule, &to);
	if (rte_flow_validate(fy_flow_proxy(port, rule), &to.attr, to.items, to.actions, &error) == 0)
		return 0;
	return refused(&error, why, room);
}

FY_EXPORT void *fy_flow_create(uint16_t port, const struct fy_rule *rule, char *why, uint32_t room, int *code)
{
	struct translated to;
	struct rte_flow_error error = { 0 };
	translate(port, rule, &to);
	struct rte_flow *flow = rte_flow_create(fy_flow_proxy(port, rule), &to.attr, to.items, to.actions, &error);
	*code = flow == NULL ? refused(&error, why, room) : 0;
	return flow;
}

/* `port` is that of fy_flow_proxy, here and below. */
FY_EXPORT int fy_flow_destroy(uint16_t port, struct rte_flow *flow, char *why, uint32_t room)
{
	struct rte_flow_error error = { 0 };
	if (rte_flow_destroy(port, flow, &error) == 0)
		return 0;
	return refused(&error, why, room);
}

/* Writes frames and bytes to `hits`; -1 for a count that the driver does not have. */
FY_EXPORT int fy_flow_query(uint16_t port, struct rte_flow *flow, int64_t *hits, char *why, uint32_t room)
{
	struct rte_flow_error error = { 0 };
	struct rte_flow_query_count count = { 0 };
	const struct rte_flow_action actions[] = {
		{ .type = RTE_FLOW_ACTION_TYPE_COUNT },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	if (rte_flow_query(port, flow, actions, &count, &error) != 0)
		return refused(&error, why, room);
	hits[0] = count.hits_set ? (int64_t)count.hits : -1;
	hits[1] = count.bytes_set ? (int64_t)count.bytes : -1;
	return 0;
}
