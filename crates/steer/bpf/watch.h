/* What an operator sees beside the counters of queues: what learners and `settle` did, what the rings of the CPUs lost, and
 * the frames of one flow, while it is traced. */
#pragma once

/* Counters of single events. */
enum event {
	LEARNED, /* a flow was learned that was not known */
	MOVED,   /* a flow moved to another CPU */
	EVENTS = 4,
};

/* What is watched. User space writes it. */
struct watched {
	struct key flow; /* the 5-tuple of the traced flow */
	u32 is_on;       /* whether a flow is traced */
	u32 map_id;      /* of `cpus`: other programs have such maps, too */
};

/* By CPU: frames that were put into its ring or found it full. */
struct ring {
	u64 frames, dropped;
};

/* A frame of the traced flow. */
struct seen {
	u64 at;
	u32 cpu, queue, reason, hash, has_hash, length;
};

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, u64);
	NUMBER(max_entries, EVENTS);
} events SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct watched);
	NUMBER(max_entries, 1);
} watched SEC(".maps");

/* The loader sets the length. */
struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct ring);
	NUMBER(max_entries, 1);
} rings SEC(".maps");

struct {
	NUMBER(type, MAP_RINGBUF);
	NUMBER(max_entries, 65536);
} seen SEC(".maps");

INLINE void happened(u32 event)
{
	u64 *count = map_lookup(&events, &event);
	if (count)
		*count += 1;
}

/* Reports a frame of the traced flow, with the decision in `l`. */
OUTLINE int report(struct xdp_md *ctx, struct config *c, struct last *l)
{
	u32 zero = 0;
	if (!ctx || !c || !l)
		return 0;
	const struct watched *w = map_lookup(&watched, &zero);
	if (!w)
		return 0;
	const struct key *key = c->is_inner && l->walk.next != DONE && l->inner.is_ip ? &l->inner.key : &l->walk.key;
	u64 differs = 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < 2; i++) {
		differs |= ((const u64 *)key->src)[i] ^ ((const u64 *)w->flow.src)[i];
		differs |= ((const u64 *)key->dst)[i] ^ ((const u64 *)w->flow.dst)[i];
	}
	if (differs || key->sport != w->flow.sport || key->dport != w->flow.dport || key->proto != w->flow.proto ||
	    key->eth_type != w->flow.eth_type)
		return 0;
	struct seen one = {
		.at = time_ns(),
		.cpu = this_cpu(),
		.queue = l->queue,
		.reason = l->reason,
		.hash = l->hash,
		.has_hash = l->has_hash,
		.length = ctx->data_end - ctx->data,
	};
	ringbuf_output(&seen, &one, sizeof one, 0);
	return 0;
}

INLINE void watch(struct xdp_md *ctx, struct config *c, struct last *l)
{
	u32 zero = 0;
	const struct watched *w = map_lookup(&watched, &zero);
	if (w && w->is_on)
		report(ctx, c, l);
}

/* The kernel has tried to put frames, which it counts as `processed`, into the ring of a CPU, and has dropped some of them. */
SEC("raw_tp/xdp_cpumap_enqueue")
int enqueued(u64 *arguments)
{
	u32 zero = 0, cpu = (u32)arguments[3];
	const struct watched *w = map_lookup(&watched, &zero);
	struct ring *r = map_lookup(&rings, &cpu);
	if (!w || !r || w->map_id != (u32)arguments[0])
		return 0;
	r->frames += (u32)arguments[1];
	r->dropped += (u32)arguments[2];
	return 0;
}
