/* Start of the environment (EAL), memory, and ethernet ports. */
#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_memory.h>
#include <rte_version.h>

_Static_assert(RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0), "DPDK 22.11 or later is required");
_Static_assert(RTE_PKTMBUF_HEADROOM >= 64, "the metadata of a buffer must be in front of received bytes");

static int negative(int result)
{
	/* Some calls return -1 and set rte_errno, others return a negative errno. */
	if (result == -1 && rte_errno > 1)
		return -rte_errno;
	return result;
}

static int last_error(void)
{
	return rte_errno > 0 ? -rte_errno : -EIO;
}

FY_EXPORT const char *fy_version(void)
{
	return rte_version();
}

FY_EXPORT const char *fy_error(int code)
{
	return rte_strerror(code < 0 ? -code : code);
}

FY_EXPORT int fy_eal_start(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	return used < 0 ? last_error() : used;
}

FY_EXPORT int fy_iova_is_va(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}

/* Services of software event devices run only on threads that DPDK knows. */
FY_EXPORT int fy_thread_register(void)
{
	return rte_thread_register() < 0 ? last_error() : 0;
}

FY_EXPORT void fy_thread_unregister(void)
{
	rte_thread_unregister();
}

/* --- memory --- */

FY_EXPORT void *fy_pool_new(const char *name, uint32_t frames, uint32_t room, int *error)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create(name, frames, 256, 0, room, SOCKET_ID_ANY);
	*error = pool == NULL ? last_error() : 0;
	return pool;
}

/* A pool whose mbufs have the `frames` buffers of `buffer` bytes at `base`. All mbufs are taken out of it and written
 * to `mbufs` by the place of their buffers. The buffers end on a page. */
FY_EXPORT void *fy_pool_external(const char *name, void *base, uint64_t bytes, uint32_t buffer, uint32_t frames,
				 struct rte_mbuf **mbufs, int *error)
{
	const size_t page = 4096;
	const uint32_t pages = bytes / page;
	struct rte_pktmbuf_extmem memory = {
		.buf_ptr = base, .buf_iova = (rte_iova_t)(uintptr_t)base, .buf_len = bytes, .elt_size = buffer,
	};
	struct rte_mempool *pool = NULL;
	struct rte_mbuf **taken = calloc(frames, sizeof(*taken));
	rte_iova_t *addresses = calloc(pages, sizeof(*addresses));

	if (taken == NULL || addresses == NULL) {
		*error = -ENOMEM;
		goto out;
	}
	for (uint32_t at = 0; at < pages; at++)
		addresses[at] = (rte_iova_t)(uintptr_t)base + at * page;
	*error = rte_extmem_register(base, bytes, addresses, pages, page) < 0 ? last_error() : 0;
	if (*error != 0)
		goto out;
	pool = rte_pktmbuf_pool_create_extbuf(name, frames, 0, 0, buffer, SOCKET_ID_ANY, &memory, 1);
	if (pool == NULL) {
		*error = last_error();
		rte_extmem_unregister(base, bytes);
		goto out;
	}
	memset(mbufs, 0, frames * sizeof(*mbufs));
	*error = rte_mempool_get_bulk(pool, (void **)taken, frames);
	for (uint32_t at = 0; *error == 0 && at < frames; at++) {
		uint64_t place = ((uintptr_t)taken[at]->buf_addr - (uintptr_t)base) / buffer;
		if (place >= frames || mbufs[place] != NULL)
			*error = -EFAULT;
		else
			mbufs[place] = taken[at];
	}
	if (*error != 0) {
		rte_mempool_free(pool);
		rte_extmem_unregister(base, bytes);
		pool = NULL;
	}
out:
	free(taken);
	free(addresses);
	return pool;
}

/* No mbuf of the pool may be in use by a driver. `base` is NULL for a pool without external memory. */
FY_EXPORT void fy_pool_free(struct rte_mempool *pool, void *base, uint64_t bytes)
{
	rte_mempool_free(pool);
	if (base != NULL)
		rte_extmem_unregister(base, bytes);
}

