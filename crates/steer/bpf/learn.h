/* What runs beside XDP: the program that sees frames leave a CPU's ring, and the learners. */
#pragma once

/* On the CPU to which a frame was sent, before the kernel receives it. */
INLINE int left_ring(struct xdp_md *ctx)
{
	struct mark *mark = (struct mark *)(long)ctx->data_meta;
	if ((u8 *)(mark + 1) > (u8 *)(long)ctx->data || mark->magic != MAGIC)
		return XDP_PASS;
	u32 cpu = this_cpu();
	u32 at = pair(mark->producer, cpu);
	struct left *d = map_lookup(&done, &at);
	if (d) {
		*(volatile u64 *)&d->seq = mark->seq;
		d->count++;
		if (d->count >= AFTER) {
			if (d->before > d->delivered)
				*(volatile u64 *)&d->delivered = d->before;
			d->before = mark->seq;
			d->count = 0;
		}
	}
	ring_bell(cpu);
	/* The kernel would not merge frames with different bytes in front. */
	adjust_meta(ctx, sizeof(struct mark));
	return XDP_PASS;
}

SEC("xdp/cpumap")
int arrived(struct xdp_md *ctx)
{
	return left_ring(ctx);
}

/* As `arrived`, for frames of any length. */
SEC("xdp.frags/cpumap")
int arrived_long(struct xdp_md *ctx)
{
	return left_ring(ctx);
}

/* By CPU: its queue, or STAY. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
	NUMBER(max_entries, CPUS_MOST);
} queue_of SEC(".maps");

/* Counts segments at egress since the last one that taught. */
struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
	NUMBER(max_entries, 1);
} segments SEC(".maps");

/* A consumer of the flow with this key runs on this CPU. */
INLINE void learn(const struct key *key, int is_new)
{
	u32 cpu = this_cpu();
	const u32 *queue = map_lookup(&queue_of, &cpu);
	if (!queue || *queue == STAY)
		return;
	struct flow *f = map_lookup(&flows, key);
	if (f) {
		/* A late segment of a flow that has ended teaches nothing; a SYN begins another one. */
		if (f->closed && !is_new)
			return;
		if (f->closed)
			*(volatile u64 *)&f->closed = 0;
		if (f->wanted != *queue)
			*(volatile u32 *)&f->wanted = *queue;
		return;
	}
	struct flow new = {.wanted = *queue, .home = STAY};
	if (!map_update(&flows, key, &new, 1 /* BPF_NOEXIST */))
		happened(LEARNED);
}

/* The flow with this key was reset: it returns to the queue of RSS, and is forgotten as soon as no frame of it is under
 * way. */
INLINE void forget(const struct key *key)
{
	struct flow *f = map_lookup(&flows, key);
	if (!f)
		return;
	if (f->home == STAY || is_delivered(f))
		map_delete(&flows, key);
	else
		*(volatile u32 *)&f->wanted = STAY;
}

/* This host has sent a FIN of the flow with this key: the other side may still send for a while. */
INLINE void close(const struct key *key)
{
	struct flow *f = map_lookup(&flows, key);
	if (f && !f->closed)
		*(volatile u64 *)&f->closed = time_ns();
}

#define FIN 1
#define SYN 2
#define RST 4

/* As the yard's learner (learn::atr of crates/flow): a SYN teaches, and one of `sample` segments; a RST makes the flow
 * forgotten at once, a FIN after LINGER. */
SEC("classifier")
int sends(struct __sk_buff *skb)
{
	u32 zero = 0;
	const struct config *c = map_lookup(&config, &zero);
	u32 *count = map_lookup(&segments, &zero);
	if (!c || !count || !c->sample)
		return -1; /* TC_ACT_UNSPEC: as if this program were not here */
	const u8 *p = (const u8 *)(long)skb->data, *end = (const u8 *)(long)skb->data_end;
	struct key key = {};
	if (p + 54 > end)
		return -1;
	const u8 *tcp;
	key.eth_type = be16(p + 12);
	/* The key is that of the frames that come back. */
	if (key.eth_type == 0x0800 && p[14] == 0x45 && p[23] == 6 && !(p[20] & 0x3f) && !p[21]) {
		__builtin_memcpy(key.src, p + 30, 4);
		__builtin_memcpy(key.dst, p + 26, 4);
		tcp = p + 34;
	} else if (key.eth_type == 0x86dd && p[20] == 6 && p + 74 <= end) {
		__builtin_memcpy(key.src, p + 38, 16);
		__builtin_memcpy(key.dst, p + 22, 16);
		tcp = p + 54;
	} else {
		return -1;
	}
	if (tcp + 20 > end)
		return -1;
	u32 special = tcp[13] & (SYN | FIN | RST), sent = *count + 1, is_due = sent >= c->sample;
	*count = is_due || special == SYN ? 0 : sent;
	if (!is_due && !special)
		return -1;
	key.proto = 6;
	key.sport = be16(tcp + 2);
	key.dport = be16(tcp);
	if (special & RST)
		forget(&key);
	else if (special & FIN)
		close(&key);
	else
		learn(&key, special == SYN);
	return -1;
}

/* What is read of the kernel's sockets. The loader puts the kernel's offsets in place of these. */
#define OF_KERNEL __attribute__((preserve_access_index))

struct in6_addr {
	union {
		u32 u6_addr32[4];
	} in6_u;
} OF_KERNEL;

struct sock_common {
	u32 skc_daddr, skc_rcv_saddr;
	u16 skc_dport, skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
} OF_KERNEL;

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol;
} OF_KERNEL;

/* A thread reads a connected socket: on this CPU the flow is consumed. */
SEC("tp_btf/sock_recv_length")
int reads(u64 *arguments)
{
	const struct sock *sk = (const struct sock *)arguments[0];
	struct key key = {};
	u32 *src = (u32 *)key.src, *dst = (u32 *)key.dst;
	u16 family = sk->__sk_common.skc_family, port = sk->__sk_common.skc_dport;
	if (!port || (family != 2 && family != 10))
		return 0;
	key.eth_type = 0x0800;
	if (family == 2) {
		src[0] = sk->__sk_common.skc_daddr;
		dst[0] = sk->__sk_common.skc_rcv_saddr;
	} else {
		for (int i = 0; i < 4; i++) {
			src[i] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[i];
			dst[i] = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[i];
		}
		/* IPv4 on a socket for both families: ::ffff:a.b.c.d */
		if (!src[0] && !src[1] && src[2] == 0xffff0000) {
			src[0] = src[3];
			dst[0] = dst[3];
			src[2] = src[3] = dst[2] = dst[3] = 0;
		} else {
			key.eth_type = 0x86dd;
		}
	}
	key.proto = sk->sk_protocol;
	key.sport = port >> 8 | port << 8;
	key.dport = sk->__sk_common.skc_num;
	learn(&key, 1);
	return 0;
}
