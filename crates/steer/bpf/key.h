/* The header fields of a frame, and the cursor that finds them.
 *
 * `struct key` is FlowKey of crates/frame: 64 bytes, integers in the machine's order, addresses in network order,
 * absent fields zero. The rules by which it is filled are those of crates/wire and crates/flow (parse), header by
 * header; a test compares the two on frames of every kind. */
#pragma once
#include "kernel.h"

struct key {
	u8 src[16], dst[16];
	u16 sport, dport;
	u8 proto, frag, tos, tcp_flags;
	u8 eth_dst[6], eth_src[6];
	u16 eth_type, vlan_tci, in_port, flex;
	u32 tunnel_id;
} __attribute__((aligned(8)));

/* The header at the cursor. */
enum step {
	DONE,
	ETHERNET,
	ETHER_TYPE, /* the type is in `arg` */
	TAG,
	LLC,
	LABEL,
	PPPOE,
	PPP,
	IP,
	IPV4,
	IPV6,
	EXTENSION, /* the protocol is in `arg` */
	TRANSPORT, /* the protocol is in `arg` */
};

struct walk {
	struct key key;
	u64 at;      /* offset of the next header */
	u64 end;     /* offset of the first byte after the innermost packet */
	u32 bounded; /* whether a length field has moved `end` */
	u32 step, arg;
	u32 count; /* labels or extension headers so far */
	u64 l3, option;
	u32 later, more; /* fragment: a later one; more follow */
	u32 is_ip;
	u32 next, next_arg, next_id; /* the payload, if it is a tunnel's: its first step, and its VNI or the like */
	u32 zero_length; /* the length field of the IP header is zero */
	u32 tags;        /* so far */
	u32 home, routing2; /* offsets of the address in a home address option, and in a routing header of type 2 */
	u32 datagram;       /* offset of the payload of UDP */
	u32 reserved;
};

/* Frames are looked at up to here: nothing that XDP receives in one piece is longer. */
#define LONGEST 0x3fff

/* The next `n` bytes at `at`, if the packet has them. */
INLINE const u8 *bytes(struct xdp_md *ctx, const struct walk *w, u64 at, u32 n)
{
	const u8 *data = (const u8 *)(long)ctx->data, *data_end = (const u8 *)(long)ctx->data_end;
	/* The compiler must not derive one pointer from another: the verifier would not know its limits. */
	asm volatile("" : "+r"(at));
	if (at > LONGEST || at + n > w->end)
		return NULL;
	const u8 *p = data + at;
	return p + n > data_end ? NULL : p;
}

INLINE const u8 *peek(struct xdp_md *ctx, const struct walk *w, u32 n)
{
	return bytes(ctx, w, w->at, n);
}

INLINE u64 left(const struct walk *w)
{
	return w->end - w->at;
}

INLINE void bound(struct walk *w, u64 end)
{
	if (end <= w->end) {
		w->end = end;
		w->bounded = 1;
	}
}

INLINE void go(struct walk *w, u32 step, u32 arg)
{
	w->step = step;
	w->arg = arg;
	w->count = 0;
}

INLINE int is_tag(u32 type)
{
	return type == 0x8100 || type == 0x88a8 || type == 0x9100 || type == 0x9200 || type == 0x9300;
}

INLINE int is_extension(u32 p)
{
	return p == 0 || p == 43 || p == 44 || p == 51 || p == 60 || p == 135 || p == 139 || p == 140;
}

INLINE void payload(struct walk *w, u32 next, u32 arg, u32 id)
{
	w->next = next;
	w->next_arg = arg;
	w->next_id = id;
}

#include "tunnel.h"

INLINE void ethernet(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 14);
	w->step = DONE;
	if (!p)
		return;
	__builtin_memcpy(w->key.eth_dst, p, 6);
	__builtin_memcpy(w->key.eth_src, p + 6, 6);
	w->at += 14;
	go(w, ETHER_TYPE, be16(p + 12));
}

INLINE void ether_type(struct walk *w)
{
	u32 type = w->arg;
	w->step = DONE;
	if (is_tag(type)) {
		go(w, TAG, 0);
	} else if (type <= 1500) {
		go(w, LLC, 0);
	} else {
		w->key.eth_type = type;
		if (type == 0x0800)
			go(w, IPV4, 0);
		else if (type == 0x86dd)
			go(w, IPV6, 0);
		else if (type == 0x8847 || type == 0x8848)
			go(w, LABEL, 0);
		else if (type == 0x8864)
			go(w, PPPOE, 0);
	}
}

