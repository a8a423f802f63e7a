/* The receive side: it fetches buffers, writes frames to them, returns them in order, and notifies the host.
 * Part of nic.c. */

IN("frb") static void fetch_recv_bds(void)
{
    u32 at = R.requested, mask = HW->recv_mask, index = at & mask;
    u32 n = HW->rbd_prod - at;
    if (n > RECV_BATCH)
        n = RECV_BATCH;
    if (n > mask + 1 - index)
        n = mask + 1 - index;
    u32 slot = reserve_drd(1);
    if (slot == NONE) {
        R.fetching = 0;
        return;
    }
    R.requested = at + n;
    put_drd(slot, HW->recv_ring + index * sizeof(struct recv_bd), (u32)&rbd[index],
            n * sizeof(struct recv_bd), COOKIE(FOR_RBD, n));
    PUBLISH_DRD(slot, slot + 1);
}

/* Checks a batch that has arrived, once. From then on `flags` says whether the descriptor names no buffer that a
 * frame may be written to; what the host wrote there is not trusted. */
IN("frb") static void recv_bds_arrived(u32 n)
{
    u32 at = R.arrived;
    volatile struct recv_bd *bd = &rbd[at & HW->recv_mask], *end = bd + n;
    do { /* a batch is never empty */
        bd->flags = bd->host_high | (bd->len < SLOT_BYTES);
    } while (++bd != end);
    R.arrived = at + n;
    R.fetching = 0;
}

/* Your own handler: cargo xtask firmware --handler FILE.h (docs/nic.md). It defines
 * static void on_receive(u32 frame, u32 len, u32 flags), which runs for every received frame. */
#ifdef HANDLER
#define ON_RECEIVE IN("str")
#include HANDLER
#endif

#if STEER
static u32 steer(struct core *me, u32 frame_addr, u32 flags, u32 *hash);
#endif

/* Takes the next host buffers for the frames [from, to). Cores take buffers in the order in which they come here,
 * not in that of the frames. The descriptors are read with the lock held, so that a frame that is returned early does
 * not let the host replace one that a slower core still needs. */
static inline void take_buffers(u32 from, u32 to)
{
    u32 mask = HW->recv_mask;
    LOCK(R.buffer_lock, CAT_RECV_LOCK);
    u32 next = R.next_buffer;
    R.next_buffer = next + (to - from);
    for (; from != to; from++, next++) {
        volatile struct recv_bd *bd = &rbd[next & mask];
        volatile struct rx_frame *f = &rxf[from & (MRXS - 1)];
        f->host = bd->host;
        f->refused = bd->flags;
        f->opaque = bd->opaque;
    }
    UNLOCK(R.buffer_lock, CAT_RECV_LOCK);
}

/* Gives each of the frames [from, to), which are in the receive buffer, a host buffer and a DMA, and writes what its
 * return descriptor will say to its status buffer (section 3.3). */
IN("rcv") static void recv_frames(struct core *me, volatile const struct event *e)
{
    u32 from = e->from, to = e->to;
    struct counts *c = &me->received;
    u32 slot = reserve_dwr(to - from), first = slot;
    if (slot == NONE) {
        c->no_buffer++;
        RETRY(R.mrx_claim, e);
        return;
    }
    take_buffers(from, to);
    for (u32 n = from; n != to; n++) {
        volatile struct mac_rx *m = &mrx[n & (MRXS - 1)];
        volatile struct rx_frame *f = &rxf[n & (MRXS - 1)];
        u32 word = m->len_flags, len = word & 0xffff, flags = word >> 16, addr = m->addr;
        u32 result = flags, vlan = 0, hash = m->stamp, bytes = len;
        count_on_link(c, len);
        if (flags & (RX_CRC | RX_OVERSIZE | RX_RUNT)) { /* the host gets it, marked as damaged */
            c->errors++;
            result |= 0x8000;
        } else {
            add64(&c->bytes, len);
            if (flags & RX_BROADCAST)
                add64(&c->broadcast, 1);
            else if (flags & RX_MULTICAST)
                add64(&c->multicast, 1);
            else
                add64(&c->unicast, 1);
        }
        if (flags & RX_VLAN) {
            vlan = m->vlan;
            c->vlan++;
            if (R.priority_tag && vlan >> 13 >= R.priority_tag)
                result |= 0x4000;
        }
        if (flags & RX_IPV4) {
            if (flags & RX_IP_GOOD)
                c->checksum++;
            else
                result |= 0x2000;
        }
        /* The ring by size: mini and jumbo if the host has configured them. */
        if (len <= R.mini_max)
            result |= 0x1000;
        else if (R.jumbo_min && len >= R.jumbo_min)
            result |= 0x0800;
        /* A refused buffer is not written. The frame's DMA keeps its place in the order, but moves one word of
         * the frame to an unused word of the status block. */
        if (UNLIKELY(f->refused)) {
            c->discards++;
            result |= 0x8400;
            f->host = HW->status + 60;
            bytes = 4;
        }
#ifdef HANDLER
        on_receive(addr, len, flags);
#endif
#if STEER
        f->queue = steer(me, addr, flags, &hash);
#endif
        f->len = len;
        f->flags = result;
        f->vlan = vlan;
        f->hash = hash;
        if (me->trace)
            me->trace = n;
        put_dwr(slot++, f->host, addr, bytes, COOKIE(FOR_FRAME, n));
    }
    PUBLISH_DWR(first, slot);
}

