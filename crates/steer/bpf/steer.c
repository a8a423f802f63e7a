/* XDP: which queue a frame belongs to, and the CPU of that queue, where the kernel processes the frame.
 *
 *   frame -> key (key.h) -> rules -> hash -> indirection table -> queue -> CPU -> redirect by CPUMAP
 *
 * The decision is that of the adapter models: of crates/steer (model), which a test compares with this program for
 * every frame of the shared captures. */
#include "key.h"

enum reason {
	NO_HASH, /* not IP, or nothing is hashed: queue 0 */
	RSS,
	RULE,
	DROPPED, /* by a rule */
	FILTER, /* on the CPU that its consumer was last seen on */
	SETTLING, /* not there yet: frames are still on their way to another CPU */
	ELEPHANT, /* on the CPU that its flow has for itself */
	GAP_DROP, /* dropped: its flow gets a CPU for itself, and cannot move there without a pause in its frames */
	REASONS = 8,
};

#define QUEUES_MOST 1024
#define RULES_MOST 512
#define INPUT_MOST 36
/* Instead of a CPU: the frame goes up where it was received. */
#define STAY 0xffffffff

/* What the user has chosen. */
struct config {
	u32 entries;       /* length of the indirection table */
	u32 mask;          /* entries - 1 if that is a power of two, otherwise 0 */
	u32 is_inner;      /* tunnelled frames are steered by their inner headers */
	u32 hfunc;         /* 0: Toeplitz; 1: symmetric-XOR; 2: symmetric-OR-XOR */
	u32 exact;         /* number of rules for one flow */
	u32 wildcards;     /* number of other rules */
	u32 learns;        /* whether flows follow their consumers; 2: at once, which reorders */
	u32 sample;        /* at egress, one of `sample` TCP segments teaches, and every SYN; 0: none does */
	u8 fields[8];      /* by flow type: bits for source, destination, and their ports */
	u32 cpus;          /* number of CPUs that the machine may have */
};

/* A rule, and its rank: the lowest that matches applies. */
struct action {
	u32 rank;
	u32 queue; /* STAY: drop */
};

struct rule {
	u64 key[8], mask[8];
	struct action action;
};

struct toeplitz {
	u32 part[INPUT_MOST][256];
};

/* By queue: frames by reason. */
struct counts {
	u64 frames[REASONS], bytes;
};

/* The last decision on this CPU; `layout.rs` reads its end. */
struct last {
	struct walk walk, inner;
	struct key flow; /* as the map of exact rules knows it */
	u8 input[72];    /* of the hash */
	u32 hash, has_hash, queue, reason;
	u32 followed; /* whether `flow` is one that follows its consumer */
	u32 reserved;
};

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct config);
	NUMBER(max_entries, 1);
} config SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct toeplitz);
	NUMBER(max_entries, 1);
} toeplitz SEC(".maps");

/* The loader sets the length. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
	NUMBER(max_entries, 128);
} table SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
	NUMBER(max_entries, QUEUES_MOST);
} queues SEC(".maps");

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct counts);
	NUMBER(max_entries, QUEUES_MOST);
} counts SEC(".maps");

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct last);
	NUMBER(max_entries, 1);
} last SEC(".maps");

struct {
	NUMBER(type, MAP_HASH);
	TYPE(key, struct key);
	TYPE(value, struct action);
	NUMBER(max_entries, 65536);
} exact SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct rule);
	NUMBER(max_entries, RULES_MOST);
} wildcards SEC(".maps");

/* The value is the size of the CPU's queue, and a program that runs there. The loader sets the length: the kernel
 * refuses more than it has CPUs. */
struct {
	NUMBER(type, MAP_CPUMAP);
	NUMBER(key_size, 4);
	NUMBER(value_size, 8);
	NUMBER(max_entries, 1);
} cpus SEC(".maps");

/* The number of the flow type, as FlowType of crates/adapter counts: TCP, UDP and SCTP of whole datagrams, else IP. */
INLINE u32 flow_type(const struct key *key)
{
	u32 bare = key->eth_type == 0x0800 ? 0 : 4;
	if (key->frag)
		return bare;
	return bare + (key->proto == 6 ? 1 : key->proto == 17 ? 2 : key->proto == 132 ? 3 : 0);
}

