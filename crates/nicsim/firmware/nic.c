/* Firmware of the programmable adapter: frame-level parallel, with a distributed event queue
 * (Willmann et al., HPCA 2005, section 3.3).
 *
 *   host posts   fetch    walk     DMA in   transmit   done
 *   send BDs  ─> sbd[] ─> txf[] ─> drd[] ─> mtx[]   ─> notify the host      any core, any stage
 *   recv BDs  ─> rbd[] ─┐
 *   link      ─> mrx[] ─┴────────> dwr[] ─> return BDs ─> notify the host
 *
 * Every stage has the same parts: a progress pointer that the previous stage advances, a claim counter that
 * the cores advance (a core claims a bundle of work units and runs its handler), and done marks that put
 * the results back into order (commit). Indices increase without limit; ring sizes are powers of two.
 *
 * Variants, one of:
 *   IDEAL   one core, no locks, no marks (Table 1)
 *   SWONLY  marks are words, commits run under a lock
 *   RMW     marks are bits: `set` and `update`
 *   TASK    the event register of section 3.2: one core at a time for each kind of event, no marks
 * and STEER in addition to RMW: RSS and exact-match filters choose one of several return rings.
 *
 * Invariants: a claim never passes its pointer; a mark is set before its commit; only the core that
 * cleared mark p advances the pointer from p; windows are smaller than rings, so no slot is reused early. */
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

/* A cookie identifies the purpose of a DMA: the kind in bits 28..32, the last part in 27, the number below. */
enum { FOR_SBD = 1, FOR_RBD, FOR_FRAME, FOR_RETURN, FOR_STATUS };
#define COOKIE(kind, number) ((u32)(kind) << 28 | ((number) & 0x07ffffff))
#define LAST_PART 0x08000000u

/* The state of a frame that is being sent. */
struct tx_frame { u32 first_bd, end_bd, len, flags, vlan, place, unused[2]; }; /* flags in bits 16..31 */

/* The state of a received frame until its bytes are in the host: what its return descriptor will say. */
struct rx_frame { u32 queue, host, len, flags, vlan, hash, opaque, refused; };

/* An event: work units of one kind. A core describes the units that it claims in an event structure and calls the
 * handler with it (section 3.3, Figure 5). */
struct event { u32 kind, from, to; };
enum { EV_DMA_READS = 1, EV_SEND_FRAMES, EV_FRAMES_SENT, EV_RECV_FRAMES, EV_DMA_WRITES };

/* The statistics of a core, as in the Tigon's statistics block: those of RFC 2819, which count every frame on the
 * link, damaged ones too, and those of RFC 2863, which count the frames that the interface delivers. */
struct count64 { u32 low, high; };
struct counts {
    u32 packets, sizes[8];
    struct count64 octets, bytes, unicast, multicast, broadcast;
    u32 errors, discards, vlan, checksum, dmas, no_buffer;
};
struct core {
    u32 id, trace, steered;
    volatile struct event event;
    struct counts sent, received;
};

#define SHARED __attribute__((aligned(16)))
/* Cores and assists share all of these, and a stage reads what another core wrote, so each access is one of
 * the program: `volatile` (section 3.3: synchronization for all data shared between tasks). */
static volatile struct send_bd sbd[SBDS] SHARED;
static volatile struct recv_bd rbd[RBDS] SHARED;
static volatile struct recv_bd returns[RETS] SHARED;
static volatile struct dma drd[DRDS] SHARED, dwr[DWRS] SHARED;
static volatile struct mac_tx mtx[MTXS] SHARED;
static volatile struct mac_rx mrx[MRXS] SHARED;
static volatile struct tx_frame txf[TXFS] SHARED;
static volatile struct rx_frame rxf[MRXS] SHARED;
static struct core cores[16] SHARED;
static volatile struct event queue[EVENTS] SHARED;
static u32 nowhere SHARED;             /* the target of a DMA whose data are not used */
static volatile u32 status[4] SHARED; /* send descriptors consumed, for the host */
/* Return descriptors produced, for the host: a copy for each outstanding DMA, because a newer number
 * must not overtake its descriptors. A notification takes two DMA slots, so there are at most DWRS / 4. */
enum { TELLS = DWRS / 4, TELL_WORDS = STEER ? 8 : 1 };
static volatile u32 tells[TELLS][TELL_WORDS] SHARED;

