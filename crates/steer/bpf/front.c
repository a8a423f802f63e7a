/* XDP in front of a yard: frames of flows that the yard has answered before are answered here.
 *
 *   frame -> key, masked -> entry -> plain, and nothing of the flow is in the yard? -> changed, sent by its port
 *                             |                     |
 *                             +---- no entry -------+------ no: to the port's own program, which gives it to the yard
 *
 * The yard writes the maps `answers`, `config` and `drained`, and this program the maps `counts` and `gates`; both sides
 * see all of them as memory. docs/decisions/0058 says why frames of a flow stay in order. */
#include "kernel.h"

#define MAP_PROG_ARRAY 3
#define MAP_DEVMAP 14
#define MMAPABLE 1024
#define XDP_TX 3

static long (*tail_call)(void *ctx, void *map, u32 index) = (void *)12;
static u64 (*coarse_ns)(void) = (void *)160;
static long (*adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;

#define PORTS_MOST 32
#define QUEUES_MOST 64

/* FlowKey of crates/frame. */
struct flow {
	u32 src[4], dst[4];
	u16 sport, dport;
	u8 proto, frag, tos, tcp_flags;
	u8 eth_dst[6], eth_src[6];
	u16 eth_type, vlan_tci, in_port, flex;
	u32 tunnel_id;
} __attribute__((aligned(8)));

struct config {
	u64 mask[8];	   /* of keys */
	u32 ports;	   /* number of ports */
	u32 changes;	   /* whether frames with these TCP flags change something in the yard */
	u32 index[PORTS_MOST]; /* of the interface of each port; 0: none */
	u32 longest[PORTS_MOST]; /* frame that the interface takes now; 0: it takes none */
};

/* What is done with the frames of an entry. */
#define HOP 1	 /* the TTL is decremented */
#define MACS 2	 /* the MAC addresses are set */
#define SOURCE 4 /* the source address is set, and the source port if SET_PORT is set, too */
#define TARGET 8 /* ... the destination */
#define SET_PORT 16
#define TUNNEL4 32 /* a header of IPv4 is put in front */
#define TUNNEL6 64

struct answer {
	u64 since; /* nothing is answered before this time has drained */
	u32 flags, label;
	u16 out;   /* number of the port */
	u16 mtu;   /* longest packet, without the tunnel's header; 0: any */
	u16 port;  /* in network order */
	u8 dst_mac[6], src_mac[6];
	u16 reserved;
	u32 address[4]; /* the new one, or the destination of the tunnel */
	u32 from[4];	/* the source of the tunnel */
};

struct counts {
	u64 packets, bytes; /* answered */
	u64 last;	    /* time of the last frame that was answered, to a tick of the kernel's clock */
	u64 passed;	    /* time of the last frame that went to the yard */
};

/* Frames that arrived, that were answered, and of which nothing more is written, by port and queue. */
struct gate {
	u64 entered, answered, left, reserved[5];
};

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct config);
	NUMBER(max_entries, 1);
	NUMBER(map_flags, MMAPABLE);
} config SEC(".maps");

/* Of frames that arrived before this time none is in the yard. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, u64);
	NUMBER(max_entries, 1);
	NUMBER(map_flags, MMAPABLE);
} drained SEC(".maps");

/* The value is the number of the answer. The loader sets the lengths of this map and the next two. */
struct {
	NUMBER(type, MAP_HASH);
	TYPE(key, struct flow);
	TYPE(value, u32);
	NUMBER(max_entries, 64);
} flows SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct answer);
	NUMBER(max_entries, 64);
	NUMBER(map_flags, MMAPABLE);
} answers SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct counts);
	NUMBER(max_entries, 64);
	NUMBER(map_flags, MMAPABLE);
} counts SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct gate);
	NUMBER(max_entries, PORTS_MOST *QUEUES_MOST);
	NUMBER(map_flags, MMAPABLE);
} gates SEC(".maps");

struct {
	NUMBER(type, MAP_DEVMAP);
	NUMBER(key_size, 4);
	NUMBER(value_size, 8);
	NUMBER(max_entries, PORTS_MOST);
} devices SEC(".maps");

/* The program of each port. */
struct {
	NUMBER(type, MAP_PROG_ARRAY);
	NUMBER(key_size, 4);
	NUMBER(value_size, 4);
	NUMBER(max_entries, PORTS_MOST);
} behind SEC(".maps");