INLINE u32 put_address(struct last *l, u32 at, const u64 *address, int is_ipv4)
{
	u64 *to = (u64 *)(l->input + (at & 16 ? 16 : at & 4));
	if (is_ipv4) {
		*(u32 *)to = (u32)address[0];
		return at + 4;
	}
	to[0] = address[0];
	to[1] = address[1];
	return at + 16;
}

INLINE u32 put_port(struct last *l, u32 at, u16 port)
{
	u8 *to = l->input + (at & 63);
	to[0] = port >> 8;
	to[1] = port & 255;
	return at + 2;
}

/* The Toeplitz hash of the first bytes of the input: the XOR of what each byte contributes at its place. */
INLINE int hash_input(const struct toeplitz *t, struct last *l, u32 length)
{
	u32 hash = 0;
	for (u32 i = 0; i < INPUT_MOST; i++) {
		if (i >= length)
			break;
		hash ^= t->part[i][l->input[i]];
	}
	l->hash = hash;
	l->has_hash = 1;
	return 1;
}

/* The hash of the fields that the flow type hashes. */
OUTLINE int rss_hash(struct config *c, struct key *key, struct last *l)
{
	u32 zero = 0, at = 0;
	if (!c || !key || !l)
		return 0;
	const struct toeplitz *t = map_lookup(&toeplitz, &zero);
	u32 fields = c->fields[flow_type(key) & 7];
	int is_ipv4 = key->eth_type == 0x0800;
	if (!t || !fields || (!is_ipv4 && key->eth_type != 0x86dd))
		return 0;
	u64 src[2], dst[2];
	u16 sport = key->sport, dport = key->dport;
	__builtin_memcpy(src, key->src, 16);
	__builtin_memcpy(dst, key->dst, 16);
	if (c->hfunc) {
		u64 low = src[0] ^ dst[0], high = src[1] ^ dst[1];
		u16 both = sport ^ dport;
		src[0] = c->hfunc == 2 ? src[0] | dst[0] : low;
		src[1] = c->hfunc == 2 ? src[1] | dst[1] : high;
		sport = c->hfunc == 2 ? sport | dport : both;
		dst[0] = low;
		dst[1] = high;
		dport = both;
	}
	if (fields & 1)
		at = put_address(l, at, src, is_ipv4);
	if (fields & 2)
		at = put_address(l, at, dst, is_ipv4);
	if (fields & 4)
		at = put_port(l, at, sport);
	if (fields & 8)
		at = put_port(l, at, dport);
	return hash_input(t, l, at);
}

INLINE int matches(const struct rule *rule, const u64 *key)
{
	u64 differs = 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < 8; i++)
		differs |= (key[i] & rule->mask[i]) ^ rule->key[i];
	return !differs;
}

/* The first of the rules with masks that matches. */
OUTLINE int wildcard(struct key *key, struct config *c, u32 before, struct action *found)
{
	if (!key || !c || !found)
		return 0;
	for (u32 i = 0; i < RULES_MOST; i++) {
		if (i >= c->wildcards)
			return 0;
		u32 at = i; /* a copy: the verifier counts only what stays in a register */
		asm volatile("" : "+r"(i));
		const struct rule *rule = map_lookup(&wildcards, &at);
		if (!rule || rule->action.rank >= before)
			return 0;
		if (matches(rule, (const u64 *)key)) {
			*found = rule->action;
			return 1;
		}
	}
	return 0;
}

/* The rule with the lowest rank that matches. */
INLINE int rule(struct config *c, struct key *key, struct last *l, struct action *found)
{
	u32 before = 0xffffffff;
	int is_found = 0;
	if (c->exact) {
		__builtin_memcpy(l->flow.src, key->src, 32);
		l->flow.sport = key->sport;
		l->flow.dport = key->dport;
		l->flow.proto = key->proto;
		l->flow.eth_type = key->eth_type;
		const struct action *action = map_lookup(&exact, &l->flow);
		if (action) {
			*found = *action;
			before = action->rank;
			is_found = 1;
		}
	}
	if (c->wildcards && wildcard(key, c, before, found))
		is_found = 1;
	return is_found;
}