/* Send side: pointers, claims, locks. */
static struct {
    volatile u32 requested, arrived, fetching;    /* send BDs: requested, walked */
    volatile u32 frames, frame_claim;             /* frames formed, frames being sent */
    volatile u32 drd_reserved, drd_claim;         /* DMA reads: slots taken, completions taken */
    volatile u32 mtx_claim, sent, told;           /* completions taken, in order, reported to the host */
    u32 open_first, open_len;                     /* a frame whose end the walk has not found: first BD, bytes */
    volatile u32 fetch_lock, drd_lock, drd_claim_lock, frame_lock, mtx_claim_lock, tell_lock;
    volatile u32 commit_drd_lock, commit_mtx_lock, commit_sent_lock;
    u32 last_interrupt;
} S SHARED;

/* Receive side. */
static struct {
    volatile u32 requested, arrived, fetching;
    volatile u32 mrx_claim, next_buffer;
    volatile u32 dwr_reserved, dwr_claim;
    volatile u32 received, told;
    volatile u32 fetch_lock, dwr_lock, dwr_claim_lock, mrx_lock, tell_lock, buffer_lock;
    volatile u32 commit_dwr_lock, commit_received_lock;
    u32 mini_max, jumbo_min, priority_tag;        /* ring selection: disabled by default */
    u32 tells;                                    /* number of notifications of the host */
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

#include "order.h"
#include "send.h"
#include "receive.h"

#if STEER
#include "steer.h"
#endif

/* --------------------------------------------------------------------------------------- dispatch */

/* Claims up to a bundle of the units between *claim and the limit. The limit only grows, so a value from before
 * the lock was taken is safe. */
#define CLAIM(event_kind, claim, claim_lock, limit_expr, cat)                                      \
    ({                                                                                             \
        u32 ok_ = 0, limit_ = (limit_expr);                                                        \
        if (limit_ != (claim) && TRY(claim_lock, cat)) {                                           \
            u32 from_ = (claim), n_ = limit_ - from_;                                              \
            if ((int)n_ > 0) {                                                                     \
                if (n_ > bundle)                                                                   \
                    n_ = bundle;                                                                   \
                (claim) = from_ + n_;                                                              \
                me->event.kind = (event_kind);                                                     \
                me->event.from = from_;                                                            \
                me->event.to = from_ + n_;                                                         \
                ok_ = 1;                                                                           \
            }                                                                                      \
            CLAIMED(claim_lock, cat, ok_);                                                         \
        }                                                                                          \
        ok_;                                                                                       \
    })
#ifdef TASK
/* Task-level: the kind of event belongs to this core until its handler is done. */
#define CLAIMED(lock, cat, ok) do { if (!(ok)) give_lock(&(lock), cat); } while (0)
#define FINISH(lock, cat) give_lock(&(lock), cat)
#else
#define CLAIMED(lock, cat, ok) UNLOCK(lock, cat)
#define FINISH(lock, cat) ((void)0)
#endif

static inline u32 least(u32 a, u32 b) { return (int)(a - b) < 0 ? a : b; }

/* The limit of frames that may be claimed for sending: formed, and with a free transmit slot. */
static inline u32 sendable(void) { return least(S.frames, S.sent + SLOTS); }
/* The limit of frames that may be claimed for receiving: arrived, with a host buffer and a free return slot. */
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
    u32 busy = 0, bundle = HW->bundle;
    u32 posted = HW->sbd_prod - S.requested;
    /* A whole batch, or fewer if the adapter would otherwise have nothing to do. */
    if (posted && !S.fetching && (posted >= SEND_BATCH || S.frames == S.frame_claim) &&
        TRY(S.fetch_lock, CAT_SEND_LOCK)) {
        if (!S.fetching && HW->sbd_prod != S.requested) {
            S.fetching = 1;
            fetch_send_bds();
            busy = 1;
        }
        UNLOCK(S.fetch_lock, CAT_SEND_LOCK);
    }
    /* Two bundles, because a frame has two regions (section 2.1), so that sending keeps up with receiving. */
    for (u32 n = 0; n < 2; n++) {
        if (!CLAIM(EV_DMA_READS, S.drd_claim, S.drd_claim_lock, HW->drd_done, CAT_SEND_LOCK))
            break;
        dma_reads_done(me, &me->event);
        FINISH(S.drd_claim_lock, CAT_SEND_LOCK);
        busy = 1;
    }
    if (CLAIM(EV_SEND_FRAMES, S.frame_claim, S.frame_lock, sendable(), CAT_SEND_LOCK)) {
        send_frames(me, &me->event);
        FINISH(S.frame_lock, CAT_SEND_LOCK);
        busy = 1;
    }
    u32 transmitted = HW->mtx_done;
    /* A whole bundle, or fewer if the MAC has nothing to transmit: the host does not wait for them. */
    if ((transmitted - S.mtx_claim >= bundle || transmitted == HW->mtx_prod) &&
        CLAIM(EV_FRAMES_SENT, S.mtx_claim, S.mtx_claim_lock, transmitted, CAT_SEND_LOCK)) {
        frames_sent(me, &me->event);
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
    u32 busy = 0, bundle = HW->bundle;
    u32 posted = HW->rbd_prod - R.requested;
    if (posted && !R.fetching && (posted >= RECV_BATCH || R.arrived == R.mrx_claim) &&
        TRY(R.fetch_lock, CAT_RECV_LOCK)) {
        posted = HW->rbd_prod - R.requested; /* again: another core may have fetched since */
        if (!R.fetching && posted && (posted >= RECV_BATCH || R.arrived == R.mrx_claim)) {
            R.fetching = 1;
            fetch_recv_bds();
            busy = 1;
        }
        UNLOCK(R.fetch_lock, CAT_RECV_LOCK);
    }
    if (CLAIM(EV_RECV_FRAMES, R.mrx_claim, R.mrx_lock, receivable(), CAT_RECV_LOCK)) {
        recv_frames(me, &me->event);
        FINISH(R.mrx_lock, CAT_RECV_LOCK);
        busy = 1;
    }
    if (CLAIM(EV_DMA_WRITES, R.dwr_claim, R.dwr_claim_lock, HW->dwr_done, CAT_RECV_LOCK)) {
        dma_writes_done(me, &me->event);
        FINISH(R.dwr_claim_lock, CAT_RECV_LOCK);
        busy = 1;
    }
    u32 untold = R.received - R.told;
    if (untold && (untold >= HW->coalesce || HW->dwr_prod == HW->dwr_done) && TRY(R.tell_lock, CAT_RECV_LOCK)) {
        tell_received(me);
        UNLOCK(R.tell_lock, CAT_RECV_LOCK);
    }
    return busy;
}

/* Events that handlers could not finish. */
IN("sdo") static void dispatch_queue(struct core *me)
{
    if (!TRY(Q.lock, CAT_SEND_LOCK))
        return;
    me->event.kind = 0;
    if (Q.head != Q.tail) {
        volatile struct event *e = &queue[Q.head & (EVENTS - 1)];
        me->event.kind = e->kind;
        me->event.from = e->from;
        me->event.to = e->to;
        Q.head++;
    }
    UNLOCK(Q.lock, CAT_SEND_LOCK);
    if (me->event.kind == EV_SEND_FRAMES)
        send_frames(me, &me->event);
    else if (me->event.kind == EV_RECV_FRAMES)
        recv_frames(me, &me->event);
}

#ifdef TASK
/* The event register of section 3.2: a bit for each kind, set by hardware, cleared by the core that finds
 * no more events of the kind. Stages that software feeds have no bit; they are checked in every round. */
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
    /* Clear first and check again after: an event that arrives in between sets its bit again. */
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

/* Labels by which the profile counts passes of the loop; they take no time. */
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
        if (UNLIKELY(Q.head != Q.tail))
            dispatch_queue(me);
        if (!busy) {
            LABEL("nic_idle");
            if (seen)
                check_events(seen);
        }
#else
        u32 busy = dispatch_send(me);
        busy |= dispatch_recv(me);
        if (UNLIKELY(Q.head != Q.tail))
            dispatch_queue(me);
        if (!busy) {
            LABEL("nic_idle");
#ifdef RMW /* a mark that was set while another core committed */
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

/* The entry: each core has a stack of 512 bytes, from the end of the scratchpad down. */
__asm__(".section .text.start,\"ax\",@progbits\n .globl _start\n .type _start,@function\n"
        "_start:\n .set push\n .set noreorder\n mfc0 $4, $15\n sll $8, $4, 9\n lui $29, 0x1004\n"
        " j main\n subu $29, $29, $8\n .set pop\n .size _start, .-_start\n .text\n");
