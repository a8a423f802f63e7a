/* Flows that follow their consumers, in order: the protocol of crates/steer/src/settle.rs.
 *
 * The program counts the frames that CPU p sends to CPU c, and writes the number of each in front of it. The program
 * on the CPU's side (`arrived`) reads the number when the frame has left the ring. A flow leaves CPU c when its last
 * number has left the ring of c, and then AFTER later ones have, or the ring has been empty for GRACE. */
#pragma once

#define CPUS_MOST 256
#define AFTER 72
#define GRACE 5000000
/* A frame that was sent so long ago and has not left the ring was dropped. */
#define LOST 1000000000
#define MAGIC 0x666c7964

/* A flow. Its learner writes `wanted`, XDP the rest. */
struct flow {
	u32 wanted; /* queue; STAY: nothing was learned */
	u32 home;   /* queue; STAY: as RSS says */
	u32 producer, cpu; /* of its last frame */
	u64 seq;           /* of its last frame */
};

/* The last frame that was sent, or has left the ring, and when. */
struct last_frame {
	u64 seq, at;
};

/* In front of a frame. */
struct mark {
	u32 magic, producer;
	u64 seq;
};

struct {
	NUMBER(type, MAP_LRU_HASH);
	TYPE(key, struct key);
	TYPE(value, struct flow);
	NUMBER(max_entries, 65536);
} flows SEC(".maps");

/* By sending CPU and CPU: the frames sent. Only the former writes. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct last_frame);
	NUMBER(max_entries, CPUS_MOST * CPUS_MOST);
} sent SEC(".maps");

/* By sending CPU and CPU: what has left the ring. Only the latter writes. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct last_frame);
	NUMBER(max_entries, CPUS_MOST * CPUS_MOST);
} done SEC(".maps");

/* The 5-tuple of `key`, in `l`. */
INLINE struct key *tuple(struct last *l, const struct key *key)
{
	__builtin_memcpy(l->flow.src, key->src, 32);
	l->flow.sport = key->sport;
	l->flow.dport = key->dport;
	l->flow.proto = key->proto;
	l->flow.eth_type = key->eth_type;
	return &l->flow;
}

INLINE u32 pair(u32 producer, u32 cpu)
{
	return (producer & (CPUS_MOST - 1)) * CPUS_MOST + (cpu & (CPUS_MOST - 1));
}

/* Whether the ring of `cpu` has been empty for GRACE: everything that any CPU has sent there has left it or was dropped.
 * The kernel's thread delivers what it has taken when it finds its ring empty. */
OUTLINE int is_idle(const struct config *c, u32 cpu)
{
	if (!c)
		return 0;
	u64 now = time_ns();
	for (u32 p = 0; p < CPUS_MOST; p++) {
		if (p >= c->cpus)
			break;
		u32 at = pair(p, cpu);
		const struct last_frame *s = map_lookup(&sent, &at), *d = map_lookup(&done, &at);
		if (!s || !d)
			return 0;
		u64 left = *(volatile u64 *)&d->seq;
		if (now - *(volatile u64 *)&d->at < GRACE)
			return 0;
		if (left != *(volatile u64 *)&s->seq && now - *(volatile u64 *)&s->at < LOST)
			return 0;
	}
	return 1;
}

INLINE int is_delivered(const struct config *c, const struct flow *f)
{
	u32 at = pair(f->producer, f->cpu);
	const struct last_frame *d = map_lookup(&done, &at);
	if (!d)
		return 0;
	u64 seq = *(volatile u64 *)&d->seq;
	if (seq < f->seq)
		return 0;
	return seq - f->seq >= AFTER || is_idle(c, f->cpu);
}

/* Steers a frame to the queue of its flow's consumer, if that is known and the flow may move there. `l` has the
 * decision of RSS. */
INLINE void follow(const struct config *c, const struct key *key, struct last *l)
{
	struct flow *f = map_lookup(&flows, tuple(l, key));
	if (!f)
		return;
	u32 wanted = *(volatile u32 *)&f->wanted;
	/* The first frame goes where those before it went. They were not remembered, but its number is later than theirs. */
	if (f->home == STAY)
		f->home = l->queue;
	else if (wanted != STAY && f->home != wanted && (c->learns == 2 || is_delivered(c, f))) {
		f->home = wanted;
		happened(MOVED);
	}
	l->queue = f->home;
	l->reason = f->home == wanted || wanted == STAY ? FILTER : SETTLING;
	l->followed = 1;
}

/* Numbers a frame to CPU `to`. Without room in front of it the frame has no number, and its flow stays. */
INLINE void number(struct xdp_md *ctx, struct last *l, u32 to)
{
	u32 producer = this_cpu(), at = pair(producer, to);
	struct last_frame *s = map_lookup(&sent, &at);
	if (!s)
		return;
	u64 seq = s->seq + 1;
	*(volatile u64 *)&s->at = time_ns();
	*(volatile u64 *)&s->seq = seq;
	if (l->followed) {
		struct flow *f = map_lookup(&flows, &l->flow);
		if (f) {
			f->producer = producer;
			f->cpu = to;
			f->seq = seq;
		}
	}
	if (adjust_meta(ctx, -(int)sizeof(struct mark)))
		return;
	u8 *data = (u8 *)(long)ctx->data;
	struct mark *mark = (struct mark *)(long)ctx->data_meta;
	if ((u8 *)(mark + 1) > data)
		return;
	mark->magic = MAGIC;
	mark->producer = producer;
	mark->seq = seq;
}
