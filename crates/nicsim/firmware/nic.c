/* Firmware of the programmable adapter: frame-level parallel, with a distributed event queue
 * (Willmann et al., HPCA 2005, section 3.3).
 *
 *   host posts   fetch    walk     DMA in   transmit   done
 *   send BDs  ─> sbd[] ─> txf[] ─> drd[] ─> mtx[]   ─> tell the host        any core, any stage
 *   recv BDs  ─> rbd[] ─┐
 *   link      ─> mrx[] ─┴────────> dwr[] ─> return BDs ─> tell the host
 *
 * Every stage is the same: a progress pointer that somebody else moves, a claim counter that the cores
 * move (claim a bundle of work units, run its handler), and done marks that put the results back into
 * order (commit). Indices run freely; rings are powers of two.
 *
 * Variants, one of:
 *   IDEAL   one core, no locks, no marks (Table 1)
 *   SWONLY  marks are words, commits run under a lock
 *   RMW     marks are bits: `set` and `update`
 *   TASK    the event register of section 3.2: one core at a time per kind of event, no marks
 * and STEER on top of RMW: RSS and exact-match filters choose one of several return rings.
 *
 * Invariants: a claim never passes its pointer; a mark is set before its commit; only the core that
 * cleared mark p moves the pointer from p; windows are smaller than rings, so no slot is reused early. */
#include "nic.h"

#ifndef STEER
#define STEER 0
#endif
#if defined(IDEAL) || defined(TASK)
#define MARKS 0
#else
#define MARKS 1
#endif

enum { SBDS = 512, RBDS = 512, TXFS = 512, RETS = 512, DRDS = 1024, DWRS = 1024, MTXS = 256, MRXS = 256,
       SLOTS = 256, EVENTS = 64, SEND_BATCH = 32, RECV_BATCH = 16, MAX_FRAME = 1514 };
#define TX_BASE SDRAM
#define RX_BASE (SDRAM + SLOTS * SLOT_BYTES)

/* A cookie says what a DMA was for: kind in bits 28..32, last part in 27, number below. */
enum { FOR_SBD = 1, FOR_RBD, FOR_FRAME, FOR_RETURN, FOR_STATUS };
#define COOKIE(kind, number) ((u32)(kind) << 28 | ((number) & 0x07ffffff))
#define LAST_PART 0x08000000u

/* The state of a frame that is being sent. */
struct tx_frame { u32 first_bd, end_bd, len, flags_vlan; };

/* An event: work units of one kind. */
struct event { u32 kind, from, to; };
enum { EV_SEND_FRAMES = 1, EV_RECV_FRAMES, EV_TELL_SENT, EV_TELL_RECEIVED };

/* What a core counts: RFC 2819 and RFC 2863, as the Tigon's statistics block does. */
struct counts {
    u32 frames, bytes_low, bytes_high, unicast, multicast, broadcast, errors, discards;
    u32 sizes[8], vlan, checksum, dmas, no_buffer;
};
struct core {
    u32 id, trace, steered, unused;
    struct counts sent, received;
};

#define SHARED __attribute__((aligned(16)))
static struct send_bd sbd[SBDS] SHARED;
static struct recv_bd rbd[RBDS] SHARED;
static struct recv_bd returns[RETS] SHARED;
static volatile struct dma drd[DRDS] SHARED, dwr[DWRS] SHARED;
static volatile struct mac_tx mtx[MTXS] SHARED;
static volatile struct mac_rx mrx[MRXS] SHARED;
static struct tx_frame txf[TXFS] SHARED;
static struct core cores[16] SHARED;
static struct event queue[EVENTS] SHARED;
static u32 nowhere SHARED;             /* where a DMA goes that has nowhere to go */
static volatile u32 status[4] SHARED; /* send descriptors consumed, for the host */
/* Return descriptors produced, for the host: a copy for each DMA under way, because a newer number
 * must not overtake its descriptors. A tell takes two DMA slots, so no more than DWRS / 4 are. */
enum { TELLS = DWRS / 4, TELL_WORDS = STEER ? 8 : 1 };
static volatile u32 tells[TELLS][TELL_WORDS] SHARED;