#include "watch.h"
#include "settle.h"
#include "forms.h"

/* The headers by which the frame is steered: the outer ones, or those in its tunnel if they are IP. */
INLINE struct walk *parse(struct xdp_md *ctx, const struct config *c, struct last *l, u64 length)
{
	__builtin_memset(&l->walk, 0, sizeof l->walk);
	l->walk.end = length;
	l->walk.step = ETHERNET;
	level(ctx, &l->walk);
	if (!c->is_inner || l->walk.next == DONE)
		return &l->walk;
	__builtin_memset(&l->inner, 0, sizeof l->inner);
	l->inner.at = l->walk.at;
	l->inner.end = l->walk.end;
	l->inner.bounded = l->walk.end < length;
	l->inner.step = l->walk.next;
	l->inner.arg = l->walk.next_arg;
	l->inner.key.tunnel_id = l->walk.next_id;
	level(ctx, &l->inner);
	return l->inner.is_ip ? &l->inner : &l->walk;
}

/* The queue of a frame, and why; written to `l`. */
INLINE void decide(struct xdp_md *ctx, struct config *c, struct last *l, u64 length)
{
	struct walk *w = parse(ctx, c, l, length);
	struct key *key = &w->key;
	struct action found = {};
	l->followed = 0;
	l->hash = 0;
	l->queue = 0;
	l->has_hash = 0;
	if ((c->exact || c->wildcards) && rule(c, key, l, &found)) {
		l->reason = found.queue == STAY ? DROPPED : RULE;
		l->queue = found.queue == STAY ? 0 : found.queue;
		return;
	}
	l->reason = NO_HASH;
	other_addresses(ctx, w);
	if (!quic_hash(ctx, w, l) && !rss_hash(c, key, l))
		return;
	u32 hash = l->hash;
	u32 entry = c->mask ? hash & c->mask : c->entries ? hash % c->entries : 0;
	const u32 *queue = map_lookup(&table, &entry);
	l->reason = RSS;
	l->queue = queue ? *queue : 0;
	if (c->learns && key->frag == 0)
		follow(c, key, l);
}

INLINE int steered(struct xdp_md *ctx, u64 length)
{
	u32 zero = 0;
	struct config *c = map_lookup(&config, &zero);
	struct last *l = map_lookup(&last, &zero);
	if (!c || !l)
		return XDP_PASS;
	decide(ctx, c, l, length);
	watch(ctx, c, l);
	u32 queue = l->queue, reason = l->reason;
	asm volatile("" : "+r"(length)); /* a number now: the verifier keeps no half of a pointer */
	struct counts *count = map_lookup(&counts, &queue);
	if (count) {
		count->frames[reason & (REASONS - 1)]++;
		count->bytes += length;
	}
	if (reason == DROPPED || reason == GAP_DROP)
		return XDP_DROP;
	const u32 *cpu = map_lookup(&queues, &queue);
	if (!cpu || *cpu == STAY)
		return XDP_PASS;
	u32 to = *cpu;
	if (c->learns) {
		if (l->followed)
			sample(l, length);
		number(ctx, l, to);
	}
	return (int)redirect_map(&cpus, to, XDP_PASS);
}

/* For kernels that hand over frames of up to a page only. */
SEC("xdp")
int steer(struct xdp_md *ctx)
{
	return steered(ctx, ctx->data_end - ctx->data);
}

/* For frames of any length: what is after the first page is not in reach, and has no headers. */
SEC("xdp.frags")
int steer_long(struct xdp_md *ctx)
{
	return steered(ctx, whole_length(ctx));
}

/* Whether the kernel loads such programs at all. */
SEC("xdp.frags")
int knows_frags(struct xdp_md *ctx)
{
	return ctx ? XDP_PASS : XDP_ABORTED;
}

#include "learn.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