/* At most 16 tags in a level; the outermost is kept. */
INLINE void tag(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 4);
	w->step = DONE;
	if (!p || w->tags == 16)
		return;
	if (w->tags == 0)
		w->key.vlan_tci = be16(p);
	w->tags++;
	w->at += 4;
	go(w, ETHER_TYPE, be16(p + 2));
}

INLINE void llc(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 8);
	w->step = DONE;
	if (!p || p[0] != 0xaa || p[1] != 0xaa || p[2] != 3)
		return;
	if (p[3] || p[4] || (p[5] && p[5] != 0xf8))
		return;
	w->at += 8;
	u32 type = be16(p + 6);
	if (type > 1500)
		go(w, ETHER_TYPE, type);
}

/* Whether the bytes at `at` look like an Ethernet frame in a pseudowire: by a known EtherType. */
INLINE int is_pseudowire(struct xdp_md *ctx, struct walk *w, u64 at)
{
	const u8 *p = bytes(ctx, w, at, 14);
	if (!p)
		return 0;
	u32 type = be16(p + 12);
	return is_tag(type) || type == 0x0800 || type == 0x0806 || type == 0x86dd || type == 0x8847 ||
	       type == 0x8848 || type == 0x8864;
}

INLINE void label(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 4);
	w->step = DONE;
	if (!p || w->count == 16)
		return;
	u8 bottom = p[2] & 1;
	w->at += 4;
	if (!bottom) {
		w->step = LABEL;
		w->count++;
		return;
	}
	p = peek(ctx, w, 1);
	if (!p)
		return;
	u32 nibble = p[0] >> 4;
	if (nibble == 4) {
		go(w, IPV4, 0);
	} else if (nibble == 6) {
		go(w, IPV6, 0);
	} else if (nibble == 0 && is_pseudowire(ctx, w, w->at + 4)) {
		w->at += 4;
		payload(w, ETHERNET, 0, 0);
	} else if (is_pseudowire(ctx, w, w->at)) {
		payload(w, ETHERNET, 0, 0);
	}
}

INLINE void pppoe(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 6);
	w->step = DONE;
	if (!p || p[0] != 0x11)
		return;
	w->at += 6;
	go(w, PPP, 0);
}

INLINE void ppp(struct xdp_md *ctx, struct walk *w)
{
	w->step = DONE;
	const u8 *p = peek(ctx, w, 2);
	if (p && p[0] == 0xff && p[1] == 3) {
		w->at += 2;
		p = peek(ctx, w, 2);
	}
	u32 protocol;
	if (p && !(p[0] & 1)) {
		w->at += 2;
		protocol = be16(p);
	} else {
		p = peek(ctx, w, 1);
		if (!p || !(p[0] & 1))
			return;
		w->at += 1;
		protocol = p[0];
	}
	if (protocol == 0x21)
		go(w, IPV4, 0);
	else if (protocol == 0x57)
		go(w, IPV6, 0);
	else if (protocol == 0x281 || protocol == 0x283)
		go(w, LABEL, 0);
}

INLINE void ip(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 1);
	w->step = DONE;
	if (!p)
		return;
	if (p[0] >> 4 == 4)
		go(w, IPV4, 0);
	else if (p[0] >> 4 == 6)
		go(w, IPV6, 0);
}

INLINE void ipv4(struct xdp_md *ctx, struct walk *w)
{
	w->step = DONE;
	w->l3 = w->at;
	const u8 *p = peek(ctx, w, 20);
	if (!p || p[0] >> 4 != 4)
		return;
	u32 header = (p[0] & 15) * 4, total = be16(p + 2), word = be16(p + 6);
	if (header < 20)
		return;
	w->zero_length = total == 0;
	if (total) {
		if (total < header)
			return;
		bound(w, w->at + total);
	}
	u8 proto = p[9];
	w->is_ip = 1;
	w->key.eth_type = 0x0800;
	w->key.proto = proto;
	w->key.tos = p[1];
	__builtin_memcpy(w->key.src, p + 12, 4);
	__builtin_memcpy(w->key.dst, p + 16, 4);
	w->later = (word & 0x1fff) != 0;
	w->more = (word & 0x2000) != 0;
	if (left(w) < header)
		return;
	w->at += header;
	if (w->later)
		return;
	go(w, proto == 51 ? EXTENSION : TRANSPORT, proto);
}