/* Send side: pointers, claims, locks. */
static struct {
    volatile u32 requested, arrived, fetching;    /* send BDs: asked for, walked */
    volatile u32 frames, frame_claim;             /* frames formed, frames being sent */
    volatile u32 drd_reserved, drd_claim;         /* DMA reads: slots taken, completions taken */
    volatile u32 mtx_claim, sent, told;           /* completions taken, in order, told to the host */
    u32 open_first;                               /* the frame that the walk is inside of */
    volatile u32 fetch_lock, drd_lock, drd_claim_lock, frame_lock, mtx_claim_lock, tell_lock;
    volatile u32 commit_drd_lock, commit_mtx_lock, commit_sent_lock;
    u32 last_interrupt;
} S SHARED;

/* Receive side. */
static struct {
    volatile u32 requested, arrived, fetching;
    volatile u32 mrx_claim;
    volatile u32 dwr_reserved, dwr_claim;
    volatile u32 received, told;
    volatile u32 fetch_lock, dwr_lock, dwr_claim_lock, mrx_lock, tell_lock;
    volatile u32 commit_dwr_lock, commit_received_lock;
    u32 mini_max, jumbo_min, priority_tag;        /* ring selection: disabled by default */
    u32 tells;                                    /* how often the host was told */
    u32 produced[8];                              /* return descriptors, by ring */
} R SHARED;

static struct { volatile u32 head, tail, lock, ready; } Q SHARED;

#ifdef RMW
#define MARK_WORDS(n) ((n) / 32)
#else
#define MARK_WORDS(n) (n)
#endif
#if MARKS
static volatile u32 drd_marks[MARK_WORDS(DRDS)] SHARED, dwr_marks[MARK_WORDS(DWRS)] SHARED;
static volatile u32 mtx_marks[MARK_WORDS(MTXS)] SHARED, sent_marks[MARK_WORDS(MTXS)] SHARED;
static volatile u32 received_marks[MARK_WORDS(RETS)] SHARED;
#endif

/* ------------------------------------------------------------------------------------------ order */

#ifdef IDEAL
#define LOCK(lock, cat) ((void)0)
#define TRY(lock, cat) 1
#define UNLOCK(lock, cat) ((void)0)
#else
#define LOCK(lock, cat) take_lock(&(lock), cat)
#define TRY(lock, cat) try_lock(&(lock), cat)
#define UNLOCK(lock, cat) give_lock(&(lock), cat)
#endif

#ifdef RMW
#define MARK(marks, index) nic_set(marks, index)
/* Moves *pointer over the run of marks. Without a lock: only who cleared mark p moves p. */
static inline __attribute__((always_inline)) void commit(volatile u32 *pointer, volatile u32 *marks,
                                                         u32 entries, volatile u32 *lock, u32 cat)
{
    (void)lock;
    (void)cat;
    u32 at = *pointer;
    for (;;) {
        u32 from = at & (entries - 1);
        u32 run = nic_update(marks, from) - from + 1;
        if (!run)
            return;
        at += run;
        *pointer = at;
        if (at & 31) /* `update` sees one word: only at its end there may be more */
            return;
    }
}
#define COMMIT(pointer, marks, entries, lock, cat, end)                                            \
    commit((volatile u32 *)&(pointer), marks, entries, &(lock), cat)
#elif MARKS
#define MARK(marks, index) ((marks)[index] = 1)
#define COMMIT(pointer, marks, entries, lock, cat, end)                                            \
    do {                                                                                           \
        if (try_lock(&(lock), cat)) {                                                              \
            u32 at_ = (pointer), from_ = at_;                                                      \
            while ((marks)[at_ & ((entries)-1)]) {                                                 \
                (marks)[at_ & ((entries)-1)] = 0;                                                  \
                at_++;                                                                             \
            }                                                                                      \
            if (at_ != from_)                                                                      \
                (pointer) = at_;                                                                   \
            give_lock(&(lock), cat);                                                               \
        }                                                                                          \
    } while (0)
