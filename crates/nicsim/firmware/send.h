/* The send side: it fetches descriptors, finds frames in them, reads the frames from the host, gives them to
 * the MAC, and notifies the host. Part of nic.c. */

/* RFC 2863, 3.1.6: from 650 Mb/s, packets and octets are counted with 64 bits. */
static inline void add64(struct count64 *count, u32 value)
{
    u32 low = count->low + value;
    count->low = low;
    if (low < value)
        count->high++;
}
/* RFC 2819: packets, octets and the size classes. */
static inline void count_on_link(struct counts *c, u32 len)
{
    add64(&c->octets, len);
    c->packets++;
    u32 class = len > 1518 ? 6 : len > 1023 ? 5 : len > 511 ? 4 : len > 255 ? 3 : len > 127 ? 2
              : len > 64;
    c->sizes[class]++;
}

/* Requests a batch of send descriptors. One batch at a time is outstanding. */
IN("fsb") static void fetch_send_bds(void)
{
    u32 at = S.requested, mask = HW->send_mask, index = at & mask;
    u32 n = HW->sbd_prod - at;
    if (n > SEND_BATCH)
        n = SEND_BATCH;
    if (n > mask + 1 - index)
        n = mask + 1 - index;
    u32 slot = reserve_drd(1);
    if (slot == NONE) {
        S.fetching = 0;
        return;
    }
    S.requested = at + n;
    put_drd(slot, HW->send_ring + index * sizeof(struct send_bd), (u32)&sbd[index],
            n * sizeof(struct send_bd), COOKIE(FOR_SBD, n));
    PUBLISH_DRD(slot, slot + 1);
}

/* Set in the flags of a send descriptor whose address is beyond this bus: nothing is read for it. */
#define BD_FAR 0x80000000u

/* Checks a batch that has arrived, once, and forms its frames: where they begin and end, their length, flags and
 * VLAN tag. A batch never wraps. */
IN("fsb") static void walk_send_bds(u32 n)
{
    u32 at = S.arrived, frame = S.frames, first = S.open_first, len = S.open_len;
    volatile struct send_bd *bd = &sbd[at & HW->send_mask], *end = bd + n;
    while (bd != end) {
        u32 word = bd->len_flags;
        if (UNLIKELY(bd->host_high))
            bd->len_flags = word |= BD_FAR;
        at++;
        len += word & 0xffff;
        if (word & BD_END << 16) {
            volatile struct tx_frame *f = &txf[frame & (TXFS - 1)];
            f->first_bd = first;
            f->end_bd = first = at;
            f->len = len;
            f->flags = word;
            f->vlan = bd->vlan;
            len = 0;
            frame++;
        }
        bd++;
    }
    S.open_first = first;
    S.open_len = len;
    S.arrived = at;
    S.frames = frame;
    S.fetching = 0;
}

/* Reads the bytes of frames [from, to) into the transmit buffer. Errors of the host (an empty region, too many
 * bytes, too few) are counted, and the frame is changed to one that can be sent. */
IN("snd") static void send_frames(struct core *me, volatile const struct event *e)
{
    u32 from = e->from, to = e->to;
    struct counts *c = &me->sent;
    u32 mask = HW->send_mask;
    u32 parts = txf[(to - 1) & (TXFS - 1)].end_bd - txf[from & (TXFS - 1)].first_bd;
    u32 slot = reserve_drd(parts), first = slot;
    if (slot == NONE) {
        c->no_buffer++;
        RETRY(S.frame_claim, e);
        return;
    }
    for (u32 f = from; f != to; f++) {
        volatile struct tx_frame *t = &txf[f & (TXFS - 1)];
        u32 bd = t->first_bd, end = t->end_bd, total = 0;
        u32 place = TX_BASE + (f & (SLOTS - 1)) * SLOT_BYTES + SLOT_OFFSET;
        u32 cookie = COOKIE(FOR_FRAME, f);
        t->place = place;
        u32 bytes = t->len;
        if (UNLIKELY(bytes - 14 > MAX_FRAME - 14)) /* too few, or too many */
            t->len = bytes < 14 ? 14 : MAX_FRAME;
        c->dmas += end - bd;
        for (;;) {
            volatile struct send_bd *b = &sbd[bd++ & mask];
            u32 word = b->len_flags, len = word & 0xffff, host = b->host, nic = place + total;
            if (total + len > MAX_FRAME) {
                c->errors++;
                len = MAX_FRAME - total;
            }
            total += len;
            if (!len || word & BD_FAR) { /* nothing to read, or nothing that can be read */
                c->errors++;
                host = HW->status;
                nic = (u32)&nowhere;
                len = 4;
            }
            if (bd == end) {
                put_drd(slot++, host, nic, len, cookie | LAST_PART);
                break;
            }
            put_drd(slot++, host, nic, len, cookie);
        }
    }
    PUBLISH_DRD(first, slot);
}