/* Where the headers of a frame are. */
struct place {
	u32 l3, l4, length; /* length: of the IP packet */
	u32 is_plain;	    /* untagged, without options, not a fragment, all lengths and the header's checksum right */
	u32 is_ipv6;
};

INLINE u16 fold(u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (u16)sum;
}

INLINE u64 sum32(u32 word)
{
	return (word >> 16) + (word & 0xffff);
}

/* The checksum of an IPv4 header without options: 0 if the one in it is right. */
INLINE u16 header_sum(const u32 *header)
{
	u64 sum = 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < 5; i++)
		sum += header[i];
	return ~fold(sum);
}

/* The transport of a packet: its ports and flags, and whether its lengths are right. */
INLINE int transport(const u8 *data, const u8 *end, struct place *p, struct flow *f, u32 payload)
{
	const u8 *t = data + p->l4;
	if (t + 8 > end)
		return 0;
	f->sport = be16(t);
	f->dport = be16(t + 2);
	if (f->proto == 17) {
		u32 length = be16(t + 4);
		p->is_plain &= length >= 8 && length <= payload;
		return 1;
	}
	if (t + 20 > end)
		return 0;
	f->tcp_flags = t[13];
	u32 header = (t[12] >> 4) * 4;
	p->is_plain &= header >= 20 && header <= payload && !(t[12] & 15);
	return 1;
}

INLINE int ipv4(const u8 *data, const u8 *end, struct place *p, struct flow *f)
{
	const u8 *h = data + p->l3;
	if (h + 20 > end)
		return 0;
	u32 header = (h[0] & 15) * 4, word = be16(h + 6);
	f->proto = h[9];
	if (header < 20 || word & 0x1fff || (f->proto != 6 && f->proto != 17))
		return 0;
	p->length = be16(h + 2);
	f->tos = h[1];
	f->src[0] = *(const u32 *)(h + 12);
	f->dst[0] = *(const u32 *)(h + 16);
	p->l4 = p->l3 + header;
	p->is_plain &= h[0] == 0x45 && !(word & 0x2000) && h + p->length <= end && p->length >= 20 &&
		       header_sum((const u32 *)h) == 0;
	return transport(data, end, p, f, p->length - 20);
}

INLINE int ipv6(const u8 *data, const u8 *end, struct place *p, struct flow *f)
{
	const u8 *h = data + p->l3;
	if (h + 40 > end)
		return 0;
	u32 payload = be16(h + 4);
	f->proto = h[6];
	if (h[0] >> 4 != 6 || (f->proto != 6 && f->proto != 17))
		return 0;
	f->tos = (u8)(be16(h) >> 4);
	__builtin_memcpy(f->src, h + 8, 16);
	__builtin_memcpy(f->dst, h + 24, 16);
	p->l4 = p->l3 + 40;
	p->is_ipv6 = 1;
	p->length = 40 + payload;
	p->is_plain &= payload && h + p->length <= end;
	return transport(data, end, p, f, payload);
}

/* The key of a frame of TCP or UDP, as far as the ports; 0 if it is another one. */
INLINE int parse(const u8 *data, const u8 *end, struct place *p, struct flow *f)
{
	if (data + 22 > end)
		return 0;
	__builtin_memcpy(f->eth_dst, data, 12);
	u32 type = be16(data + 12);
	p->l3 = 14;
	p->is_plain = !(data[0] & 1);
#pragma clang loop unroll(full)
	for (int i = 0; i < 2; i++) {
		if (type != 0x8100 && type != 0x88a8)
			break;
		if (i == 0)
			f->vlan_tci = be16(data + 14);
		type = be16(data + 16 + 4 * i);
		p->l3 += 4;
		p->is_plain = 0;
	}
	f->eth_type = type;
	if (type == 0x0800)
		return ipv4(data, end, p, f);
	if (type == 0x86dd)
		return ipv6(data, end, p, f);
	return 0;
}

/* The number of the port that received the frame. */
INLINE u32 port_of(const struct config *c, u32 index)
{
	for (u32 i = 0; i < PORTS_MOST; i++) {
		if (i >= c->ports)
			break;
		if (c->index[i] == index)
			return i;
	}
	return PORTS_MOST;
}

