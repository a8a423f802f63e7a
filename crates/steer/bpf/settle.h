/* Flows that follow their consumers, in order: the protocol of crates/steer/src/settle.rs.
 *
 * The program counts the frames that CPU p sends to CPU c, and writes the number of each in front of it. The program
 * on the CPU's side (`arrived`) reads the number when the frame has left the ring. A flow leaves CPU c when its last
 * number has left the ring of c, and then AFTER later frames have, or a timer of c has seen the ring empty. Dropped frames
 * have numbers, too, so frames are counted where they leave the ring. */
#pragma once

#include "elephant.h"

#define CPUS_MOST 256
#define AFTER 72
/* A frame that was sent so long ago and has not left the ring was dropped. */
#define LOST 1000000000
/* How long a flow stays where it is after a FIN. */
#define LINGER 1000000000
/* How long an elephant waits for a pause in its frames, and how long a pause XDP makes then. */
#define PATIENCE 100000000
#define GAP 10000000
#define MAGIC 0x666c7964

/* A flow. Its learner writes `wanted` and `closed`, XDP the rest. */
struct flow {
	u32 wanted; /* queue; STAY: as RSS says, and then it is forgotten */
	u32 home;   /* queue; STAY: no frame of it was seen since it is known */
	u32 producer, cpu; /* of its last frame */
	u64 seq;           /* of its last frame */
	u64 closed;        /* when this host sent a FIN; 0: it did not */
	u64 waits;         /* since when it cannot move to its own CPU; 0: it does not wait */
	u64 passed;        /* when the last frame passed while XDP made a pause */
};

/* The last frame that was sent, and when. */
struct sent {
	u64 seq, at;
};

/* The last frame that has left the ring, and the last one that is known to be delivered. */
struct left {
	u64 seq, delivered;
	u64 before; /* the last frame, `count` frames ago */
	u64 count;
};

/* Whether a flow waits to leave a CPU. */
enum asked {
	NOBODY,
	SOMEBODY,
	UNDER_WAY, /* the timer is set */
};

struct bpf_timer {
	u64 opaque[2];
};

/* Of a CPU. Pinned with `sent` and `done`: the timer is cancelled when no process and no pin has the map. */
struct watchman {
	struct bpf_timer timer;
	u32 asked, reserved;
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
	TYPE(value, struct sent);
	NUMBER(max_entries, CPUS_MOST * CPUS_MOST);
} sent SEC(".maps");

/* By sending CPU and CPU: what has left the ring. Only the latter writes. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct left);
	NUMBER(max_entries, CPUS_MOST * CPUS_MOST);
} done SEC(".maps");

/* By CPU. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct watchman);
	NUMBER(max_entries, CPUS_MOST);
} watchmen SEC(".maps");

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

/* Whether it is less than `span` since `at`. Another CPU may write `at` after this one has read the clock: then the
 * difference is negative. */
INLINE int is_since(u64 now, u64 at, long long span)
{
	return (long long)(now - at) < span;
}

/* Whether the ring of `cpu` is empty: everything that any CPU has sent there has left it or was dropped. */
OUTLINE int is_empty(const struct config *c, u32 cpu)
{
	if (!c)
		return 0;
	u64 now = time_ns();
	for (u32 p = 0; p < CPUS_MOST; p++) {
		if (p >= c->cpus)
			break;
		u32 at = pair(p, cpu);
		const struct sent *s = map_lookup(&sent, &at);
		const struct left *d = map_lookup(&done, &at);
		if (!s || !d)
			return 0;
		if (*(volatile u64 *)&d->seq != *(volatile u64 *)&s->seq && is_since(now, *(volatile u64 *)&s->at, LOST))
			return 0;
	}
	return 1;
}

/* What has left the ring of `cpu` has been delivered. */
OUTLINE int deliver(const struct config *c, u32 cpu)
{
	if (!c)
		return 0;
	for (u32 p = 0; p < CPUS_MOST; p++) {
		if (p >= c->cpus)
			break;
		u32 at = pair(p, cpu);
		struct left *d = map_lookup(&done, &at);
		if (d)
			*(volatile u64 *)&d->delivered = d->seq;
	}
	return 0;
}

/* The timer of a CPU. It runs there when the kernel's thread is not at work on a batch; if the ring is empty then, the
 * thread holds nothing. */
