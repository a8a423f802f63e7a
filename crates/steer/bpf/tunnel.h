/* Tunnels: the header between the outer IP (or UDP) and the inner frame. The rules are those of crates/wire (tunnel):
 * an IP protocol number identifies its tunnel; a datagram to a tunnel's port that is no valid tunnel header is plain
 * UDP. */
#pragma once

/* Moves the cursor over a tunnel header. */
INLINE void enter(struct walk *w, u32 size, u32 next, u32 arg, u32 id)
{
	if (left(w) < size)
		return;
	w->at += size;
	payload(w, next, arg, id);
}

INLINE u32 vni(const u8 *p)
{
	return be32(p + 4) >> 8;
}

/* The steps of the EtherTypes that tunnels carry. */
INLINE void enter_type(struct walk *w, u32 size, u32 type, u32 id)
{
	if (type == 0x6558)
		enter(w, size, ETHERNET, 0, id);
	else if (type == 0x0800)
		enter(w, size, IPV4, 0, id);
	else if (type == 0x86dd)
		enter(w, size, IPV6, 0, id);
	else if (type > 1500)
		enter(w, size, ETHER_TYPE, type, id);
	else
		enter(w, size, DONE, 0, id);
}

INLINE void vxlan(struct xdp_md *ctx, struct walk *w, int is_gpe)
{
	const u8 *p = peek(ctx, w, 8);
	if (!p || !(p[0] & 8))
		return;
	u32 id = vni(p);
	if (!is_gpe || !(p[0] & 4) || p[3] == 3)
		enter(w, 8, ETHERNET, 0, id);
	else if (p[3] == 1)
		enter(w, 8, IPV4, 0, id);
	else if (p[3] == 2)
		enter(w, 8, IPV6, 0, id);
	else if (p[3] == 5)
		enter(w, 8, ETHER_TYPE, 0x8847, id);
}

INLINE void geneve(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 8);
	if (!p || p[0] >> 6)
		return;
	enter_type(w, 8 + 4 * (p[0] & 0x3f), be16(p + 2), vni(p));
}

INLINE void gtp(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 8);
	if (!p || (p[0] & 0xf0) != 0x30 || p[1] != 255)
		return;
	u32 flags = p[0] & 7, id = be32(p + 4), size = 8;
	if (flags) {
		p = peek(ctx, w, 12);
		if (!p)
			return;
		size = 12;
		u32 kind = flags & 4 ? p[11] : 0;
		for (int i = 0; i < 8 && kind; i++) {
			p = bytes(ctx, w, w->at + size, 1);
			if (!p || !p[0])
				return;
			size += 4 * p[0];
			p = bytes(ctx, w, w->at + size - 1, 1);
			if (!p)
				return;
			kind = p[0];
		}
		if (kind)
			return;
	}
	p = bytes(ctx, w, w->at + size, 1);
	if (p && (p[0] >> 4 == 4 || p[0] >> 4 == 6))
		enter(w, size, IP, 0, id);
}

INLINE void erspan(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 8);
	if (!p)
		return;
	u32 id = be16(p + 2) & 0x3ff, version = p[0] >> 4;
	if (version == 1) {
		enter(w, 8, ETHERNET, 0, id);
	} else if (version == 2) {
		p = peek(ctx, w, 12);
		if (!p)
			return;
		u32 size = p[11] & 1 ? 20 : 12, kind = p[10] >> 2 & 0x1f;
		enter(w, size, kind == 0 ? ETHERNET : kind == 2 ? IP : DONE, 0, id);
	}
}

/* The size of the source route entries of RFC 1701 at `first`; 0 if they have no end. */
OUTLINE int source_routes(struct xdp_md *ctx, struct walk *w, u32 first)
{
	if (!w)
		return 0;
	u32 at = first;
	for (int i = 0; i < 512; i++) {
		const u8 *p = bytes(ctx, w, at, 4);
		if (!p)
			return 0;
		at += 4 + p[3];
		if (at <= w->end && !p[0] && !p[1] && !p[3])
			return (int)(at - first);
	}
	return 0;
}

INLINE void gre(struct xdp_md *ctx, struct walk *w)
{
	const u8 *p = peek(ctx, w, 4);
	if (!p)
		return;
	u32 flags = be16(p), type = be16(p + 2), version = flags & 7;
	u32 checksum = flags >> 15 & 1, routing = flags >> 14 & 1, key = flags >> 13 & 1;
	u32 sequence = flags >> 12 & 1, id = 0, key_at = 4, size;
	if (version == 0) {
		key_at = 4 + 4 * (checksum | routing);
		size = key_at + 4 * (key + sequence);
	} else if (version == 1) {
		size = 4 + 4 * (key + sequence + (flags >> 7 & 1));
	} else {
		return;
	}
	if (left(w) < size)
		return;
	if (key) {
		p = bytes(ctx, w, w->at + key_at, 4);
		if (!p)
			return;
		id = be32(p) & (version == 1 ? 0xffff : 0xffffffff);
	}
	if (routing && version == 0) {
		u32 routes = source_routes(ctx, w, w->at + size);
		if (!routes)
			return;
		size += routes;
	}
	if (type == 0x880b) {
		enter(w, size, version == 1 && !sequence ? DONE : PPP, 0, id);
	} else if (type == 0x88be && !sequence) {
		enter(w, size, ETHERNET, 0, id);
	} else if (type == 0x88be || type == 0x22eb) {
		w->at += size;
		erspan(ctx, w);
	} else {
		enter_type(w, size, type, id);
	}
}

INLINE void ip_tunnel(struct xdp_md *ctx, struct walk *w, u32 proto)
{
	if (proto == 4) {
		payload(w, IPV4, 0, 0);
	} else if (proto == 41) {
		payload(w, IPV6, 0, 0);
	} else if (proto == 137) {
		payload(w, ETHER_TYPE, 0x8847, 0);
	} else if (proto == 143) {
		payload(w, ETHERNET, 0, 0);
	} else if (proto == 47) {
		gre(ctx, w);
	} else if (proto == 97) {
		const u8 *p = peek(ctx, w, 2);
		if (p && p[0] >> 4 == 3)
			enter(w, 2, ETHERNET, 0, 0);
	}
}
