/* Event devices, by the public calls of DPDK. */
#include "shim.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eventdev.h>
#include <rte_service.h>
#include <rte_service_component.h>

_Static_assert(RTE_EVENT_OP_NEW == FY_NEW && RTE_EVENT_OP_FORWARD == FY_FORWARD &&
	       RTE_EVENT_OP_RELEASE == FY_RELEASE, "operations");
_Static_assert(RTE_SCHED_TYPE_ORDERED == FY_ORDERED && RTE_SCHED_TYPE_ATOMIC == FY_ATOMIC &&
	       RTE_SCHED_TYPE_PARALLEL == FY_PARALLEL, "types of schedule");
_Static_assert(sizeof(struct rte_event) == 16, "rte_event");

/* The service that schedules a software device; 0 if there is none, otherwise the number and 1. */
static uint32_t services[RTE_EVENT_MAX_DEVS];
/* Whether the device was started before. */
static int was_started[RTE_EVENT_MAX_DEVS];

FY_EXPORT int fy_event_find(const char *name)
{
	return rte_event_dev_get_dev_id(name);
}

FY_EXPORT int fy_event_device_info(uint8_t device, struct fy_event_info *out)
{
	struct rte_event_dev_info info;
	int result = rte_event_dev_info_get(device, &info);
	if (result < 0)
		return result;
	memset(out, 0, sizeof(*out));
	if (info.driver_name != NULL)
		strncpy(out->driver, info.driver_name, sizeof(out->driver) - 1);
	out->most_events = info.max_num_events;
	out->capabilities = info.event_dev_cap;
	out->most_queues = info.max_event_queues;
	out->most_ports = info.max_event_ports;
	out->flows = info.max_event_queue_flows;
	out->dequeue_depth = info.max_event_port_dequeue_depth;
	out->enqueue_depth = info.max_event_port_enqueue_depth;
	return 0;
}

static int queue_setup(uint8_t device, uint8_t at, const struct fy_event_queue *of, uint32_t flows, uint32_t window)
{
	struct rte_event_queue_conf conf = {
		.nb_atomic_flows = flows, .nb_atomic_order_sequences = window, .schedule_type = of->sched,
		.priority = of->priority,
		.event_queue_cfg = (of->single_link ? RTE_EVENT_QUEUE_CFG_SINGLE_LINK : 0) |
				   (of->any_sched ? RTE_EVENT_QUEUE_CFG_ALL_TYPES : 0),
	};
	return rte_event_queue_setup(device, at, &conf);
}

static int port_setup(uint8_t device, uint8_t at, const struct fy_event_port *of)
{
	struct rte_event_port_conf conf;
	int result = rte_event_port_default_conf_get(device, at, &conf);
	if (result < 0)
		return result;
	conf.new_event_threshold = of->threshold;
	if (of->depth < conf.dequeue_depth)
		conf.dequeue_depth = of->depth;
	conf.event_port_cfg = (of->single_link ? RTE_EVENT_PORT_CFG_SINGLE_LINK : 0) |
			      (of->no_implicit_release ? RTE_EVENT_PORT_CFG_DISABLE_IMPL_REL : 0);
	return rte_event_port_setup(device, at, &conf);
}

/* Configures a stopped device. */
static int configure(uint8_t device, uint32_t events, uint32_t window, const struct fy_event_queue *queues,
			     uint32_t queue_count, const struct fy_event_port *ports, uint32_t port_count)
{
	struct rte_event_dev_info info;
	uint32_t single = 0, flows = 1024;
	int result = rte_event_dev_info_get(device, &info);
	if (result < 0)
		return result;
	for (uint32_t at = 0; at < queue_count; at++)
		single += queues[at].single_link;
	if (flows > info.max_event_queue_flows)
		flows = info.max_event_queue_flows;
	struct rte_event_dev_config conf = {
		.nb_event_queues = queue_count, .nb_event_ports = port_count, .nb_events_limit = events,
		.nb_event_queue_flows = flows,
		.nb_event_port_dequeue_depth = info.max_event_port_dequeue_depth,
		.nb_event_port_enqueue_depth = info.max_event_port_enqueue_depth,
		.nb_single_link_event_port_queues = single,
	};
	result = rte_event_dev_configure(device, &conf);
	for (uint32_t at = 0; result >= 0 && at < queue_count; at++)
		result = queue_setup(device, at, &queues[at], flows, window);
	for (uint32_t at = 0; result >= 0 && at < port_count; at++)
		result = port_setup(device, at, &ports[at]);
	for (uint32_t at = 0; result >= 0 && at < port_count; at++) {
		for (uint8_t queue = 0; result >= 0 && queue < queue_count; queue++) {
			if ((ports[at].queues >> queue & 1) == 0)
				continue;
			if (rte_event_port_link(device, at, &queue, NULL, 1) != 1)
				return -EINVAL;
		}
	}
	return result;
}