#else
#define MARK(marks, index) ((void)0)
#define COMMIT(pointer, marks, entries, lock, cat, end) ((pointer) = (end))
#endif

/* The locks of a commit count as ordering, not as locking: they are what `update` does away with. */
#if MARKS
IN("sdo") static void commit_drd(void)
{
    COMMIT(HW->drd_prod, drd_marks, DRDS, S.commit_drd_lock, CAT_SEND_ORDER, 0);
}
IN("sdo") static void commit_mtx(void)
{
    COMMIT(HW->mtx_prod, mtx_marks, MTXS, S.commit_mtx_lock, CAT_SEND_ORDER, 0);
}
IN("sdo") static void commit_sent(void)
{
    COMMIT(S.sent, sent_marks, MTXS, S.commit_sent_lock, CAT_SEND_ORDER, 0);
}
IN("rdo") static void commit_dwr(void)
{
    COMMIT(HW->dwr_prod, dwr_marks, DWRS, R.commit_dwr_lock, CAT_RECV_ORDER, 0);
}
IN("rdo") static void commit_received(void)
{
    COMMIT(R.received, received_marks, RETS, R.commit_received_lock, CAT_RECV_ORDER, 0);
}
#define PUBLISH_DRD(end) commit_drd()
#define PUBLISH_DWR(end) commit_dwr()
#define PUBLISH_MTX(end) commit_mtx()
#define PUBLISH_SENT(end) commit_sent()
#define PUBLISH_RECEIVED(end) commit_received()
#else
/* Without marks whoever reserves slots also publishes them, under the same lock. */
#define PUBLISH_DRD(end) do { HW->drd_prod = (end); UNLOCK(S.drd_lock, CAT_SEND_LOCK); } while (0)
#define PUBLISH_DWR(end) do { HW->dwr_prod = (end); UNLOCK(R.dwr_lock, CAT_RECV_LOCK); } while (0)
#define PUBLISH_MTX(end) (HW->mtx_prod = (end))
#define PUBLISH_SENT(end) (S.sent = (end))
#define PUBLISH_RECEIVED(end) (R.received = (end))
#endif

/* Takes `n` consecutive DMA slots; the first, or NONE when the assist is too far behind. Half of the
 * ring stays free: completions that a core has claimed still need their cookies. */
#define NONE 0xffffffffu
static inline u32 reserve_drd(u32 n)
{
    LOCK(S.drd_lock, CAT_SEND_LOCK);
    u32 at = S.drd_reserved;
    if (at + n - S.drd_claim > DRDS / 2) {
        UNLOCK(S.drd_lock, CAT_SEND_LOCK);
        return NONE;
    }
    S.drd_reserved = at + n;
#if MARKS
    UNLOCK(S.drd_lock, CAT_SEND_LOCK);
#endif
    return at;
}
static inline u32 reserve_dwr(u32 n)
{
    LOCK(R.dwr_lock, CAT_RECV_LOCK);
    u32 at = R.dwr_reserved;
    if (at + n - R.dwr_claim > DWRS / 2) {
        UNLOCK(R.dwr_lock, CAT_RECV_LOCK);
        return NONE;
    }
    R.dwr_reserved = at + n;
#if MARKS
    UNLOCK(R.dwr_lock, CAT_RECV_LOCK);
#endif
    return at;
}

static inline void put_drd(u32 slot, u32 host, u32 nic, u32 len, u32 cookie)
{
    volatile struct dma *d = &drd[slot & (DRDS - 1)];
    d->host = host;
    d->nic = nic;
    d->len = len;
    d->cookie = cookie;
    MARK(drd_marks, slot & (DRDS - 1));
}
static inline void put_dwr(u32 slot, u32 host, u32 nic, u32 len, u32 cookie)
{
    volatile struct dma *d = &dwr[slot & (DWRS - 1)];
    d->host = host;
    d->nic = nic;
    d->len = len;
    d->cookie = cookie;
    MARK(dwr_marks, slot & (DWRS - 1));
}