/* Gives frame f, all of which is in the transmit buffer, to the MAC. */
static inline void transmit(struct core *me, u32 f)
{
    volatile struct tx_frame *t = &txf[f & (TXFS - 1)];
    volatile struct mac_tx *m = &mtx[f & (MTXS - 1)];
    u32 word = t->len, flags = t->flags;
    if (flags & BD_VLAN << 16) {
        word |= TX_VLAN << 11 | t->vlan << 16;
        me->sent.vlan++;
    }
    if (flags & BD_CHECKSUM << 16) {
        word |= TX_CHECKSUM << 11;
        me->sent.checksum++;
    }
    m->addr = t->place;
    m->len_flags_vlan = word;
    MARK(mtx_marks, f & (MTXS - 1));
}

IN("frb") static void recv_bds_arrived(u32 n);

/* Completes the DMA reads [from, to); the cookie of each identifies its purpose. */
IN("snd") static void dma_reads_done(struct core *me, volatile const struct event *e)
{
    u32 from = e->from, to = e->to;
    u32 frame_end = 0, any = 0;
    for (u32 slot = from; slot != to; slot++) {
        u32 cookie = drd[slot & (DRDS - 1)].cookie;
        u32 kind = cookie >> 28, number = cookie & 0x07ffffff;
        if ((cookie & ~0x07ffffffu) == (FOR_FRAME << 28 | LAST_PART)) {
            transmit(me, number);
            frame_end = number + 1;
            any = 1;
        } else if (kind == FOR_SBD) {
            walk_send_bds(number);
        } else if (kind == FOR_RBD) {
            recv_bds_arrived(number);
        } else if (kind != FOR_FRAME) {
            me->sent.errors++;
        }
    }
    if (any)
        PUBLISH_MTX(frame_end);
    (void)frame_end;
}

/* Counts the transmitted frames [from, to) and frees their buffers in order. */
IN("snd") static void frames_sent(struct core *me, volatile const struct event *e)
{
    u32 from = e->from, to = e->to;
    struct counts *c = &me->sent;
    for (u32 f = from; f != to; f++) {
        volatile struct tx_frame *t = &txf[f & (TXFS - 1)];
        u32 len = t->len + 4;
        if (t->flags & BD_VLAN << 16)
            len += 4;
        count_on_link(c, len);
        add64(&c->bytes, len);
        add64(&c->unicast, 1);
        if (me->trace)
            me->trace = f;
        MARK_NEXT(sent_marks, f & (MTXS - 1));
    }
    PUBLISH_SENT(from, to);
}

/* Interrupts the host unless it was interrupted less than interrupt_cycles ago. */
static inline void interrupt_host(void)
{
    u32 now = cycles();
    if (now - S.last_interrupt >= HW->interrupt_cycles) {
        S.last_interrupt = now;
        HW->interrupt = 1;
    }
}

/* Notifies the host of the send descriptors that are free again. */
IN("snd") static void tell_sent(void)
{
    u32 sent = S.sent;
    if (sent != S.told) {
        u32 slot = reserve_dwr(1);
        if (slot != NONE) {
            S.told = sent;
            status[0] = txf[(sent - 1) & (TXFS - 1)].end_bd;
            put_dwr(slot, HW->status, (u32)&status[0], 4, COOKIE(FOR_STATUS, 0));
            PUBLISH_DWR(slot, slot + 1);
            interrupt_host();
        }
    }
}
