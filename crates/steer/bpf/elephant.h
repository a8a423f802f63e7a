/* Elephants: some frames are sampled, so that user space finds the flow that overloads its CPU (elephants.rs), and gives
 * it a queue of its own.
 *
 * The sketch is that of the yard (learn::elephant::sampler of crates/flow): sets of four flows, in which a flow that is not
 * held replaces the smallest one and inherits its count. Each CPU has two, for the present window and for the last one,
 * which user space reads. */
#pragma once

#define WAYS 4
#define SETS 64

/* What user space says. `every` is 0 if nothing is to be sampled. */
struct sampling {
	u32 window; /* number of the present window */
	u32 every;  /* one of N frames is sampled */
	u32 owned;  /* number of flows with a queue of their own */
	u32 reserved;
	u64 taken[QUEUES_MOST / 64]; /* by queue: whether it is the own one of a flow */
};

/* A flow that is held, if `window` is the present one; otherwise free. */
struct way {
	u8 src[16], dst[16];
	u16 sport, dport, eth_type, proto;
	u32 frames, over; /* samples, and how many of them may be of flows that were replaced */
	u32 queue, window;
	u64 bytes;
};

struct sketch {
	struct way ways[SETS * WAYS];
};

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct sampling);
	NUMBER(max_entries, 1);
} sampling SEC(".maps");

/* By the last bit of the window's number. */
struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct sketch);
	NUMBER(max_entries, 2);
} sketches SEC(".maps");

/* Frames until the next sample. */
struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
	NUMBER(max_entries, 1);
} gaps SEC(".maps");

/* The queue of each flow that has one of its own. */
struct {
	NUMBER(type, MAP_HASH);
	TYPE(key, struct key);
	TYPE(value, u32);
	NUMBER(max_entries, 64);
} owned SEC(".maps");

INLINE const struct sampling *sampler(void)
{
	u32 zero = 0;
	const struct sampling *w = map_lookup(&sampling, &zero);
	return w && w->every ? w : NULL;
}

INLINE int is_taken(const struct sampling *w, u32 queue)
{
	return w->taken[queue / 64 % (QUEUES_MOST / 64)] >> queue % 64 & 1;
}

/* The flow's own queue, or STAY. */
INLINE u32 own_queue(const struct sampling *w, const struct key *flow)
{
	const u32 *queue = w->owned ? map_lookup(&owned, flow) : NULL;
	return queue ? *queue : STAY;
}

INLINE int is_way_of(const struct way *way, const struct key *flow)
{
	const u64 *a = (const u64 *)way->src, *b = (const u64 *)flow->src;
	u64 differs = (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]);
	differs |= (way->sport ^ flow->sport) | (way->dport ^ flow->dport);
	return !(differs | (way->proto ^ flow->proto) | (way->eth_type ^ flow->eth_type));
}

/* Counts a frame, if it is the next to be sampled. */
INLINE void sample(const struct last *l, u64 bytes)
{
	u32 zero = 0;
	const struct sampling *w = sampler();
	u32 *gap = map_lookup(&gaps, &zero);
	if (!w || !gap)
		return;
	if (*gap > 1) {
		*gap -= 1;
		return;
	}
	/* Random, so that periodic traffic is sampled correctly; `every` on average. */
	*gap = 1 + random() % (2 * w->every - 1);
	u32 window = *(volatile u32 *)&w->window, at = window & 1;
	struct sketch *sketch = map_lookup(&sketches, &at);
	if (!sketch)
		return;
	u32 set = (l->hash & (SETS - 1)) * WAYS, found = set, least = 0xffffffff;
#pragma clang loop unroll(full)
	for (u32 i = 0; i < WAYS; i++) {
		const struct way *way = &sketch->ways[set + i];
		u32 frames = way->window == window ? way->frames : 0;
		if (frames && is_way_of(way, &l->flow)) {
			found = set + i;
			least = 0;
		} else if (frames < least) {
			found = set + i;
			least = frames;
		}
	}
	struct way *way = &sketch->ways[found & (SETS * WAYS - 1)];
	if (way->window != window || !is_way_of(way, &l->flow)) {
		u32 before = way->window == window ? way->frames : 0;
		__builtin_memcpy(way->src, l->flow.src, 32);
		way->sport = l->flow.sport;
		way->dport = l->flow.dport;
		way->eth_type = l->flow.eth_type;
		way->proto = l->flow.proto;
		way->frames = way->over = before;
		way->bytes = 0;
		way->window = window;
	}
	way->frames++;
	way->bytes += bytes;
	way->queue = l->queue;
}