/* An event for later: resources were short. Marks put its frames back into order; without marks the
 * claim is taken back instead. Worst case: one per core and kind, far below EVENTS. */
#if MARKS
#define RETRY(kind, claim, from, to) defer(kind, from, to)
#else
#define RETRY(kind, claim, from, to) ((void)(to), (claim) = (from))
#endif
__attribute__((unused)) IN("sdo") static void defer(u32 kind, u32 from, u32 to)
{
    LOCK(Q.lock, CAT_SEND_LOCK);
    struct event *e = &queue[Q.tail & (EVENTS - 1)];
    e->kind = kind;
    e->from = from;
    e->to = to;
    Q.tail++;
    UNLOCK(Q.lock, CAT_SEND_LOCK);
}

/* ------------------------------------------------------------------------------------- statistics */

static inline void count_size(struct counts *c, u32 len)
{
    u32 class = len <= 64 ? 0 : len <= 127 ? 1 : len <= 255 ? 2 : len <= 511 ? 3 : len <= 1023 ? 4
              : len <= 1518 ? 5 : 6;
    c->sizes[class]++;
}
static inline void count_bytes(struct counts *c, u32 len)
{
    u32 low = c->bytes_low + len;
    c->bytes_low = low;
    if (low < len)
        c->bytes_high++;
    c->frames++;
}

/* ------------------------------------------------------------------------------------------- send */

/* Asks for a batch of send descriptors. One batch at a time is under way. */
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
    PUBLISH_DRD(slot + 1);
}

/* A batch has arrived: finds where frames begin and end in it. A batch never wraps. */
IN("fsb") static void walk_send_bds(u32 n)
{
    u32 at = S.arrived, frame = S.frames, first = S.open_first;
    struct send_bd *bd = &sbd[at & HW->send_mask], *end = bd + n;
    while (bd != end) {
        u32 word = bd++->len_flags;
        at++;
        if (word & BD_END << 16) {
            struct tx_frame *f = &txf[frame & (TXFS - 1)];
            f->first_bd = first;
            f->end_bd = first = at;
            frame++;
        }
    }
    S.open_first = first;
    S.arrived = at;
    S.frames = frame;
    S.fetching = 0;
}

/* Brings the bytes of frames [from, to) into the transmit buffer. What the host got wrong is counted
 * and cut to something that can be sent: an empty region, too many bytes, too few. */
IN("snd") static void send_frames(struct core *me, u32 from, u32 to)
{
    struct counts *c = &me->sent;
    u32 parts = 0, mask = HW->send_mask;
    for (u32 f = from; f != to; f++)
        parts += txf[f & (TXFS - 1)].end_bd - txf[f & (TXFS - 1)].first_bd;
    u32 slot = reserve_drd(parts);
    if (slot == NONE) {
        c->no_buffer++;
        RETRY(EV_SEND_FRAMES, S.frame_claim, from, to);
        return;
    }
    for (u32 f = from; f != to; f++) {
        struct tx_frame *t = &txf[f & (TXFS - 1)];
        u32 bd = t->first_bd, end = t->end_bd, total = 0;
        u32 place = TX_BASE + (f & (SLOTS - 1)) * SLOT_BYTES + SLOT_OFFSET;
        u32 cookie = COOKIE(FOR_FRAME, f);
        c->dmas += end - bd;
        for (;;) {
            struct send_bd *b = &sbd[bd++ & mask];
            u32 word = b->len_flags, len = word & 0xffff, host = b->host, nic = place + total;
            if (total + len > MAX_FRAME) {
                c->errors++;
                len = MAX_FRAME - total;
            }
            total += len;
            if (!len || b->host_high) { /* nothing to bring, or beyond what this bus reaches */
                c->errors++;
                host = HW->status;
                nic = (u32)&nowhere;
                len = 4;
            }
            if (bd == end) {
                t->flags_vlan = word >> 16 | b->vlan << 16;
                t->len = total < 14 ? 14 : total;
                put_drd(slot++, host, nic, len, cookie | LAST_PART);
                break;
            }
            put_drd(slot++, host, nic, len, cookie);
        }
    }
    PUBLISH_DRD(slot);
}