INLINE void ipv6(struct xdp_md *ctx, struct walk *w)
{
	w->step = DONE;
	w->l3 = w->at;
	const u8 *p = peek(ctx, w, 40);
	if (!p || p[0] >> 4 != 6)
		return;
	u32 length = be16(p + 4), proto = p[6];
	w->is_ip = 1;
	w->key.eth_type = 0x86dd;
	w->key.tos = (u8)(be16(p) >> 4);
	__builtin_memcpy(w->key.src, p + 8, 16);
	__builtin_memcpy(w->key.dst, p + 24, 16);
	w->at += 40;
	w->zero_length = length == 0;
	if (length)
		bound(w, w->at + length);
	if (proto == 6 || proto == 17 || proto == 58) {
		w->key.proto = proto;
		go(w, TRANSPORT, proto);
	} else {
		go(w, EXTENSION, proto);
	}
}

#include "options.h"

INLINE void extension(struct xdp_md *ctx, struct walk *w)
{
	u32 next = w->arg;
	w->step = DONE;
	if (w->count == 17)
		return;
	w->key.proto = next;
	if (!is_extension(next)) {
		go(w, TRANSPORT, next);
		return;
	}
	const u8 *p = peek(ctx, w, 8);
	if (!p)
		return;
	u32 follows = p[0], kind = p[2], word = be16(p + 2);
	u32 size = next == 51 ? (p[1] + 2) * 4 : next == 44 ? 8 : (p[1] + 1) * 8;
	if (left(w) < size || (next == 51 && size < 12))
		return;
	if (next == 0 && is_bad_jumbo(ctx, w, size))
		return;
	if (next == 60 && has_option(ctx, w, size, 0xc9, 16))
		w->home = w->option;
	if (next == 43 && kind == 2 && size >= 24)
		w->routing2 = w->at + 8;
	if (next == 44) {
		w->later = (word & ~7) != 0;
		w->more = word & 1;
	}
	w->at += size;
	if (w->later) {
		w->key.proto = follows;
		return;
	}
	w->step = EXTENSION;
	w->arg = follows;
	w->count++;
}

INLINE void udp(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 8);
	if (!p || w->later || w->more)
		return;
	u32 port = be16(p + 2), length = be16(p + 4);
	if (length < 8 && !(length == 0 && w->zero_length))
		return;
	if (length > left(w) && w->bounded)
		return;
	if (length)
		bound(w, w->at + length);
	w->at += 8;
	w->datagram = w->at;
	if (port == 2152)
		gtp(ctx, w);
	else if (port == 4789 || port == 8472 || port == 4790)
		vxlan(ctx, w, port == 4790);
	else if (port == 6081)
		geneve(ctx, w);
}

INLINE void transport(struct xdp_md *ctx, struct walk *w)
{
	u32 proto = w->arg;
	w->step = DONE;
	if (proto == 6 || proto == 17 || proto == 132) {
		const u8 *p = peek(ctx, w, 4);
		if (!p)
			return;
		w->key.sport = be16(p);
		w->key.dport = be16(p + 2);
		if (proto == 6) {
			p = peek(ctx, w, 14);
			if (p)
				w->key.tcp_flags = p[13];
		} else if (proto == 17) {
			udp(ctx, w);
		}
	} else if (proto != 1 && proto != 58 && !w->more) {
		ip_tunnel(ctx, w, proto);
	}
}

/* One header. The verifier looks at this function once, however long the loop around it is. */
OUTLINE int one_header(struct xdp_md *ctx, struct walk *w)
{
	if (!w)
		return 0;
	switch (w->step) {
	case ETHERNET:
		ethernet(ctx, w);
		break;
	case ETHER_TYPE:
		ether_type(w);
		break;
	case TAG:
		tag(ctx, w);
		break;
	case LLC:
		llc(ctx, w);
		break;
	case LABEL:
		label(ctx, w);
		break;
	case PPPOE:
		pppoe(ctx, w);
		break;
	case PPP:
		ppp(ctx, w);
		break;
	case IP:
		ip(ctx, w);
		break;
	case IPV4:
		ipv4(ctx, w);
		break;
	case IPV6:
		ipv6(ctx, w);
		break;
	case EXTENSION:
		extension(ctx, w);
		break;
	case TRANSPORT:
		transport(ctx, w);
		break;
	default:
		w->step = DONE;
	}
	return w->step != DONE;
}

/* The longest rows of headers that are parsed: tags, LLC, tags, labels, extension headers. */
#define HEADERS 128

INLINE void level(struct xdp_md *ctx, struct walk *w)
{
	for (int i = 0; i < HEADERS; i++)
		if (!one_header(ctx, w))
			break;
	w->key.frag = w->later ? 2 : w->more ? 1 : 0;
}
