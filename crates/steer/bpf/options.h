/* Options in extension headers of IPv6: RFC 8200 section 4.2. */
#pragma once

/* Looks at up to 256 of the options of `size` bytes at the cursor for one of this kind and length, whose value is then
 * at `option`; -1 if there are more options. */
OUTLINE int some_options(struct xdp_md *ctx, struct walk *w, u32 size, u32 kind, u32 length)
{
	if (!w)
		return 0;
	for (u32 i = 0; i < 256; i++) {
		u64 at = w->option;
		if (at + 2 > size)
			return 0;
		const u8 *p = bytes(ctx, w, w->at + at, 2);
		if (!p)
			return 0;
		if (p[0] == 0) {
			w->option = at + 1;
			continue;
		}
		u64 next = at + 2 + p[1];
		if (p[0] == kind && p[1] == length && next <= size) {
			w->option = w->at + at + 2;
			return 1;
		}
		w->option = next;
	}
	return -1;
}

INLINE int has_option(struct xdp_md *ctx, struct walk *w, u32 size, u32 kind, u32 length)
{
	w->option = 2;
	for (int i = 0; i < 8; i++) {
		int found = some_options(ctx, w, size, kind, length);
		if (found >= 0)
			return found;
	}
	return 0;
}

/* Whether a jumbo payload option ends the parse, because it contradicts the length field or says what fits there. */
INLINE int is_bad_jumbo(struct xdp_md *ctx, struct walk *w, u32 size)
{
	if (!has_option(ctx, w, size, 0xc2, 4))
		return 0;
	const u8 *value = bytes(ctx, w, w->option, 4);
	if (!value || be32(value) <= 0xffff)
		return 1;
	const u8 *length = bytes(ctx, w, w->l3 + 4, 2);
	return !length || be16(length) != 0;
}