FY_EXPORT uint32_t fy_pool_available(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

FY_EXPORT void fy_pool_put(struct rte_mempool *pool, struct rte_mbuf *const *mbufs, uint32_t count)
{
	rte_mempool_put_bulk(pool, (void *const *)mbufs, count);
}

/* Takes up to `count` mbufs, and returns how many. */
FY_EXPORT uint32_t fy_pool_get(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count)
{
	uint32_t available = rte_mempool_avail_count(pool);
	if (count > available)
		count = available;
	if (count == 0 || rte_mempool_get_bulk(pool, (void **)mbufs, count) < 0)
		return 0;
	return count;
}

FY_EXPORT void *fy_mbuf_buffer(const struct rte_mbuf *mbuf)
{
	return mbuf->buf_addr;
}

/* --- devices --- */

FY_EXPORT int fy_device_add(const char *arguments)
{
	return negative(rte_dev_probe(arguments));
}

FY_EXPORT int fy_device_port(const char *name)
{
	uint16_t port;
	int result = rte_eth_dev_get_port_by_name(name, &port);
	return result < 0 ? result : port;
}

/* --- ports --- */

FY_EXPORT int fy_port_info(uint16_t port, struct fy_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &info);
	if (result < 0)
		return result;
	memset(out, 0, sizeof(*out));
	if (info.driver_name != NULL)
		strncpy(out->driver, info.driver_name, sizeof(out->driver) - 1);
	const struct rte_bus *bus = rte_dev_bus(info.device);
	if (bus != NULL && rte_bus_name(bus) != NULL)
		strncpy(out->bus, rte_bus_name(bus), sizeof(out->bus) - 1);
	out->rss_types = info.flow_type_rss_offloads;
	out->rx_offloads = info.rx_offload_capa;
	out->tx_offloads = info.tx_offload_capa;
	out->max_rx_queues = info.max_rx_queues;
	out->max_tx_queues = info.max_tx_queues;
	out->table_entries = info.reta_size;
	out->key_bytes = info.hash_key_size;
	out->min_mtu = info.min_mtu;
	out->max_mtu = info.max_mtu;
	out->socket = rte_eth_dev_socket_id(port);
	out->reports_removal = (*info.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0;
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(out->mac, mac.addr_bytes, sizeof(mac.addr_bytes));
	out->domain = info.switch_info.domain_id; /* UINT16_MAX is RTE_ETH_DEV_SWITCH_DOMAIN_ID_INVALID */
	return 0;
}

static uint32_t removed[RTE_MAX_ETHPORTS];

/* remove.c unregisters it. */
int fy_on_removal(uint16_t port, enum rte_eth_event_type event, void *context, void *more);

int fy_on_removal(uint16_t port, enum rte_eth_event_type event, void *context, void *more)
{
	(void)event;
	(void)context;
	(void)more;
	__atomic_store_n(&removed[port], 1, __ATOMIC_RELEASE);
	return 0;
}

/* Configures and starts a port with as many transmit as receive queues. */
FY_EXPORT int fy_port_open(uint16_t port, const struct fy_settings *of, struct rte_mempool *pool)
{
	struct rte_eth_conf conf;
	struct rte_eth_dev_info info;
	uint16_t rx = of->rx_frames, tx = of->tx_frames;
	int result = rte_eth_dev_info_get(port, &info);
	if (result < 0)
		return result;
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = of->mtu;
	if (of->rss_types != 0 && of->queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = of->rss_types;
		conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH;
	}
	conf.intr_conf.rmv = (*info.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0;
	result = rte_eth_dev_configure(port, of->queues, of->queues, &conf);
	if (result == 0)
		result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
	for (uint16_t queue = 0; result == 0 && queue < of->queues; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, rx, rte_eth_dev_socket_id(port), NULL, pool);
		if (result == 0)
			result = rte_eth_tx_queue_setup(port, queue, tx, rte_eth_dev_socket_id(port), NULL);
	}
	if (result < 0)
		return negative(result);
	__atomic_store_n(&removed[port], 0, __ATOMIC_RELEASE);
	rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_RMV, fy_on_removal, NULL);
	result = rte_eth_dev_start(port);
	if (result < 0)
		return negative(result);
	result = rte_eth_promiscuous_enable(port);
	return result == -ENOTSUP ? 0 : result;
}

FY_EXPORT int fy_port_is_removed(uint16_t port)
{
	return __atomic_load_n(&removed[port], __ATOMIC_ACQUIRE) || rte_eth_dev_is_removed(port);
}

