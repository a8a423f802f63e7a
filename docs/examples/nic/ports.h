/* A handler: counts received frames by the last three bits of their UDP or TCP destination port, and
 * those whose TTL has run out. `frame` is the address of the Ethernet header in frame memory. */

static volatile u32 by_port[8];
static volatile u32 expired;

ON_RECEIVE static void on_receive(u32 frame, u32 len, u32 flags)
{
    if (!(flags & RX_IPV4) || len < 64)
        return;
    const volatile u32 *ip = (const volatile u32 *)(frame + 14);
    if ((ip[2] & 255) <= 1) /* the first byte of the word at offset 8: little-endian */
        atomic_add(&expired, 1);
    u32 ports = ip[5];      /* source in the low half, destination in the high half, each big-endian */
    atomic_add(&by_port[ports >> 24 & 7], 1);
}