/* Configures and starts a stopped device. `window` is the number of ordered events in flight of a queue. */
FY_EXPORT int fy_event_start(uint8_t device, uint32_t events, uint32_t window, const struct fy_event_queue *queues,
			     uint32_t queue_count, const struct fy_event_port *ports, uint32_t port_count)
{
	uint32_t service;
	int result = configure(device, events, window, queues, queue_count, ports, port_count);
	/* The software device takes the credits of its earlier ports from those of the new setup; the second setup begins
	 * with none. */
	if (result >= 0 && was_started[device])
		result = configure(device, events, window, queues, queue_count, ports, port_count);
	if (result < 0)
		return result;
	was_started[device] = 1;
	services[device] = 0;
	if (rte_event_dev_service_id_get(device, &service) == 0) {
		rte_service_runstate_set(service, 1);
		rte_service_set_runstate_mapped_check(service, 0);
		services[device] = service + 1;
	}
	return rte_event_dev_start(device);
}

FY_EXPORT void fy_event_stop(uint8_t device)
{
	rte_event_dev_stop(device);
}

/* Stops, closes and removes a virtual device. */
FY_EXPORT int fy_event_remove(uint8_t device, const char *name)
{
	rte_event_dev_stop(device);
	int result = rte_event_dev_close(device);
	if (result < 0)
		return result;
	uint32_t service = services[device];
	services[device] = 0;
	was_started[device] = 0;
	result = rte_eal_hotplug_remove("vdev", name);
	/* The driver does not do this, and a process can have 64 services. */
	if (service != 0) {
		rte_service_runstate_set(service - 1, 0);
		rte_service_component_unregister(service - 1);
	}
	return result;
}

FY_EXPORT int fy_event_has_service(uint8_t device)
{
	return services[device] != 0;
}

/* Lets the service of a software device run once. */
FY_EXPORT void fy_event_schedule(uint8_t device)
{
	if (services[device] != 0)
		rte_service_run_iter_on_app_lcore(services[device] - 1, 0);
}

FY_EXPORT void fy_event_maintain(uint8_t device, uint8_t port)
{
	if (services[device] == 0)
		rte_event_maintain(device, port, RTE_EVENT_DEV_MAINT_OP_FLUSH);
}

FY_EXPORT uint32_t fy_event_enqueue(uint8_t device, uint8_t port, const struct fy_event *events, uint32_t count)
{
	struct rte_event burst[FY_BURST];
	if (count > FY_BURST)
		count = FY_BURST;
	for (uint32_t at = 0; at < count; at++) {
		burst[at].event = 0;
		burst[at].flow_id = events[at].flow;
		burst[at].event_type = RTE_EVENT_TYPE_CPU;
		burst[at].op = events[at].op;
		burst[at].sched_type = events[at].sched;
		burst[at].queue_id = events[at].queue;
		burst[at].priority = events[at].priority;
		burst[at].u64 = events[at].payload;
	}
	return rte_event_enqueue_burst(device, port, burst, count);
}

FY_EXPORT uint32_t fy_event_dequeue(uint8_t device, uint8_t port, struct fy_event *events, uint32_t most)
{
	struct rte_event burst[FY_BURST];
	uint32_t count = rte_event_dequeue_burst(device, port, burst, most < FY_BURST ? most : FY_BURST, 0);
	for (uint32_t at = 0; at < count; at++)
		events[at] = (struct fy_event){
			.payload = burst[at].u64, .flow = burst[at].flow_id, .queue = burst[at].queue_id,
			.op = burst[at].op, .sched = burst[at].sched_type, .priority = burst[at].priority,
		};
	return count;
}