/* For tests of the reaction to the event. */
FY_EXPORT void fy_port_pretend_removed(uint16_t port)
{
	fy_on_removal(port, RTE_ETH_EVENT_INTR_RMV, NULL, NULL);
}

FY_EXPORT int fy_port_dma(uint16_t port, void *base, uint64_t bytes)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);
	if (result < 0)
		return result;
	return rte_dev_dma_map(info.device, base, (uintptr_t)base, bytes) < 0 ? last_error() : 0;
}

FY_EXPORT void fy_port_undma(uint16_t port, void *base, uint64_t bytes)
{
	struct rte_eth_dev_info info;
	if (rte_eth_dev_info_get(port, &info) == 0)
		rte_dev_dma_unmap(info.device, base, (uintptr_t)base, bytes);
}

FY_EXPORT int fy_port_mtu(uint16_t port)
{
	uint16_t mtu;
	int result = rte_eth_dev_get_mtu(port, &mtu);
	return result < 0 ? result : mtu;
}

FY_EXPORT int fy_port_link(uint16_t port, struct fy_link *out)
{
	struct rte_eth_link link;
	int result = rte_eth_link_get_nowait(port, &link);
	if (result < 0)
		return result;
	memset(out, 0, sizeof(*out));
	out->mbps = link.link_speed;
	out->is_up = link.link_status;
	out->full_duplex = link.link_duplex;
	return 0;
}

FY_EXPORT int fy_port_stats(uint16_t port, struct fy_stats *out)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);
	if (result < 0)
		return result;
	memset(out, 0, sizeof(*out));
	out->rx_frames = stats.ipackets;
	out->tx_frames = stats.opackets;
	out->rx_bytes = stats.ibytes;
	out->tx_bytes = stats.obytes;
	out->rx_missed = stats.imissed;
	out->rx_errors = stats.ierrors;
	out->tx_errors = stats.oerrors;
	out->rx_no_buffer = stats.rx_nombuf;
	return 0;
}

/* The header fields that the yard hashes: addresses, and the ports of TCP and UDP. */
FY_EXPORT uint64_t fy_rss_usual(void)
{
	return RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;
}

FY_EXPORT int fy_rss_set_key(uint16_t port, uint8_t *key, uint32_t bytes, uint64_t types)
{
	struct rte_eth_rss_conf conf = { .rss_key = key, .rss_key_len = bytes, .rss_hf = types };
	return rte_eth_dev_rss_hash_update(port, &conf);
}

FY_EXPORT int fy_rss_key(uint16_t port, uint8_t *key, uint32_t bytes, uint64_t *types)
{
	struct rte_eth_rss_conf conf = { .rss_key = key, .rss_key_len = bytes };
	int result = rte_eth_dev_rss_hash_conf_get(port, &conf);
	*types = conf.rss_hf;
	return result;
}

static struct rte_eth_rss_reta_entry64 *groups(uint32_t entries)
{
	return calloc((entries + RTE_ETH_RETA_GROUP_SIZE - 1) / RTE_ETH_RETA_GROUP_SIZE,
		      sizeof(struct rte_eth_rss_reta_entry64));
}

FY_EXPORT int fy_rss_set_table(uint16_t port, const uint16_t *queues, uint32_t entries)
{
	struct rte_eth_rss_reta_entry64 *table = groups(entries);
	if (table == NULL)
		return -ENOMEM;
	for (uint32_t at = 0; at < entries; at++) {
		table[at / RTE_ETH_RETA_GROUP_SIZE].mask |= 1ull << at % RTE_ETH_RETA_GROUP_SIZE;
		table[at / RTE_ETH_RETA_GROUP_SIZE].reta[at % RTE_ETH_RETA_GROUP_SIZE] = queues[at];
	}
	int result = rte_eth_dev_rss_reta_update(port, table, entries);
	free(table);
	return result;
}

