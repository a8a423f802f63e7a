/* The order of results: locks, done marks, commits, and the slots of DMAs. Part of nic.c. */

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
/* Advances *pointer over the run of marks, without a lock: only the core that cleared mark p advances p. */
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
        if (at & 31) /* `update` accesses one word: only at its end there may be more marks */
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

/* The locks of a commit count as ordering, not as locking, because `update` makes them unnecessary. */
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
/* Without marks, the core that reserves slots also publishes them, under the same lock. */
#define PUBLISH_DRD(end) do { HW->drd_prod = (end); UNLOCK(S.drd_lock, CAT_SEND_LOCK); } while (0)
#define PUBLISH_DWR(end) do { HW->dwr_prod = (end); UNLOCK(R.dwr_lock, CAT_RECV_LOCK); } while (0)
#define PUBLISH_MTX(end) (HW->mtx_prod = (end))
#define PUBLISH_SENT(end) (S.sent = (end))
#define PUBLISH_RECEIVED(end) (R.received = (end))
#endif

/* Takes `n` consecutive DMA slots. Returns the first, or NONE if the assist is too far behind. Half of the
 * ring stays free, because completions that a core has claimed still need their cookies. */
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

/* Queues an event for later because resources were short. Marks put its frames back into order; without
 * marks the claim is undone instead. At most one for each core and kind, far fewer than EVENTS. */
#if MARKS
#define RETRY(kind, claim, from, to) defer(kind, from, to)
#else
#define RETRY(kind, claim, from, to) ((void)(to), (claim) = (from))
#endif
__attribute__((unused)) IN("sdo") static void defer(u32 kind, u32 from, u32 to)
{
    LOCK(Q.lock, CAT_SEND_LOCK);
    volatile struct event *e = &queue[Q.tail & (EVENTS - 1)];
    e->kind = kind;
    e->from = from;
    e->to = to;
    Q.tail++;
    UNLOCK(Q.lock, CAT_SEND_LOCK);
}
