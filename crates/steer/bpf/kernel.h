/* What these programs need of the kernel's interface: types, helpers by their numbers in linux/bpf.h, and the form in
 * which maps are declared. With it the compiler alone decides what the object files are: no header of the machine is
 * read. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define OUTLINE __attribute__((noinline))
#define NULL ((void *)0)

/* Fields of maps: the type of `f` has the number, or is the type. */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, value) typeof(value) *name

#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6
#define MAP_LRU_HASH 9
#define MAP_CPUMAP 16
#define MAP_RINGBUF 27

#define XDP_ABORTED 0
#define XDP_DROP 1
#define XDP_PASS 2

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex,
		ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id;
};

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*time_ns)(void) = (void *)5;
static u32 (*random)(void) = (void *)7;
static u32 (*this_cpu)(void) = (void *)8;
static long (*adjust_meta)(struct xdp_md *ctx, int delta) = (void *)54;
static long (*ringbuf_output)(void *ring, const void *data, u64 size, u64 flags) = (void *)130;
struct bpf_timer;
static long (*timer_init)(struct bpf_timer *timer, void *map, u64 clock) = (void *)169;
static long (*timer_set)(struct bpf_timer *timer, void *callback) = (void *)170;
static long (*timer_start)(struct bpf_timer *timer, u64 after, u64 flags) = (void *)171;
static long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
/* The length of a frame in several pieces: Linux 5.18. */
static u64 (*whole_length)(struct xdp_md *ctx) = (void *)188;

/* Network order, on a little-endian machine. */
INLINE u16 be16(const u8 *at)
{
	return (u16)(at[0] << 8 | at[1]);
}

INLINE u32 be32(const u8 *at)
{
	return (u32)at[0] << 24 | (u32)at[1] << 16 | (u32)at[2] << 8 | at[3];
}
