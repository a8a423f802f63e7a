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
    PUBLISH_DRD(slot + 1);
}

/* Set in the flags of a receive descriptor that names no buffer: its frame is counted and not written. */
#define BD_REFUSED 0x80000000u

/* Checks a batch that has arrived, once: descriptors that name no buffer are marked. */
IN("frb") static void recv_bds_arrived(u32 n)
{
    u32 at = R.arrived;
    volatile struct recv_bd *bd = &rbd[at & HW->recv_mask], *end = bd + n;
    do { /* a batch is never empty */
        if (UNLIKELY((bd->len < SLOT_BYTES) | bd->host_high))
            bd->flags |= BD_REFUSED;
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

/* Gives each of the frames [from, to), which are in the receive buffer, a host buffer, a return descriptor and
 * a DMA. Frame n uses receive descriptor n. */
IN("rcv") static void recv_frames(struct core *me, u32 from, u32 to)
{
    struct counts *c = &me->received;
    u32 slot = reserve_dwr(to - from), mask = HW->recv_mask;
    if (slot == NONE) {
        c->no_buffer++;
        RETRY(EV_RECV_FRAMES, R.mrx_claim, from, to);
        return;
    }
    for (u32 n = from; n != to; n++) {
        volatile struct mac_rx *m = &mrx[n & (MRXS - 1)];
        volatile struct recv_bd *bd = &rbd[n & mask], *ret = &returns[n & (RETS - 1)];
        u32 word = m->len_flags, len = word & 0xffff, flags = word >> 16, addr = m->addr;
        u32 result = flags, vlan = 0, hash = m->stamp, host = bd->host, bytes = len;
        count_on_link(c, len);
        if (flags & (RX_CRC | RX_OVERSIZE | RX_RUNT)) { /* the host gets it, marked as damaged */
            c->errors++;
            result |= 0x8000;
        } else {
            count_delivered(c, len);
            if (flags & RX_BROADCAST)
                c->broadcast++;
            else if (flags & RX_MULTICAST)
                c->multicast++;
            else
                c->unicast++;
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
        if (bd->flags & BD_REFUSED) {
            c->discards++;
            result |= 0x8400;
            host = HW->status + 60;
            bytes = 4;
        }
#ifdef HANDLER
        on_receive(addr, len, flags);
#endif
#if STEER
        u32 queue = steer(me, addr, flags, &hash);
        ret->host_high = queue;
#else
        ret->host_high = 0;
#endif
        ret->host = host;
        ret->len = len;
        ret->flags = result;
        ret->checksum = flags & RX_IP_GOOD ? 0xffff : 0;
        ret->vlan = vlan;
        ret->hash = hash;
        ret->opaque = bd->opaque;
        if (me->trace)
            me->trace = n;
        put_dwr(slot++, host, addr, bytes, COOKIE(FOR_FRAME, n));
    }
    PUBLISH_DWR(slot);
}

/* Completes the DMA writes [from, to). */
IN("rcv") static void dma_writes_done(struct core *me, u32 from, u32 to)
{
    u32 frame_end = 0, any = 0;
    for (u32 slot = from; slot != to; slot++) {
        u32 cookie = dwr[slot & (DWRS - 1)].cookie;
        if (cookie >> 28 == FOR_FRAME) {
            u32 n = cookie & 0x07ffffff;
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
    PUBLISH_DWR(put + 1);
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
    PUBLISH_DWR(slot + 2);
#endif
    R.told = to;
    HW->mrx_cons = to;
    interrupt_host();
    (void)me;
}
