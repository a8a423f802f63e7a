/* The rings of the CPUs: what was dropped because one was full. */
#pragma once

/* The kernel's number of the map `cpus`: tracepoints see every such map of the machine. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
	NUMBER(max_entries, 1);
} rings SEC(".maps");

/* By CPU: frames that found its ring full. The loader sets the length. */
struct {
	NUMBER(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, u64);
	NUMBER(max_entries, 1);
} overflows SEC(".maps");

/* A CPU has put frames into the ring of another one: (map, frames, drops, CPU). */
SEC("tp_btf/xdp_cpumap_enqueue")
int enqueues(u64 *arguments)
{
	u32 drops = (u32)arguments[2], cpu = (u32)arguments[3], zero = 0;
	if (!drops)
		return 0;
	const u32 *ours = map_lookup(&rings, &zero);
	u64 *count = map_lookup(&overflows, &cpu);
	if (ours && count && *ours == (u32)arguments[0])
		__sync_fetch_and_add(count, drops);
	return 0;
}
