/* The queue of a received frame: RSS and exact-match filters in firmware.
 *
 * The headers are in frame memory, so each of their words must pass the crossbar and wait for the bursts of
 * the assists. This dominates the cost of steering on this machine; the profile has a row for it.
 *
 *   filter table (as Flow Director) ── hit ──> its queue
 *        └─ miss ─> Toeplitz hash ─> indirection table ─> queue;   anything but UDP and TCP ─> 0
 *
 * The Toeplitz hash of 12 bytes is the exclusive or of 24 table entries, one for each nibble. */

enum { STEER_RSS = 1, STEER_FILTERS = 2, BUCKETS = 1024, PROBES = 8, INDIRECTION = 128 };

/* A filter: addresses and ports as they are in the frame, queue + 1 (0 is an empty bucket). */
struct filter { u32 src, dst, ports, queue; };
static volatile struct filter filters[BUCKETS] SHARED; /* filled by the host before the start */
static u32 toeplitz[24][16] SHARED;
static unsigned char indirection[INDIRECTION] SHARED;

/* The first 16 of the 40 bytes of Microsoft's verification key: 12 bytes of input use no more. */
static const u32 rss_key[4] = { 0x6d5a56da, 0x255b0ec2, 0x4167253d, 0x43a38fb0 };

/* Entry [n][v] is the contribution of nibble n of the input if its value is v. */
IN("str") static void steer_setup(void)
{
    for (u32 n = 0; n < 24; n++) {
        u32 high = rss_key[n >> 3], low = rss_key[(n >> 3) + 1], at = 4 * (n & 7);
        for (u32 bit = 0; bit < 4; bit++, at++) {
            u32 window = at ? high << at | low >> (32 - at) : high;
            for (u32 v = 0; v < 16; v++)
                if (v & 8 >> bit)
                    toeplitz[n][v] ^= window;
        }
    }
    for (u32 n = 0, queue = 0; n < INDIRECTION; n++) {
        indirection[n] = queue;
        queue = queue + 1 == HW->queues ? 0 : queue + 1;
    }
}

static inline u32 hash_word(u32 hash, u32 word, u32 first)
{
    for (u32 n = 0; n < 4; n++) { /* bytes in the order of the frame, the high nibble first */
        u32 byte = word >> 8 * n & 255;
        hash ^= toeplitz[first + 2 * n][byte >> 4] ^ toeplitz[first + 2 * n + 1][byte & 15];
    }
    return hash;
}

/* Must be the same as in crates/nicsim/src/steer.rs. */
static inline u32 bucket_of(u32 src, u32 dst, u32 ports)
{
    return (src ^ (dst << 16 | dst >> 16) ^ ports) * 0x9e3779b1u >> 22;
}

IN("str") static u32 steer(struct core *me, u32 frame, u32 flags, u32 *hash)
{
    u32 how = HW->steer;
    if (!how || !(flags & RX_IPV4))
        return 0;
    const volatile u32 *ip = (const volatile u32 *)(frame + 14); /* a header of 20 bytes, as the MAC has checked */
    u32 protocol = ip[2] >> 8 & 255;
    if ((protocol != 17 && protocol != 6) || ip[1] & 0xff3f0000) /* a fragment */
        return 0;
    u32 src = ip[3], dst = ip[4], ports = ip[5];
    if (how & STEER_FILTERS) {
        u32 at = bucket_of(src, dst, ports);
        for (u32 n = 0; n < PROBES; n++) {
            volatile struct filter *f = &filters[(at + n) & (BUCKETS - 1)];
            if (!f->queue)
                break;
            if (f->src == src && f->dst == dst && f->ports == ports) {
                me->steered++;
                return f->queue - 1;
            }
        }
    }
    if (!(how & STEER_RSS))
        return 0;
    u32 sum = hash_word(hash_word(hash_word(0, src, 0), dst, 8), ports, 16);
    *hash = sum;
    return indirection[sum & (INDIRECTION - 1)];
}