/* Sets an address, and adds to `sum` what this changes in checksums over it (RFC 1624, equation 3). */
INLINE u64 set_address(u8 *at, const u32 *address, int is_ipv6)
{
	u32 *field = (u32 *)at;
	u64 sum = 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < 4; i++) {
		if (i && !is_ipv6)
			break;
		sum += sum32(~field[i]) + sum32(address[i]);
		field[i] = address[i];
	}
	return sum;
}

/* Updates a checksum. A UDP checksum of 0 means that there is none. */
INLINE void update(u16 *check, u64 sum, int is_udp)
{
	if (is_udp && !*check)
		return;
	u16 new = ~fold((u16) ~*check + sum);
	*check = is_udp && !new ? 0xffff : new;
}

/* Changes addresses and ports. */
INLINE int translate(u8 *data, const u8 *end, const struct place *p, const struct answer *a, u32 proto)
{
	u32 is_source = a->flags & SOURCE, is_udp = proto == 17;
	u8 *h = data + 14, *t = data + (p->is_ipv6 ? 54 : 34);
	if (t + 8 > end || (!is_udp && t + 20 > end))
		return 0;
	u64 sum;
	if (p->is_ipv6) {
		sum = set_address(h + (is_source ? 8 : 24), a->address, 1);
	} else {
		sum = set_address(h + (is_source ? 12 : 16), a->address, 0);
		update((u16 *)(h + 10), sum, 0);
	}
	if (a->flags & SET_PORT) {
		u16 *port = (u16 *)(t + (is_source ? 0 : 2));
		sum += (u16) ~*port + a->port;
		*port = a->port;
	}
	update((u16 *)(t + (is_udp ? 6 : 16)), sum, is_udp);
	return 1;
}

INLINE void one_hop(u8 *h, int is_ipv6)
{
	if (is_ipv6) {
		h[7]--;
		return;
	}
	u16 *word = (u16 *)(h + 8), old = *word;
	h[8]--;
	update((u16 *)(h + 10), (u64)(u16)~old + *word, 0);
}

/* Puts a tunnel's header between the Ethernet header and the packet; 0 if there is no room. */
INLINE int tunnel(struct xdp_md *ctx, const struct place *p, const struct answer *a, u64 length)
{
	int is_outer6 = (a->flags & TUNNEL6) != 0, head = is_outer6 ? 40 : 20;
	int padding = (int)(14 + p->length) - (int)length;
	if (padding < 0 && adjust_tail(ctx, padding))
		return 0;
	if (adjust_head(ctx, -head))
		return 0;
	u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
	if (data + 14 + 20 + 8 > end || (is_outer6 && data + 14 + 40 + 8 > end))
		return 0;
	u8 *inner = is_outer6 ? data + 14 + 40 : data + 14 + 20, *h = data + 14;
	u32 tos, id, after = p->length + head;
	u16 flags;
	if (p->is_ipv6) {
		tos = (u8)(be16(inner) >> 4);
		id = 0;
		flags = 0x4000;
	} else {
		tos = inner[1];
		id = be16(inner + 4);
		flags = be16(inner + 6) & 0x4000;
	}
	u8 proto = p->is_ipv6 ? 41 : 4;
	if (is_outer6) {
		u32 first = 6u << 28 | tos << 20 | a->label;
		*(u32 *)h = __builtin_bswap32(first);
		*(u16 *)(h + 4) = __builtin_bswap16((u16)p->length);
		h[6] = proto;
		h[7] = 64;
		__builtin_memcpy(h + 8, a->from, 16);
		__builtin_memcpy(h + 24, a->address, 16);
		*(u16 *)(data + 12) = __builtin_bswap16(0x86dd);
		return 1;
	}
	h[0] = 0x45;
	h[1] = tos;
	*(u16 *)(h + 2) = __builtin_bswap16((u16)after);
	*(u16 *)(h + 4) = __builtin_bswap16((u16)id);
	*(u16 *)(h + 6) = __builtin_bswap16(flags);
	h[8] = 64;
	h[9] = proto;
	*(u16 *)(h + 10) = 0;
	*(u32 *)(h + 12) = a->from[0];
	*(u32 *)(h + 16) = a->address[0];
	*(u16 *)(h + 10) = header_sum((const u32 *)h);
	*(u16 *)(data + 12) = __builtin_bswap16(0x0800);
	return 1;
}

