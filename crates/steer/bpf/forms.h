/* What is hashed of some frames in place of the 4-tuple: QUIC connection ids, and the addresses in the extension headers
 * of mobile IPv6. The model is crates/flow (quic) and crates/adapter (rss). */
#pragma once

#define QUIC_PORTS_MOST 16
/* The longest connection id of QUIC version 1. */
#define ID_MOST 20

/* The user's choice. The loader writes it before the program is loaded, so code for what is off is not loaded at all. */
struct forms {
	u32 is_ipv6_ex;   /* home address and type 2 routing header are hashed in place of the header's addresses */
	u32 id_bytes;     /* of a connection id */
	u32 server_bytes; /* of the server id in it (QUIC-LB), if only that is hashed; otherwise 0 */
	u16 ports[QUIC_PORTS_MOST]; /* of QUIC servers; unused ones are 0 */
};

const volatile struct forms FORMS = {};

INLINE int is_quic(const struct key *key)
{
	if (!FORMS.id_bytes || key->proto != 17 || key->frag || !key->dport)
		return 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < QUIC_PORTS_MOST; i++)
		if (FORMS.ports[i] == key->dport)
			return 1;
	return 0;
}

/* The hash of a QUIC packet's destination connection id (RFC 8999); 0 if the frame has none. */
OUTLINE int hash_of_id(struct xdp_md *ctx, struct walk *w, struct last *l)
{
	u32 zero = 0;
	if (!w || !l || !w->datagram)
		return 0;
	const struct toeplitz *t = map_lookup(&toeplitz, &zero);
	u64 at = w->datagram, wanted = FORMS.id_bytes, size;
	const u8 *p = bytes(ctx, w, at, 1);
	if (!t || !p)
		return 0;
	int is_long = p[0] >> 7;
	if (is_long) {
		p = bytes(ctx, w, at, 6);
		if (!p)
			return 0;
		size = p[5];
		at += 6;
	} else {
		at += 1;
		size = wanted;
	}
	if (!size || at + size > w->end)
		return 0;
	if (FORMS.server_bytes) {
		p = bytes(ctx, w, at, 1);
		/* 7: the server has no id. */
		if (!p || p[0] >> 5 == 7 || size < wanted)
			return 0;
		at += 1;
		wanted = FORMS.server_bytes;
	} else if (size < wanted) {
		wanted = size;
	}
	for (u32 i = 0; i < ID_MOST; i++) {
		if (i >= wanted)
			break;
		p = bytes(ctx, w, at + i, 1);
		if (!p)
			return 0;
		l->input[i] = p[0];
	}
	return hash_input(t, l, wanted);
}

INLINE int quic_hash(struct xdp_md *ctx, struct walk *w, struct last *l)
{
	return is_quic(&w->key) && hash_of_id(ctx, w, l);
}

/* Puts the addresses of mobile IPv6 into the key. Rules have seen the others by then. */
INLINE void other_addresses(struct xdp_md *ctx, struct walk *w)
{
	if (!FORMS.is_ipv6_ex || w->key.eth_type != 0x86dd)
		return;
	const u8 *home = w->home ? bytes(ctx, w, w->home, 16) : NULL;
	if (home)
		__builtin_memcpy(w->key.src, home, 16);
	const u8 *routed = w->routing2 ? bytes(ctx, w, w->routing2, 16) : NULL;
	if (routed)
		__builtin_memcpy(w->key.dst, routed, 16);
}