/* All of frame f is in the transmit buffer: hands it to the MAC. */
static inline void transmit(struct core *me, u32 f)
{
    struct tx_frame *t = &txf[f & (TXFS - 1)];
    volatile struct mac_tx *m = &mtx[f & (MTXS - 1)];
    u32 flags = t->flags_vlan, word = t->len;
    if (flags & BD_VLAN) {
        word |= TX_VLAN << 11 | (flags & 0xffff0000);
        me->sent.vlan++;
    }
    if (flags & BD_CHECKSUM) {
        word |= TX_CHECKSUM << 11;
        me->sent.checksum++;
    }
    m->addr = TX_BASE + (f & (SLOTS - 1)) * SLOT_BYTES + SLOT_OFFSET;
    m->len_flags_vlan = word;
    MARK(mtx_marks, f & (MTXS - 1));
}

IN("frb") static void recv_bds_arrived(u32 n);

/* DMA reads [from, to) are done: each says by its cookie what it was for. */
IN("snd") static void dma_reads_done(struct core *me, u32 from, u32 to)
{
    u32 frame_end = 0, any = 0;
    for (u32 slot = from; slot != to; slot++) {
        u32 cookie = drd[slot & (DRDS - 1)].cookie;
        u32 kind = cookie >> 28, number = cookie & 0x07ffffff;
        if (kind == FOR_FRAME) {
            if (cookie & LAST_PART) {
                transmit(me, number);
                frame_end = number + 1;
                any = 1;
            }
        } else if (kind == FOR_SBD) {
            walk_send_bds(number);
        } else if (kind == FOR_RBD) {
            recv_bds_arrived(number);
        } else {
            me->sent.errors++;
        }
    }
    if (any)
        PUBLISH_MTX(frame_end);
    (void)frame_end;
}

/* Frames [from, to) are on the wire: statistics, and their buffers are free in order. */
IN("snd") static void frames_sent(struct core *me, u32 from, u32 to)
{
    struct counts *c = &me->sent;
    for (u32 f = from; f != to; f++) {
        struct tx_frame *t = &txf[f & (TXFS - 1)];
        u32 len = t->len + 4, flags = t->flags_vlan;
        if (flags & BD_VLAN)
            len += 4;
        count_bytes(c, len);
        count_size(c, len);
        if (me->trace)
            me->trace = f;
        MARK(sent_marks, f & (MTXS - 1));
    }
    PUBLISH_SENT(to);
}

/* Interrupts the host unless it was interrupted a moment ago. */
static inline void interrupt_host(void)
{
    u32 now = cycles();
    if (now - S.last_interrupt >= HW->interrupt_cycles) {
        S.last_interrupt = now;
        HW->interrupt = 1;
    }
}

/* Tells the host how many send descriptors are free again. */
IN("snd") static void tell_sent(void)
{
    u32 sent = S.sent;
    if (sent != S.told) {
        u32 slot = reserve_dwr(1);
        if (slot != NONE) {
            S.told = sent;
            status[0] = txf[(sent - 1) & (TXFS - 1)].end_bd;
            put_dwr(slot, HW->status, (u32)&status[0], 4, COOKIE(FOR_STATUS, 0));
            PUBLISH_DWR(slot + 1);
            interrupt_host();
        }
    }
}

/* ---------------------------------------------------------------------------------------- receive */

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

/* A batch has arrived: descriptors that name no buffer are refused here, once. */
IN("frb") static void recv_bds_arrived(u32 n)
{
    u32 at = R.arrived;
    struct recv_bd *bd = &rbd[at & HW->recv_mask], *end = bd + n;
    for (; bd != end; bd++)
        if ((bd->len < SLOT_BYTES) | bd->host_high)
            bd->flags |= 0x80000000;
    R.arrived = at + n;
    R.fetching = 0;
}

/* A handler of your own: cargo xtask firmware --handler FILE.h (docs/nic.md). It defines
 * static void on_receive(u32 frame, u32 len, u32 flags), which runs for every received frame. */