static int quiet(void *map, u32 *cpu, struct watchman *w)
{
	u32 zero = 0;
	const struct config *c = map_lookup(&config, &zero);
	(void)map;
	if (*cpu == this_cpu() && is_empty(c, *cpu)) {
		deliver(c, *cpu);
		*(volatile u32 *)&w->asked = NOBODY;
	} else {
		*(volatile u32 *)&w->asked = SOMEBODY;
	}
	return 0;
}

/* A frame has left the ring of this CPU, and a flow waits to leave the CPU: the timer runs when the thread has done its
 * batch. */
INLINE void ring_bell(u32 cpu)
{
	struct watchman *w = map_lookup(&watchmen, &cpu);
	if (!w || *(volatile u32 *)&w->asked != SOMEBODY)
		return;
	*(volatile u32 *)&w->asked = UNDER_WAY;
	timer_init(&w->timer, &watchmen, 1 /* CLOCK_MONOTONIC */);
	timer_set(&w->timer, quiet);
	/* On this CPU. Before Linux 6.7 this could not be demanded, but holds while the CPU is not idle. */
	if (timer_start(&w->timer, 0, 2 /* BPF_F_TIMER_CPU_PIN */) && timer_start(&w->timer, 0, 0))
		*(volatile u32 *)&w->asked = SOMEBODY;
}

/* Whether all frames of the flow have been delivered. If that is not known, somebody is asked. */
INLINE int is_delivered(const struct flow *f)
{
	u32 at = pair(f->producer, f->cpu), cpu = f->cpu;
	const struct left *d = map_lookup(&done, &at);
	if (!d)
		return 0;
	if (*(volatile u64 *)&d->delivered >= f->seq)
		return 1;
	struct watchman *w = map_lookup(&watchmen, &cpu);
	if (w && *(volatile u32 *)&w->asked == NOBODY)
		*(volatile u32 *)&w->asked = SOMEBODY;
	return 0;
}

/* Whether XDP drops a frame of an elephant, so that the frames in front of it can leave the ring before it moves. A frame
 * passes each GAP: if the frames before it found the ring full, nothing else would say that the ring is empty now. */
INLINE int makes_a_gap(struct flow *f)
{
	u64 now = time_ns();
	if (!f->waits)
		f->waits = now;
	if (is_since(now, f->waits, PATIENCE) || !is_since(now, f->passed, GAP)) {
		f->passed = now;
		return 0;
	}
	return 1;
}

/* The flow, which is remembered from its first frame on if flows may have to make room for another one. */
INLINE struct flow *flow_of(const struct key *flow, int is_sampled)
{
	struct flow *f = map_lookup(&flows, flow);
	if (f || !is_sampled)
		return f;
	struct flow new = {.wanted = STAY, .home = STAY};
	map_update(&flows, flow, &new, 1 /* BPF_NOEXIST */);
	return map_lookup(&flows, flow);
}

/* Steers a frame to its flow's own queue, or to that of its consumer, if the flow may move there. `l` has the decision
 * of RSS. */
INLINE void follow(const struct config *c, const struct key *key, struct last *l)
{
	const struct sampling *w = sampler();
	struct flow *f = flow_of(tuple(l, key), w != NULL);
	if (!f)
		return;
	u32 learned = *(volatile u32 *)&f->wanted;
	u64 closed = *(volatile u64 *)&f->closed;
	if (closed && !is_since(time_ns(), closed, LINGER))
		learned = STAY;
	u32 wanted = learned == STAY || (w && is_taken(w, learned)) ? l->queue : learned;
	u32 reason = learned == wanted ? FILTER : RSS;
	u32 own = w ? own_queue(w, &l->flow) : STAY;
	if (own != STAY) {
		wanted = own;
		reason = ELEPHANT;
	} else if (f->waits) {
		f->waits = 0;
	}
	/* The first frame goes where those before it went. They were not remembered, but its number is later than theirs. */
	if (f->home == STAY)
		f->home = l->queue;
	else if (f->home != wanted && (c->learns == 2 || is_delivered(f))) {
		f->home = wanted;
		f->waits = 0;
		happened(MOVED);
	}
	if (!w && learned == STAY && f->home == wanted) {
		map_delete(&flows, &l->flow);
		return;
	}
	l->queue = f->home;
	l->reason = f->home == wanted ? reason : own != STAY && makes_a_gap(f) ? GAP_DROP : SETTLING;
	l->followed = 1;
}

/* Numbers a frame to CPU `to`. Without room in front of it the frame has no number, and its flow stays. */
INLINE void number(struct xdp_md *ctx, struct last *l, u32 to)
{
	u32 producer = this_cpu(), at = pair(producer, to);
	struct sent *s = map_lookup(&sent, &at);
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