FY_EXPORT int fy_rss_table(uint16_t port, uint16_t *queues, uint32_t entries)
{
	struct rte_eth_rss_reta_entry64 *table = groups(entries);
	if (table == NULL)
		return -ENOMEM;
	for (uint32_t at = 0; at < entries; at++)
		table[at / RTE_ETH_RETA_GROUP_SIZE].mask |= 1ull << at % RTE_ETH_RETA_GROUP_SIZE;
	int result = rte_eth_dev_rss_reta_query(port, table, entries);
	for (uint32_t at = 0; at < entries; at++)
		queues[at] = table[at / RTE_ETH_RETA_GROUP_SIZE].reta[at % RTE_ETH_RETA_GROUP_SIZE];
	free(table);
	return result;
}

/* --- bursts --- */

FY_EXPORT uint32_t fy_rx(uint16_t port, uint16_t queue, const struct rte_mempool *pool, struct fy_received *out,
			 uint32_t most)
{
	struct rte_mbuf *mbufs[FY_BURST];
	uint32_t count = rte_eth_rx_burst(port, queue, mbufs, most < FY_BURST ? most : FY_BURST);
	for (uint32_t at = 0; at < count; at++) {
		struct rte_mbuf *mbuf = mbufs[at];
		uint64_t seen = mbuf->ol_flags;
		uint32_t flags = 0;
		if (mbuf->pool == pool && mbuf->nb_segs == 1 && rte_mbuf_refcnt_read(mbuf) == 1 &&
		    (seen & RTE_MBUF_F_INDIRECT) == 0)
			flags |= FY_OURS;
		if (seen & RTE_MBUF_F_RX_RSS_HASH)
			flags |= FY_HASH;
		if (seen & RTE_MBUF_F_RX_FDIR_ID)
			flags |= FY_MARK;
		if ((seen & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_BAD)
			flags |= FY_BAD_IP;
		if ((seen & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD)
			flags |= FY_BAD_L4;
		out[at] = (struct fy_received){
			.mbuf = mbuf, .data = rte_pktmbuf_mtod(mbuf, uint8_t *), .first_bytes = mbuf->data_len,
			.bytes = mbuf->pkt_len, .hash = mbuf->hash.rss, .mark = mbuf->hash.fdir.hi, .flags = flags,
		};
	}
	return count;
}

/* Copies the segments of `mbuf` to `to`, which has room for all of its bytes. */
FY_EXPORT void fy_gather(const struct rte_mbuf *mbuf, uint8_t *to)
{
	for (; mbuf != NULL; mbuf = mbuf->next) {
		memcpy(to, rte_pktmbuf_mtod(mbuf, const uint8_t *), mbuf->data_len);
		to += mbuf->data_len;
	}
}

FY_EXPORT void fy_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

/* Transmits buffers of external memory; returns how many. The driver has those until they are in the pool again. */
FY_EXPORT uint32_t fy_tx_lent(uint16_t port, uint16_t queue, struct rte_mbuf *const *mbufs, const struct fy_lent *frames,
			      uint32_t count)
{
	struct rte_mbuf *burst[FY_BURST];
	if (count > FY_BURST)
		count = FY_BURST;
	for (uint32_t at = 0; at < count; at++) {
		struct rte_mbuf *mbuf = mbufs[frames[at].place];
		rte_pktmbuf_reset(mbuf);
		mbuf->data_off = frames[at].off;
		mbuf->data_len = frames[at].bytes;
		mbuf->pkt_len = frames[at].bytes;
		burst[at] = mbuf;
	}
	return rte_eth_tx_burst(port, queue, burst, count);
}

/* Copies frames and transmits them; returns how many. */
FY_EXPORT uint32_t fy_tx_copy(uint16_t port, uint16_t queue, struct rte_mempool *pool, const struct fy_bytes *frames,
			      uint32_t count)
{
	struct rte_mbuf *burst[FY_BURST];
	uint32_t made = 0;
	if (count > FY_BURST)
		count = FY_BURST;
	for (; made < count; made++) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
		if (mbuf == NULL)
			break;
		char *to = rte_pktmbuf_append(mbuf, frames[made].bytes);
		if (to == NULL) {
			rte_pktmbuf_free(mbuf);
			break;
		}
		memcpy(to, frames[made].data, frames[made].bytes);
		burst[made] = mbuf;
	}
	uint32_t sent = made == 0 ? 0 : rte_eth_tx_burst(port, queue, burst, made);
	for (uint32_t at = sent; at < made; at++)
		rte_pktmbuf_free(burst[at]);
	return sent;
}
