/* The interface between DPDK and the Rust side of this crate: functions of our own, and plain structures.
 *
 * DPDK's burst functions and mbuf accessors are inline functions of C, and the layout of its structures changes
 * between releases. Only these files see them. The structures below have fields of fixed width in an order that needs
 * no padding; their sizes are asserted here and in `src/sys.rs`.
 *
 * Functions that return `int` return 0 or a positive value on success, and a negative errno on failure.
 */
#ifndef FY_SHIM_H
#define FY_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define FY_EXPORT __attribute__((visibility("default")))
#define FY_BURST 32

/* What a port can do. */
struct fy_info {
	char driver[64];
	char bus[32];
	uint64_t rss_types;
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	uint32_t max_rx_queues;
	uint32_t max_tx_queues;
	uint32_t table_entries;
	uint32_t key_bytes;
	uint32_t min_mtu;
	uint32_t max_mtu;
	int32_t socket;
	uint32_t reports_removal;
	uint8_t mac[6];
	uint16_t domain; /* of the adapter's embedded switch; UINT16_MAX: none */
};
_Static_assert(sizeof(struct fy_info) == 160, "fy_info");
_Static_assert(offsetof(struct fy_info, max_rx_queues) == 120, "fy_info");

/* How a port is opened. */
struct fy_settings {
	uint64_t rss_types;
	uint32_t queues;
	uint32_t rx_frames;
	uint32_t tx_frames;
	uint32_t mtu;
};
_Static_assert(sizeof(struct fy_settings) == 24, "fy_settings");

enum {
	FY_OURS = 1,      /* one segment, of the given pool, with no other reference */
	FY_HASH = 2,
	FY_MARK = 4,
	FY_BAD_IP = 8,
	FY_BAD_L4 = 16,
};

/* A received frame. */
struct fy_received {
	void *mbuf;
	uint8_t *data;
	uint32_t first_bytes; /* of the first segment */
	uint32_t bytes;       /* of all segments */
	uint32_t hash;
	uint32_t mark;
	uint32_t flags;
	uint32_t reserved;
};
_Static_assert(sizeof(struct fy_received) == 40, "fy_received");

/* A buffer of external memory to be transmitted. */
struct fy_lent {
	uint32_t place;
	uint16_t off;
	uint16_t bytes;
};
_Static_assert(sizeof(struct fy_lent) == 8, "fy_lent");

/* Bytes to be copied and transmitted. */
struct fy_bytes {
	const void *data;
	uint64_t bytes;
};
_Static_assert(sizeof(struct fy_bytes) == 16, "fy_bytes");

/* Counters of a port. struct rte_eth_stats has those of its queues only before DPDK 25.11. */
struct fy_stats {
	uint64_t rx_frames;
	uint64_t tx_frames;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t tx_errors;
	uint64_t rx_no_buffer;
};
_Static_assert(sizeof(struct fy_stats) == 64, "fy_stats");

struct fy_link {
	uint32_t mbps;
	uint32_t is_up;
	uint32_t full_duplex;
	uint32_t reserved;
};
_Static_assert(sizeof(struct fy_link) == 16, "fy_link");

enum { FY_MATCH_VLAN = 1, FY_MATCH_IPV4 = 2, FY_MATCH_IPV6 = 4, FY_MATCH_TCP = 8, FY_MATCH_UDP = 16 };
enum { FY_DO_QUEUE = 1, FY_DO_DROP = 2, FY_DO_MARK = 4, FY_DO_COUNT = 8, FY_DO_PORT = 16 };

/* A rule for the adapter. Numbers are in host order, addresses in network order; a mask of zeros matches all. */
struct fy_rule {
	uint32_t matches;
	uint32_t actions;
	uint32_t queue; /* or the port of FY_DO_PORT */
	uint32_t mark;
	uint32_t priority;
	uint16_t vlan;
	uint16_t vlan_mask;
	uint16_t from_port;
	uint16_t from_port_mask;
	uint16_t to_port;
	uint16_t to_port_mask;
	uint8_t from[16];
	uint8_t from_mask[16];
	uint8_t to[16];
	uint8_t to_mask[16];
};
_Static_assert(sizeof(struct fy_rule) == 96, "fy_rule");
_Static_assert(offsetof(struct fy_rule, from) == 32, "fy_rule");

/* An event. */
struct fy_event {
	uint64_t payload;
	uint32_t flow;
	uint8_t queue;
	uint8_t op;
	uint8_t sched;
	uint8_t priority;
};
_Static_assert(sizeof(struct fy_event) == 16, "fy_event");

enum { FY_NEW = 0, FY_FORWARD = 1, FY_RELEASE = 2 };
enum { FY_ORDERED = 0, FY_ATOMIC = 1, FY_PARALLEL = 2 };

/* What an event device can do. */
struct fy_event_info {
	char driver[64];
	int64_t most_events; /* -1: no limit */
	uint32_t capabilities;
	uint32_t most_queues;
	uint32_t most_ports;
	uint32_t flows;
	uint32_t dequeue_depth;
	uint32_t enqueue_depth;
};
_Static_assert(sizeof(struct fy_event_info) == 96, "fy_event_info");

struct fy_event_queue {
	uint32_t sched;
	uint32_t priority;
	uint32_t single_link;
	uint32_t any_sched;
};
_Static_assert(sizeof(struct fy_event_queue) == 16, "fy_event_queue");

struct fy_event_port {
	uint32_t threshold; /* most events in flight for which NEW is accepted */
	uint32_t depth;
	uint32_t single_link;
	uint32_t no_implicit_release;
	uint64_t queues; /* a bit for each queue that is linked */
};
_Static_assert(sizeof(struct fy_event_port) == 24, "fy_event_port");

#endif
