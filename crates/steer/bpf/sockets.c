/* Which socket of an SO_REUSEPORT group gets a packet or a connection: one whose thread runs on the CPU that processes it.
 *
 *   packet on CPU c -> choices[c] -> one of these sockets by hash; none, or it has left the group -> the kernel's own hash
 *
 * The kernel keeps this program as long as the group has it, also without the process that attached it; a socket that is
 * closed leaves `sockets` by itself. */
#include "kernel.h"

#define MAP_REUSEPORT_SOCKARRAY 20
#define SOCKETS_MOST 1024
#define CPUS_MOST 1024
/* Sockets of one CPU. */
#define CHOICES_MOST 64

struct sk_reuseport_md {
	u64 data, data_end; /* pointers */
	u32 len, eth_protocol, ip_protocol, bind_inany, hash;
};

struct choice {
	u32 count;
	u32 socket[CHOICES_MOST]; /* in `sockets` */
};

/* Packets on a CPU. */
struct picked {
	u64 local, other;
};

struct {
	NUMBER(type, MAP_REUSEPORT_SOCKARRAY);
	NUMBER(key_size, 4);
	NUMBER(value_size, 4);
	NUMBER(max_entries, SOCKETS_MOST);
} sockets SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct choice);
	NUMBER(max_entries, CPUS_MOST);
} choices SEC(".maps");

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct picked);
	NUMBER(max_entries, 1);
} picked SEC(".maps");

/* The sockets by their cookies. */
struct {
	NUMBER(type, MAP_HASH);
	TYPE(key, u64);
	TYPE(value, u32);
	NUMBER(max_entries, SOCKETS_MOST);
} cookies SEC(".maps");

/* By socket: the CPU on which it was read last, and 1 is added; 0: not yet. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
	NUMBER(max_entries, SOCKETS_MOST);
} readers SEC(".maps");

static long (*select_reuseport)(struct sk_reuseport_md *md, void *map, void *key, u64 flags) = (void *)82;
static u64 (*cookie_of)(void *sk) = (void *)46;

SEC("sk_reuseport")
int pick(struct sk_reuseport_md *md)
{
	u32 cpu = this_cpu(), zero = 0;
	struct picked *count = map_lookup(&picked, &zero);
	const struct choice *choice = map_lookup(&choices, &cpu);
	u32 among = choice ? choice->count : 0;
	if (!count)
		return 1; /* SK_PASS: without a selection, the kernel hashes */
	if (among && among <= CHOICES_MOST) {
		u32 at = md->hash % among;
		/* The verifier does not know that this changes nothing. */
		asm volatile("" : "+r"(at));
		u32 socket = choice->socket[at & (CHOICES_MOST - 1)];
		if (!select_reuseport(md, &sockets, &socket, 0)) {
			count->local++;
			return 1;
		}
	}
	count->other++;
	return 1;
}

/* A thread reads a socket. */
SEC("tp_btf/sock_recv_length")
int reads(u64 *arguments)
{
	u64 cookie = cookie_of((void *)arguments[0]);
	const u32 *socket = map_lookup(&cookies, &cookie);
	if (!socket)
		return 0;
	u32 *reader = map_lookup(&readers, socket), now = this_cpu() + 1;
	if (reader && *reader != now)
		*reader = now;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