#ifdef HANDLER
#define ON_RECEIVE IN("str")
#include HANDLER
#endif

#if STEER
static u32 steer(struct core *me, u32 frame_addr, u32 flags, u32 *hash);
#endif

/* Frames [from, to) are in the receive buffer: gives each a host buffer, a return descriptor and a
 * DMA. Frame n takes receive descriptor n. */
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
        struct recv_bd *bd = &rbd[n & mask], *ret = &returns[n & (RETS - 1)];
        u32 word = m->len_flags, len = word & 0xffff, flags = word >> 16, addr = m->addr;
        u32 result = flags, vlan = 0, hash = m->stamp;
        if (flags & (RX_CRC | RX_OVERSIZE | RX_RUNT)) {
            c->errors++;
            result |= 0x8000;
        }
        if (flags & RX_BROADCAST)
            c->broadcast++;
        else if (flags & RX_MULTICAST)
            c->multicast++;
        else
            c->unicast++;
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
        /* The ring by size: mini and jumbo when the host has set them up. */
        if (len <= R.mini_max)
            result |= 0x1000;
        else if (R.jumbo_min && len >= R.jumbo_min)
            result |= 0x0800;
        if (bd->flags & 0x80000000) {
            c->discards++;
            result |= 0x8000;
        }
        count_bytes(c, len);
        count_size(c, len);
#ifdef HANDLER
        on_receive(addr, len, flags);
#endif
#if STEER
        u32 queue = steer(me, addr, flags, &hash);
        ret->host_high = queue;
#else
        ret->host_high = 0;
#endif
        ret->host = bd->host;
        ret->len = len;
        ret->flags = result;
        ret->checksum = flags & RX_IP_GOOD ? 0xffff : 0;
        ret->vlan = vlan;
        ret->hash = hash;
        ret->opaque = bd->opaque;
        if (me->trace)
            me->trace = n;
        put_dwr(slot++, bd->host, addr, len, COOKIE(FOR_FRAME, n));
    }
    PUBLISH_DWR(slot);
}

/* DMA writes [from, to) are done. */
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

