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

/* MARK sets the mark of one unit. MARK_NEXT is for units in a row: without `set`, PUBLISH marks them all. */
#ifdef RMW
#define MARK(marks, index) nic_set(marks, index)
#define MARK_NEXT(marks, index) nic_set(marks, index)
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
#elif MARKS
#define MARK(marks, index) ((marks)[index] = 1)
#define MARK_NEXT(marks, index) ((void)0)
/* Section 3.3: synchronize, check for consecutive marks, clear them, update the pointer, release. It waits for the
 * lock: a core that only tried could leave its marks behind until somebody commits again. */
static inline __attribute__((always_inline)) void commit(volatile u32 *pointer, volatile u32 *marks,
                                                         u32 entries, volatile u32 *lock, u32 cat)
{
    take_lock(lock, cat);
    u32 at = *pointer, from = at;
    while (marks[at & (entries - 1)]) {
        marks[at & (entries - 1)] = 0;
        at++;
    }
    if (at != from)
        *pointer = at;
    give_lock(lock, cat);
}
#else
#define MARK(marks, index) ((void)0)
#define MARK_NEXT(marks, index) ((void)0)
#endif

/* The locks of a commit count as ordering, not as locking, because `update` makes them unnecessary. */
#if MARKS
#ifdef RMW
#define DEFINE_COMMIT(name, section, pointer, marks, entries, lock, cat)                           \
    IN(section) static void commit_##name(void)                                                    \
    {                                                                                              \
        commit((volatile u32 *)&(pointer), marks, entries, &(lock), cat);                          \
    }
#define PUBLISH(name, from, to) ((void)(from), commit_##name())
#else
#define DEFINE_COMMIT(name, section, pointer, marks, entries, lock, cat)                           \
    IN(section) static void publish_##name(u32 from, u32 to)                                       \
    {                                                                                              \
        for (; from != to; from++)                                                                 \
            (marks)[from & ((entries)-1)] = 1;                                                     \
        commit((volatile u32 *)&(pointer), marks, entries, &(lock), cat);                          \
    }
#define PUBLISH(name, from, to) publish_##name(from, to)
#endif
DEFINE_COMMIT(drd, "sdo", HW->drd_prod, drd_marks, DRDS, S.commit_drd_lock, CAT_SEND_ORDER)
DEFINE_COMMIT(mtx, "sdo", HW->mtx_prod, mtx_marks, MTXS, S.commit_mtx_lock, CAT_SEND_ORDER)
DEFINE_COMMIT(sent, "sdo", S.sent, sent_marks, MTXS, S.commit_sent_lock, CAT_SEND_ORDER)
DEFINE_COMMIT(dwr, "rdo", HW->dwr_prod, dwr_marks, DWRS, R.commit_dwr_lock, CAT_RECV_ORDER)
DEFINE_COMMIT(received, "rdo", R.received, received_marks, RETS, R.commit_received_lock, CAT_RECV_ORDER)
#define PUBLISH_DRD(from, end) PUBLISH(drd, from, end)
#define PUBLISH_DWR(from, end) PUBLISH(dwr, from, end)
#define PUBLISH_MTX(end) PUBLISH(mtx, end, end) /* MARK has set these marks: frames of several bundles */
#define PUBLISH_SENT(from, end) PUBLISH(sent, from, end)
#define PUBLISH_RECEIVED(end) PUBLISH(received, end, end)
#else
/* Without marks, the core that reserves slots also publishes them, under the same lock. */
#define PUBLISH_DRD(from, end)                                                                     \
    do { (void)(from); HW->drd_prod = (end); UNLOCK(S.drd_lock, CAT_SEND_LOCK); } while (0)
#define PUBLISH_DWR(from, end)                                                                     \
    do { (void)(from); HW->dwr_prod = (end); UNLOCK(R.dwr_lock, CAT_RECV_LOCK); } while (0)
#define PUBLISH_MTX(end) (HW->mtx_prod = (end))
#define PUBLISH_SENT(from, end) ((void)(from), S.sent = (end))
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

/* Functions, because several handlers call them and the instruction cache is small. */
IN("snd") static void put_drd(u32 slot, u32 host, u32 nic, u32 len, u32 cookie)
{
    volatile struct dma *d = &drd[slot & (DRDS - 1)];
    d->host = host;
    d->nic = nic;
    d->len = len;
    d->cookie = cookie;
    MARK_NEXT(drd_marks, slot & (DRDS - 1));
}
IN("rcv") static void put_dwr(u32 slot, u32 host, u32 nic, u32 len, u32 cookie)
{
    volatile struct dma *d = &dwr[slot & (DWRS - 1)];
    d->host = host;
    d->nic = nic;
    d->len = len;
    d->cookie = cookie;
    MARK_NEXT(dwr_marks, slot & (DWRS - 1));
}

/* Queues an event for later because resources were short. Marks put its frames back into order; without
 * marks the claim is undone instead. At most one for each core and kind, far fewer than EVENTS. */
#if MARKS
#define RETRY(claim, event) defer(event)
#else
#define RETRY(claim, event) ((claim) = (event)->from)
#endif
__attribute__((unused)) IN("sdo") static void defer(volatile const struct event *event)
{
    LOCK(Q.lock, CAT_SEND_LOCK);
    volatile struct event *e = &queue[Q.tail & (EVENTS - 1)];
    e->kind = event->kind;
    e->from = event->from;
    e->to = event->to;
    Q.tail++;
    UNLOCK(Q.lock, CAT_SEND_LOCK);
}