/* Whether the interface by which the frame would leave takes it now. */
INLINE int is_taken(const struct config *c, const struct answer *a, const struct place *p, u64 length)
{
	u32 out = a->out;
	if (a->flags & (TUNNEL4 | TUNNEL6)) /* padding is removed */
		length = 14 + p->length + (a->flags & TUNNEL6 ? 40 : 20);
	return out < PORTS_MOST && length <= c->longest[out];
}

/* Whether the yard would only do what the answer says: it handles everything else itself. */
INLINE int is_answered(const struct config *c, const struct answer *a, const struct place *p, const struct flow *f,
		       u8 hops, u64 length)
{
	if (!p->is_plain || f->tcp_flags & c->changes)
		return 0;
	if (a->flags & HOP && hops < 2)
		return 0;
	return (!a->mtu || p->length <= a->mtu) && is_taken(c, a, p, length);
}

/* The frame as the answer says; 0 if it cannot be made so, and must not go on. */
INLINE int apply(struct xdp_md *ctx, const struct place *p, const struct answer *a, u32 proto, u64 length)
{
	u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
	if (data + 54 > end && (p->is_ipv6 || data + 42 > end))
		return 0;
	if (a->flags & HOP)
		one_hop(data + 14, p->is_ipv6);
	if (a->flags & (SOURCE | TARGET) && !translate(data, end, p, a, proto))
		return 0;
	if (a->flags & (TUNNEL4 | TUNNEL6)) {
		if (!tunnel(ctx, p, a, length))
			return 0;
		data = (u8 *)(long)ctx->data;
		end = (u8 *)(long)ctx->data_end;
	}
	if (a->flags & MACS) {
		if (data + 14 > end)
			return 0;
		__builtin_memcpy(data, a->dst_mac, 12);
	}
	return 1;
}

/* Answers the frame: the action, or XDP_PASS if the yard must. */
INLINE int answer(struct xdp_md *ctx, const struct config *c, u32 port)
{
	const u8 *data = (const u8 *)(long)ctx->data, *end = (const u8 *)(long)ctx->data_end;
	struct flow f = {};
	struct place p = {};
	u32 zero = 0;
	if (!parse(data, end, &p, &f))
		return XDP_PASS;
	u32 proto = f.proto;
	u8 flags = f.tcp_flags;
	f.in_port = port;
	u64 *words = (u64 *)&f;
#pragma clang loop unroll(full)
	for (int i = 0; i < 8; i++)
		words[i] &= c->mask[i];
	const u32 *found = map_lookup(&flows, &f);
	if (!found)
		return XDP_PASS;
	u32 slot = *found;
	const struct answer *a = map_lookup(&answers, &slot);
	struct counts *n = map_lookup(&counts, &slot);
	const u64 *gone = map_lookup(&drained, &zero);
	if (!a || !n || !gone)
		return XDP_PASS;
	u64 length = end - data;
	f.tcp_flags = flags;
	u8 hops = p.is_ipv6 ? data[21] : data[22]; /* the parser has seen more than this */
	if (*gone <= a->since || *gone <= n->passed || !is_answered(c, a, &p, &f, hops, length)) {
		n->passed = time_ns();
		return XDP_PASS;
	}
	u32 out = a->out;
	if (!apply(ctx, &p, a, proto, length))
		return XDP_ABORTED;
	/* Frames of a flow may come by several queues. */
	__sync_fetch_and_add(&n->packets, 1);
	__sync_fetch_and_add(&n->bytes, length);
	n->last = coarse_ns();
	return out == port ? XDP_TX : (int)redirect_map(&devices, out, XDP_ABORTED);
}

SEC("xdp")
int front(struct xdp_md *ctx)
{
	u32 zero = 0;
	const struct config *c = map_lookup(&config, &zero);
	if (!c)
		return XDP_PASS;
	u32 port = port_of(c, ctx->ingress_ifindex);
	u32 queue = ctx->rx_queue_index;
	if (port >= PORTS_MOST || queue >= QUEUES_MOST)
		goto up;
	u32 at = port * QUEUES_MOST + queue;
	struct gate *gate = map_lookup(&gates, &at);
	if (!gate)
		goto up;
	gate->entered++;
	asm volatile("" ::: "memory");
	int action = answer(ctx, c, port);
	if (action != XDP_PASS) {
		asm volatile("" ::: "memory");
		gate->answered++;
	}
	asm volatile("" ::: "memory");
	gate->left++;
	if (action != XDP_PASS)
		return action;
up:
	tail_call(ctx, &behind, port);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