/* Writes the return descriptor of frame n, whose bytes are in the host (section 2.1, step 3 of receiving). */
IN("rcv") static void return_frame(u32 n)
{
    volatile struct rx_frame *f = &rxf[n & (MRXS - 1)];
    volatile struct recv_bd *ret = &returns[n & (RETS - 1)];
    u32 flags = f->flags;
#if STEER
    ret->host_high = f->queue;
#else
    ret->host_high = 0;
#endif
    ret->host = f->host;
    ret->len = f->len;
    ret->flags = flags;
    ret->checksum = flags & RX_IP_GOOD ? 0xffff : 0;
    ret->vlan = f->vlan;
    ret->hash = f->hash;
    ret->opaque = f->opaque;
}

/* Completes the DMA writes [from, to). */
IN("rcv") static void dma_writes_done(struct core *me, volatile const struct event *e)
{
    u32 from = e->from, to = e->to;
    u32 frame_end = 0, any = 0;
    for (u32 slot = from; slot != to; slot++) {
        u32 cookie = dwr[slot & (DWRS - 1)].cookie;
        if (cookie >> 28 == FOR_FRAME) {
            u32 n = cookie & 0x07ffffff;
            return_frame(n);
            MARK(received_marks, n & (RETS - 1));
            frame_end = n + 1;
            any = 1;
        }
        me->received.dmas++;
    }
    if (any)
        PUBLISH_RECEIVED(frame_end);
    (void)frame_end;
}

/* Notifies the host of the frames that are complete, in order: their return descriptors, then their number.
 * Runs under a lock, because the DMAs of two cores must not be exchanged. */
IN("rcv") static void tell_received(struct core *me)
{
    u32 from = R.told, to = R.received;
    if (from == to)
        return;
    u32 n = to - from, room = RETS - (from & (RETS - 1));
    if (n > room)
        n = room;
#if STEER
    if (n > 16)
        n = 16;
    u32 slot = reserve_dwr(n + 1), put = slot, reserved = n;
    if (slot == NONE)
        return;
    for (u32 f = from; f != from + n; f++) {
        volatile struct recv_bd *ret = &returns[f & (RETS - 1)];
        u32 q = ret->host_high & 7, index = R.produced[q];
        if (index - HW->ret_cons[q] > HW->ret_mask) { /* that ring is full: stop here */
            n = f - from;
            break;
        }
        R.produced[q] = index + 1;
        u32 host = HW->ret_ring + (q * (HW->ret_mask + 1) + (index & HW->ret_mask)) * sizeof *ret;
        put_dwr(put++, host, (u32)ret, sizeof *ret, COOKIE(FOR_RETURN, 0));
    }
    volatile u32 *tell = tells[R.tells++ & (TELLS - 1)];
    for (u32 q = 0; q < 8; q++)
        tell[q] = R.produced[q];
    put_dwr(put, HW->status + 4, (u32)tell, 32, COOKIE(FOR_STATUS, 1));
    for (; reserved != n; reserved--) /* slots that are unused because a ring is full */
        put_dwr(++put, HW->status + 60, (u32)&nowhere, 4, COOKIE(FOR_STATUS, 2));
    to = from + n;
    PUBLISH_DWR(slot, put + 1);
#else
    u32 mask = HW->ret_mask, index = from & mask;
    if (n > mask + 1 - index)
        n = mask + 1 - index;
    u32 slot = reserve_dwr(2);
    if (slot == NONE)
        return;
    to = from + n;
    put_dwr(slot, HW->ret_ring + index * sizeof(struct recv_bd), (u32)&returns[from & (RETS - 1)],
            n * sizeof(struct recv_bd), COOKIE(FOR_RETURN, from));
    volatile u32 *tell = tells[R.tells++ & (TELLS - 1)];
    *tell = to;
    put_dwr(slot + 1, HW->status + 4, (u32)tell, 4, COOKIE(FOR_STATUS, 1));
    PUBLISH_DWR(slot, slot + 2);
#endif
    R.told = to;
    HW->mrx_cons = to;
    interrupt_host();
    (void)me;
}
