/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* First bytes against the signature array. */
#ifndef WEIR_MATCH_H
#define WEIR_MATCH_H

#include "abi.h"
#include "maps.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "word masks are written for little-endian hosts"
#endif

enum verdict {
	VERDICT_NONE = 0,
	VERDICT_PARTIAL, /* too short, right so far */
	VERDICT_COUNT, /* a whole match that is only counted */
	VERDICT_ADOPT,
};

struct match {
	__u64 words[WEIR_WORDS]; /* zero past len */
	__u32 len;
	__u32 from; /* one FROM_* bit */
	__u32 verdict;
	__u32 app;
};

static __always_inline __u64 low_bytes(__s32 bytes)
{
	if (bytes >= 8)
		return ~0ULL;
	if (bytes <= 0)
		return 0;
	return (1ULL << (8 * bytes)) - 1;
}

/* bpf_loop() callback: 1 ends the loop. */
static long match_one(__u64 index, void *context)
{
	struct match *match = context;
	__u32 key = index;
	struct signature *signature = bpf_map_lookup_elem(&signatures, &key);
	__u64 differ = 0;

	if (!signature || signature->end == 0)
		return 1;
	if (!(signature->from & match->from))
		return 0;
#pragma unroll
	for (int i = 0; i < WEIR_WORDS; i++)
		differ |= ((match->words[i] ^ signature->value[i]) &
			   signature->mask[i]) &
			  low_bytes((__s32)match->len - 8 * i);
	if (differ)
		return 0;
	if (match->len < signature->end) {
		match->verdict = VERDICT_PARTIAL;
		return 0;
	}
	match->verdict = signature->adopt ? VERDICT_ADOPT : VERDICT_COUNT;
	match->app = signature->app;
	return 1;
}

static __always_inline void match_all(struct match *match)
{
	match->verdict = VERDICT_NONE;
	match->app = 0;
	bpf_loop(WEIR_SIGNATURES, match_one, match, 0);
}

#endif
