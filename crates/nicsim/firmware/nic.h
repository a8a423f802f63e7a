/* The machine's interface to firmware: hardware page, descriptors, locks, the two instructions.
 *
 * Everything here is given by the machine (crates/nicsim/src/memory.rs, device/), so your own firmware
 * starts with this file and nic.ld; see docs/nic.md, "Write your own handler". */
#ifndef NIC_H
#define NIC_H

typedef unsigned u32;

/* A condition that is nearly always false; its code is placed out of the way. */
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

struct ring_setup { u32 base, entries; };

/* The first 256 bytes of the scratchpad. Each word has one writer. */
struct hw {
    u32 sbd_prod, rbd_prod, unused[2];             /* host: descriptors posted */
    u32 drd_done, dwr_done, mtx_done, mrx_prod;    /* assists: progress */
    u32 drd_prod, dwr_prod, mtx_prod, mrx_cons;    /* firmware: progress, which the assists watch */
    struct ring_setup ring[4];                     /* DMA read, DMA write, MAC transmit, receive */
    u32 rx_base, rx_slot_bytes, rx_slots;          /* receive buffer; writing rx_slots starts it */
    u32 interrupt;                                 /* any write interrupts the host */
    u32 event_enable, events;                      /* event register: bit n for word n */
    u32 unused2[6];
    u32 cores, bundle;                             /* boot: from the configuration */
    u32 send_ring, send_mask, recv_ring, recv_mask, ret_ring, ret_mask; /* host addresses */
    u32 status, coalesce, interrupt_cycles, queues, steer, filters, mac_high, mac_low;
    u32 unused3[8];
    u32 ret_cons[8];                               /* host: return descriptors consumed */
};
#define HW ((volatile struct hw *)0x10000000)
#define SDRAM 0x20000000u
#define SLOT_BYTES 1536u
#define SLOT_OFFSET 6u /* aligns the IP header to a word, and the payload of a sent frame to 8 bytes */

struct dma { u32 host, nic, len, cookie; };
struct send_bd { u32 host_high, host, len_flags, vlan; };
struct recv_bd { u32 host_high, host, len, flags, checksum, vlan, hash, opaque; };
struct mac_tx { u32 addr, len_flags_vlan; };
struct mac_rx { u32 addr, len_flags, vlan, stamp; };

enum { BD_END = 1, BD_VLAN = 2, BD_CHECKSUM = 4 };
enum { TX_VLAN = 1, TX_CHECKSUM = 2 };
enum { RX_CRC = 1, RX_OVERSIZE = 2, RX_RUNT = 4, RX_MULTICAST = 8, RX_BROADCAST = 16, RX_VLAN = 32,
       RX_IP_GOOD = 64, RX_IPV4 = 128 };

/* Profile categories: a section for each category, locks as ranges (.nicprof). */
enum { CAT_OTHER, CAT_FETCH_SEND, CAT_SEND, CAT_SEND_ORDER, CAT_SEND_LOCK, CAT_FETCH_RECV, CAT_RECV,
       CAT_RECV_ORDER, CAT_RECV_LOCK, CAT_STEER };
#define IN(section_name) __attribute__((noinline, section(".text." section_name)))

/* set and update have no mnemonics: this macro converts register names to numbers. */
__asm__(".macro nic_rmw fn, rd, rs, rt\n"
        " .set nic_d,0\n .set nic_s,0\n .set nic_t,0\n"
        " .irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
        "  .ifc \\rd,$\\n\n .set nic_d,\\n\n .endif\n"
        "  .ifc \\rs,$\\n\n .set nic_s,\\n\n .endif\n"
        "  .ifc \\rt,$\\n\n .set nic_t,\\n\n .endif\n"
        " .endr\n"
        " .ifc \\rd,$gp\n .set nic_d,28\n .endif\n .ifc \\rs,$gp\n .set nic_s,28\n .endif\n"
        " .ifc \\rt,$gp\n .set nic_t,28\n .endif\n"
        " .ifc \\rd,$fp\n .set nic_d,30\n .endif\n .ifc \\rs,$fp\n .set nic_s,30\n .endif\n"
        " .ifc \\rt,$fp\n .set nic_t,30\n .endif\n"
        " .ifc \\rd,$ra\n .set nic_d,31\n .endif\n .ifc \\rs,$ra\n .set nic_s,31\n .endif\n"
        " .ifc \\rt,$ra\n .set nic_t,31\n .endif\n"
        " .word 0x70000000|(nic_s<<21)|(nic_t<<16)|(nic_d<<11)|\\fn\n"
        ".endm\n");

/* Sets bit `index` of a bit array. */
static inline void nic_set(volatile u32 *bits, u32 index)
{
    __asm__ volatile("nic_rmw 0x3e, $0, %0, %1" ::"r"(bits), "r"(index) : "memory");
}

/* Clears the run of set bits from `from` to at most the end of the word. Returns the last index cleared, or
 * from - 1. */
static inline u32 nic_update(volatile u32 *bits, u32 from)
{
    u32 last;
    __asm__ volatile("nic_rmw 0x3f, %0, %1, %2" : "=r"(last) : "r"(bits), "r"(from) : "memory");
    return last;
}

#define PROFILE(cat) ".pushsection .nicprof,\"\",@progbits\n .word 8b, 9b, %[cat]\n .popsection\n"

/* Takes a lock if it is free; otherwise returns 0 at once. */
#define try_lock(lock, category)                                                                   \
    ({                                                                                             \
        u32 got_;                                                                                  \
        __asm__ volatile("8: .set push\n .set noreorder\n ll %0, 0(%1)\n bnez %0, 9f\n li %0, 0\n" \
                         " li %0, 1\n sc %0, 0(%1)\n .set pop\n 9:\n" PROFILE(cat)                 \
                         : "=&r"(got_)                                                             \
                         : "r"(lock), [cat] "i"(category)                                          \
                         : "memory");                                                              \
        got_;                                                                                      \
    })

/* Takes a lock and waits until it is free. */
#define take_lock(lock, category)                                                                  \
    ({                                                                                             \
        u32 got_;                                                                                  \
        __asm__ volatile("8: .set push\n .set noreorder\n 7: ll %0, 0(%1)\n bnez %0, 7b\n nop\n"   \
                         " li %0, 1\n sc %0, 0(%1)\n beqz %0, 7b\n nop\n .set pop\n 9:\n"          \
                         PROFILE(cat)                                                              \
                         : "=&r"(got_)                                                             \
                         : "r"(lock), [cat] "i"(category)                                          \
                         : "memory");                                                              \
    })

#define give_lock(lock, category)                                                                  \
    __asm__ volatile("8: sw $0, 0(%0)\n 9:\n" PROFILE(cat)::"r"(lock), [cat] "i"(category) : "memory")

/* Adds to a word that several cores change; returns the value before. */
static inline u32 atomic_add(volatile u32 *word, u32 value)
{
    u32 old, sum;
    __asm__ volatile(".set push\n .set noreorder\n 1: ll %0, 0(%2)\n addu %1, %0, %3\n"
                     " sc %1, 0(%2)\n beqz %1, 1b\n nop\n .set pop\n"
                     : "=&r"(old), "=&r"(sum)
                     : "r"(word), "r"(value)
                     : "memory");
    return old;
}

static inline u32 cycles(void)
{
    u32 now;
    __asm__ volatile("mfc0 %0, $9" : "=r"(now));
    return now;
}

#endif