/* Tells the host of the frames that are complete, in order: their return descriptors, then how many.
 * Runs under a lock: two cores must not swap their DMAs. */
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
        struct recv_bd *ret = &returns[f & (RETS - 1)];
        u32 q = ret->host_high & 7, index = R.produced[q];
        if (index - HW->ret_cons[q] > HW->ret_mask) { /* that ring is full: this far and no farther */
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
    for (; reserved != n; reserved--) /* slots that a full ring left over */
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

#if STEER
#include "steer.h"
#endif

/* --------------------------------------------------------------------------------------- dispatch */

/* Claims up to a bundle of the units between *claim and `limit`. */
#define CLAIM(claim, claim_lock, limit_expr, cat, from, to)                                        \
    ({                                                                                             \
        u32 ok_ = 0;                                                                               \
        if ((limit_expr) != (claim) && TRY(claim_lock, cat)) {                                     \
            from = (claim);                                                                        \
            u32 n_ = (limit_expr)-from;                                                            \
            if ((int)n_ > 0) {                                                                     \
                if (n_ > bundle)                                                                   \
                    n_ = bundle;                                                                   \
                to = from + n_;                                                                    \
                (claim) = to;                                                                      \
                ok_ = 1;                                                                           \
            }                                                                                      \
            CLAIMED(claim_lock, cat, ok_);                                                         \
        }                                                                                          \
        ok_;                                                                                       \
    })
#ifdef TASK
/* Task-level: the kind of event stays this core's until its handler is done. */
#define CLAIMED(lock, cat, ok) do { if (!(ok)) give_lock(&(lock), cat); } while (0)
#define FINISH(lock, cat) give_lock(&(lock), cat)
#else
#define CLAIMED(lock, cat, ok) UNLOCK(lock, cat)
#define FINISH(lock, cat) ((void)0)
#endif

static inline u32 least(u32 a, u32 b) { return (int)(a - b) < 0 ? a : b; }

/* Frames that may be claimed for sending: formed, and with a free transmit slot. */
static inline u32 sendable(void) { return least(S.frames, S.sent + SLOTS); }
/* Frames that may be claimed for receiving: arrived, with a host buffer and room to return them. */
static inline u32 receivable(void)
{
    u32 limit = least(HW->mrx_prod, R.arrived);
#if STEER
    return limit;
#else
    return least(limit, HW->ret_cons[0] + HW->ret_mask + 1);
#endif
}

IN("sdo") static u32 dispatch_send(struct core *me)
{
    u32 from = 0, to = 0, busy = 0, bundle = HW->bundle;
    u32 posted = HW->sbd_prod - S.requested;
    /* A whole batch, or what there is when the adapter would run dry. */
    if (posted && !S.fetching && (posted >= SEND_BATCH || S.frames == S.frame_claim) &&
        TRY(S.fetch_lock, CAT_SEND_LOCK)) {
        if (!S.fetching && HW->sbd_prod != S.requested) {
            S.fetching = 1;
            fetch_send_bds();
            busy = 1;
        }
        UNLOCK(S.fetch_lock, CAT_SEND_LOCK);
    }
    if (CLAIM(S.drd_claim, S.drd_claim_lock, HW->drd_done, CAT_SEND_LOCK, from, to)) {
        dma_reads_done(me, from, to);
        FINISH(S.drd_claim_lock, CAT_SEND_LOCK);
        busy = 1;
    }
    if (CLAIM(S.frame_claim, S.frame_lock, sendable(), CAT_SEND_LOCK, from, to)) {
        send_frames(me, from, to);
        FINISH(S.frame_lock, CAT_SEND_LOCK);
        busy = 1;
    }
    if (CLAIM(S.mtx_claim, S.mtx_claim_lock, HW->mtx_done, CAT_SEND_LOCK, from, to)) {
        frames_sent(me, from, to);
        FINISH(S.mtx_claim_lock, CAT_SEND_LOCK);
        busy = 1;
    }
    if (S.sent != S.told && (S.sent - S.told >= HW->coalesce || HW->mtx_prod == HW->mtx_done) &&
        TRY(S.tell_lock, CAT_SEND_LOCK)) {
        tell_sent();
        UNLOCK(S.tell_lock, CAT_SEND_LOCK);
    }
    return busy;
}

IN("rdo") static u32 dispatch_recv(struct core *me)
{
    u32 from = 0, to = 0, busy = 0, bundle = HW->bundle;
    u32 posted = HW->rbd_prod - R.requested;
    if (posted && !R.fetching && (posted >= RECV_BATCH || R.arrived == R.mrx_claim) &&
        TRY(R.fetch_lock, CAT_RECV_LOCK)) {
        if (!R.fetching && HW->rbd_prod != R.requested) {
            R.fetching = 1;
            fetch_recv_bds();
            busy = 1;
        }
        UNLOCK(R.fetch_lock, CAT_RECV_LOCK);
    }
    if (CLAIM(R.mrx_claim, R.mrx_lock, receivable(), CAT_RECV_LOCK, from, to)) {
        recv_frames(me, from, to);
        FINISH(R.mrx_lock, CAT_RECV_LOCK);
        busy = 1;
    }
    if (CLAIM(R.dwr_claim, R.dwr_claim_lock, HW->dwr_done, CAT_RECV_LOCK, from, to)) {
        dma_writes_done(me, from, to);
        FINISH(R.dwr_claim_lock, CAT_RECV_LOCK);
        busy = 1;
    }
    if (R.received != R.told && TRY(R.tell_lock, CAT_RECV_LOCK)) {
        tell_received(me);
        UNLOCK(R.tell_lock, CAT_RECV_LOCK);
    }
    return busy;
}

/* Events that handlers raised or could not finish. */
IN("sdo") static void dispatch_queue(struct core *me)
{
    if (Q.head == Q.tail || !TRY(Q.lock, CAT_SEND_LOCK))
        return;
    u32 kind = 0, from = 0, to = 0;
    if (Q.head != Q.tail) {
        struct event *e = &queue[Q.head & (EVENTS - 1)];
        kind = e->kind;
        from = e->from;
        to = e->to;
        Q.head++;
    }
    UNLOCK(Q.lock, CAT_SEND_LOCK);
    if (kind == EV_SEND_FRAMES)
        send_frames(me, from, to);
    else if (kind == EV_RECV_FRAMES)
        recv_frames(me, from, to);
}

#ifdef TASK
/* The event register of section 3.2: a bit per kind, set by hardware, cleared by whoever finds no
 * more of it. Stages that software feeds have no bit: they are looked at in every round. */
static inline void clear_events(u32 bits)
{
    u32 word;
    __asm__ volatile(".set push\n .set noreorder\n 1: ll %0, 0(%1)\n and %0, %0, %2\n sc %0, 0(%1)\n"
                     " beqz %0, 1b\n nop\n .set pop\n"
                     : "=&r"(word)
                     : "r"(&HW->events), "r"(~bits)
                     : "memory");
}
IN("sdo") static void check_events(u32 seen)
{
    /* Clear first, look again after: an event that arrives between sets its bit anew. */
    clear_events(seen);
    u32 left = 0;
    if (HW->sbd_prod != S.requested) left |= 1 << 0;
    if (HW->rbd_prod != R.requested) left |= 1 << 1;
    if (HW->drd_done != S.drd_claim) left |= 1 << 4;
    if (HW->dwr_done != R.dwr_claim) left |= 1 << 5;
    if (HW->mtx_done != S.mtx_claim) left |= 1 << 6;
    if (HW->mrx_prod != R.mrx_claim) left |= 1 << 7;
    for (u32 bit = 0; bit < 8; bit++)
        if (left >> bit & 1)
            nic_set(&HW->events, bit);
}
#endif

/* Labels that the profile counts passes of the loop by; they cost nothing. */
#define LABEL(name) __asm__ volatile(".globl " name "\n " name ":")

__attribute__((noreturn, noinline)) void main(u32 id)
{
    struct core *me = &cores[id];
    me->id = id;
    if (id == 0) {
        HW->ring[0].base = (u32)drd;
        HW->ring[0].entries = DRDS;
        HW->ring[1].base = (u32)dwr;
        HW->ring[1].entries = DWRS;
        HW->ring[2].base = (u32)mtx;
        HW->ring[2].entries = MTXS;
        HW->ring[3].base = (u32)mrx;
        HW->ring[3].entries = MRXS;
#ifdef TASK
        HW->event_enable = 1;
        HW->events = 0xff;
#endif
#if STEER
        steer_setup();
#endif
        HW->rx_base = RX_BASE;
        HW->rx_slot_bytes = SLOT_BYTES;
        HW->rx_slots = SLOTS;
        Q.ready = 1;
    }
    while (!Q.ready)
        ;
    for (;;) {
        LABEL("nic_pass");
#ifdef TASK
        u32 seen = HW->events;
        u32 busy = 0;
        if (seen & 0x51 || S.frames != S.frame_claim || S.sent != S.told)
            busy |= dispatch_send(me);
        if (seen & 0xa2 || R.received != R.told)
            busy |= dispatch_recv(me);
        dispatch_queue(me);
        if (!busy) {
            LABEL("nic_idle");
            if (seen)
                check_events(seen);
        }
#else
        u32 busy = dispatch_send(me);
        busy |= dispatch_recv(me);
        dispatch_queue(me);
        if (!busy) {
            LABEL("nic_idle");
#if MARKS /* a mark that was set while another core committed */
            commit_drd();
            commit_mtx();
            commit_sent();
            commit_dwr();
            commit_received();
#endif
        }
#endif
    }
}

/* Entry: a stack of 512 bytes a core, from the scratchpad's end down. */
__asm__(".section .text.start,\"ax\",@progbits\n .globl _start\n .type _start,@function\n"
        "_start:\n .set push\n .set noreorder\n mfc0 $4, $15\n sll $8, $4, 9\n lui $29, 0x1004\n"
        " j main\n subu $29, $29, $8\n .set pop\n .size _start, .-_start\n .text\n");
