/* Stop and removal of ethernet ports, on DPDK's interrupt thread. */
#include "shim.h"

#include <rte_alarm.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

/* Of shim.c: the callback of each port that was opened. */
int fy_on_removal(uint16_t port, enum rte_eth_event_type event, void *context, void *more);

/* A call on a port, and its result once `done` is set. */
struct call {
	int (*run)(uint16_t port);
	uint16_t port;
	int result;
	int done;
};

static void make_call(void *context)
{
	struct call *call = context;
	call->result = call->run(call->port);
	__atomic_store_n(&call->done, 1, __ATOMIC_RELEASE);
}

/*
 * Runs a call on DPDK's interrupt thread, and waits until it is done. Drivers such as net_memif free on this thread
 * what belongs to a peer that has left, without a lock, so the port must not be stopped or removed beside it. When the
 * thread has not begun the call after five seconds, the call is made here instead.
 */
static int call_on_interrupt_thread(int (*run)(uint16_t port), uint16_t port)
{
	struct call call = {.run = run, .port = port};
	if (rte_eal_alarm_set(1, make_call, &call) < 0) {
		make_call(&call);
		return call.result;
	}
	for (int waited = 0; waited < 50000; waited++) {
		if (__atomic_load_n(&call.done, __ATOMIC_ACQUIRE))
			break;
		rte_delay_us_sleep(100);
	}
	/* An alarm that is running has ended when this returns. So nothing uses `call` afterwards. */
	rte_eal_alarm_cancel(make_call, &call);
	if (!__atomic_load_n(&call.done, __ATOMIC_ACQUIRE))
		make_call(&call);
	return call.result;
}

static int stop(uint16_t port)
{
	return rte_eth_dev_stop(port);
}

static int stop_and_remove(uint16_t port)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);
	if (result < 0)
		return result;
	rte_eth_dev_callback_unregister(port, RTE_ETH_EVENT_INTR_RMV, fy_on_removal, NULL);
	/* A port that was never started has nothing to stop, so an error is no reason to keep the device. */
	rte_eth_dev_stop(port);
	result = rte_eth_dev_close(port);
	if (result < 0)
		return result;
	result = rte_dev_remove(info.device);
	return result == -1 && rte_errno > 1 ? -rte_errno : result;
}

FY_EXPORT int fy_port_stop(uint16_t port)
{
	return call_on_interrupt_thread(stop, port);
}

/*
 * Stops and closes the port, and removes its device, in one call on the interrupt thread: net_memif disconnects its
 * peer only when it is stopped. A peer that connected again before the device is closed would stay, with a device that
 * no longer exists.
 */
FY_EXPORT int fy_port_remove(uint16_t port)
{
	return call_on_interrupt_thread(stop_and_remove, port);
}
