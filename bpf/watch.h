/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The life of a watched flow, on the inside interface.
 *
 *   SYN --SYN-ACK--> SYNACK --first payload--> HOLD --daemon--> adopted
 *    \__________________\________ no match, or any doubt ____> PASS
 *
 * Fails open: whatever is not understood moves the flow to PASS and is counted.
 * Here only FLOW_HOLD drops, for at most hold_ns_max, and is counted too. Two
 * processors may see packets of one flow at once: a state is only ever left by
 * compare-and-swap, so that PASS never overwrites a hold the daemon relies on.
 */
#ifndef WEIR_WATCH_H
#define WEIR_WATCH_H

#include "abi.h"
#include "adopted.h"
#include "maps.h"
#include "match.h"
#include "parse.h"

/* Not for the kernel: on hold now, on_hold() decides. */
#define VERDICT_HELD (-2)

const volatile __u64 hold_ns_max = 1000000000;

/* Ends a watch. Does nothing to a hold that began meanwhile. */
static __always_inline int pass_for_good(struct flow *flow, __u32 reason)
{
	__u32 was = __sync_val_compare_and_swap(&flow->state, FLOW_SYN,
						FLOW_PASS);

	if (was == FLOW_SYNACK)
		was = __sync_val_compare_and_swap(&flow->state, FLOW_SYNACK,
						  FLOW_PASS);
	if (was == FLOW_HOLD)
		return VERDICT_HELD;
	if (was != FLOW_PASS)
		count(reason);
	return VERDICT_NEXT;
}

static __always_inline void note_side(struct side *side,
				      const struct packet *packet,
				      const struct options *options)
{
	side->isn = packet->seq;
	side->tsval = options->tsval;
	/* RFC 7323 section 2.2: never scaled in a SYN. */
	side->window = packet->window;
	side->mss = options->mss;
	side->wscale = options->wscale;
	side->flags = options->flags | SIDE_SYN;
}

/* A SYN without ACK: `from` dials. */
static __always_inline int on_dial(struct __sk_buff *skb,
				   const struct flow *old,
				   const struct tuple *tuple,
				   struct packet *packet, __u32 from)
{
	struct adopted *adoption = bpf_map_lookup_elem(&adopted, tuple);
	struct options options;
	struct flow flow = {};

	if (adoption) {
		if (is_live(skb, adoption, tuple))
			return syn_to_leg(skb, adoption, from);
		/* Its own SYN, late: neither end expects it any more. */
		if (adoption->dialer_isn == packet->seq) {
			count(REASON_ADOPTED_SYN);
			return VERDICT_DROP;
		}
		bpf_map_delete_elem(&adopted, tuple);
		count(REASON_REUSED);
	} else if (old && old->dialer == from &&
		   old->sides[from & 1].isn == packet->seq) {
		/* Sent again. */
		return old->state == FLOW_HOLD ? VERDICT_HELD : VERDICT_NEXT;
	}
	flow.dialer = from;
	if (packet->payload_len) {
		flow.state = FLOW_PASS;
		count(REASON_SYN_DATA);
	} else {
		parse_options(skb, packet->options_off, packet->options_len,
			      &options);
		note_side(&flow.sides[from & 1], packet, &options);
		count(REASON_WATCHED);
	}
	if (bpf_map_update_elem(&flows, tuple, &flow, BPF_ANY))
		count(REASON_TABLE_FULL);
	/*
	 * The daemon writes `adopted`, then looks whether the hold stands; we
	 * the other way round. One of us sees the other.
	 */
	adoption = bpf_map_lookup_elem(&adopted, tuple);
	if (!adoption)
		return VERDICT_NEXT;
	bpf_map_delete_elem(&flows, tuple);
	return syn_to_leg(skb, adoption, from);
}

static __always_inline int on_answer(struct __sk_buff *skb, struct flow *flow,
				     struct packet *packet, __u32 from)
{
	struct side *dialer = &flow->sides[(from & 1) ^ 1];
	struct side *listener = &flow->sides[from & 1];
	struct options options;

	if (flow->state >= FLOW_PASS || flow->dialer == from ||
	    packet->ack != dialer->isn + 1)
		return VERDICT_NEXT;
	if (packet->payload_len)
		return pass_for_good(flow, REASON_SYN_DATA);
	parse_options(skb, packet->options_off, packet->options_len, &options);
	note_side(listener, packet, &options);
	__sync_val_compare_and_swap(&flow->state, FLOW_SYN, FLOW_SYNACK);
	return VERDICT_NEXT;
}

/* A packet of a flow that is on hold, and not adopted a moment ago. */
static __always_inline int on_hold(struct __sk_buff *skb,
				   const struct tuple *tuple, struct flow *flow,
				   const struct packet *packet, __u32 from)
{
	struct adopted *adoption;
	__u32 reason;

	if (packet->flags & TCP_RST) {
		reason = REASON_HOLD_RESET;
	} else if (flow->hold_ns &&
		   bpf_ktime_get_ns() - flow->hold_ns > hold_ns_max) {
		/* Not while 0: another processor is just writing it. */
		reason = REASON_HOLD_TIMEOUT;
	} else {
		/* Pure ACKs too: nothing may move an end past the frozen
		 * state. */
		count(REASON_HOLD_DROP);
		return VERDICT_DROP;
	}
	if (__sync_val_compare_and_swap(&flow->state, FLOW_HOLD, FLOW_PASS) !=
	    FLOW_HOLD)
		return VERDICT_NEXT;
	/* As in on_dial(): adopted meanwhile, unless the daemon saw us. */
	adoption = bpf_map_lookup_elem(&adopted, tuple);
	if (adoption) {
		__sync_val_compare_and_swap(&flow->state, FLOW_PASS, FLOW_HOLD);
		return to_leg(skb, adoption, from);
	}
	count(reason);
	return VERDICT_NEXT;
}

/* The listener's and the dialer's key for the same SYN, as seen outside. */
static __always_inline int outside_tuple(const struct flow *flow,
					 const struct tuple *tuple,
					 struct tuple *outside)
{
	struct link_key key = {
		.remote = tuple->outside,
		.isn = flow->sides[flow->dialer & 1].isn,
		.remote_port_be = tuple->outside_port_be,
		.dialer = flow->dialer,
	};
	struct link_value *link = bpf_map_lookup_elem(&links, &key);

	if (!link)
		return -1;
	outside->inside = link->local;
	outside->inside_port_be = link->local_port_be;
	outside->outside = tuple->outside;
	outside->outside_port_be = tuple->outside_port_be;
	return 0;
}

static __always_inline void fill_record(struct held *held,
					const struct tuple *tuple,
					const struct tuple *outside,
					const struct flow *flow,
					const struct packet *packet, __u32 from,
					__u32 app)
{
	held->inside = *tuple;
	held->outside = *outside;
	__builtin_memcpy(&held->flow, flow, sizeof(*flow));
	held->flow.state = FLOW_HOLD;
	held->seq = packet->seq;
	held->ack = packet->ack;
	held->len = packet->payload_len;
	held->app = app;
	held->from = from;
	held->pad = 0;
}

/* Matched: freeze the flow and hand its first payload to the daemon. */
static __always_inline int hold(struct __sk_buff *skb,
				const struct tuple *tuple, struct flow *flow,
				struct packet *packet, __u32 from, __u32 app)
{
	__u32 len = packet->payload_len;
	struct tuple outside;
	struct held *held;
	long failed;

	if (outside_tuple(flow, tuple, &outside))
		return pass_for_good(flow, REASON_NO_OUTSIDE_KEY);
	if (len <= WEIR_PAYLOAD_SMALL)
		held = bpf_ringbuf_reserve(&held_ring,
					   sizeof(struct held_small), 0);
	else
		held = NULL;
	if (held) {
		struct held_small *record = (void *)held;

		asm volatile("" : "+r"(len));
		failed = len == 0 || len > WEIR_PAYLOAD_SMALL
				 ? -1
				 : bpf_skb_load_bytes(skb, packet->payload_off,
						      record->data, len);
	} else {
		struct held_large *record = bpf_ringbuf_reserve(
			&held_ring, sizeof(struct held_large), 0);

		if (!record)
			return pass_for_good(flow, REASON_RING_FULL);
		asm volatile("" : "+r"(len));
		failed = len == 0 || len > WEIR_PAYLOAD_MAX
				 ? -1
				 : bpf_skb_load_bytes(skb, packet->payload_off,
						      record->data, len);
		held = &record->head;
	}
	if (failed) {
		bpf_ringbuf_discard(held, 0);
		return pass_for_good(flow, REASON_UNREADABLE);
	}
	/* The same segment may arrive on two processors at once. */
	if (__sync_val_compare_and_swap(&flow->state, FLOW_SYNACK, FLOW_HOLD) !=
	    FLOW_SYNACK) {
		bpf_ringbuf_discard(held, 0);
		return flow->state == FLOW_HOLD ? VERDICT_HELD : VERDICT_NEXT;
	}
	flow->hold_ns = bpf_ktime_get_ns();
	fill_record(held, tuple, &outside, flow, packet, from, app);
	bpf_ringbuf_submit(held, 0);
	count(REASON_HELD);
	return VERDICT_DROP;
}

/* Puts the kept prefix and the new bytes together and matches them. */
static __always_inline int on_payload(struct __sk_buff *skb,
				      const struct tuple *tuple,
				      struct flow *flow, struct packet *packet,
				      __u32 from)
{
	__u32 kept = flow->prefix_len;
	__u32 fresh = packet->payload_len;
	struct scratch *scratch;
	struct match match;
	__u32 zero = 0;

	scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!scratch || kept >= WEIR_WINDOW)
		return pass_for_good(flow, REASON_UNREADABLE);
	__builtin_memset(scratch, 0, sizeof(*scratch));
	if (kept)
		__builtin_memcpy(scratch->words, flow->prefix, WEIR_WINDOW);
	if (fresh > WEIR_WINDOW)
		fresh = WEIR_WINDOW;
	asm volatile("" : "+r"(fresh));
	asm volatile("" : "+r"(kept));
	if (fresh == 0 || fresh > WEIR_WINDOW || kept >= WEIR_WINDOW ||
	    bpf_skb_load_bytes(skb, packet->payload_off,
			       (__u8 *)scratch->words + kept, fresh))
		return pass_for_good(flow, REASON_UNREADABLE);

	__builtin_memcpy(match.words, scratch->words, sizeof(match.words));
	match.len = kept + fresh;
	if (match.len > WEIR_WINDOW)
		match.len = WEIR_WINDOW;
	match.from = from == flow->dialer ? FROM_DIALER : FROM_LISTENER;
	match_all(&match);

	switch (match.verdict) {
	case VERDICT_ADOPT:
		count_app(match.app);
		return hold(skb, tuple, flow, packet, from, match.app);
	case VERDICT_COUNT:
		count_app(match.app);
		return pass_for_good(flow, REASON_COUNTED);
	case VERDICT_PARTIAL:
		__builtin_memcpy(flow->prefix, scratch->words, WEIR_WINDOW);
		flow->prefix_side = from;
		flow->prefix_len = match.len;
		count(REASON_PREFIX_KEPT);
		return VERDICT_NEXT;
	default:
		return pass_for_good(flow, REASON_NO_MATCH);
	}
}

/* A packet of a flow whose first payload has not come yet. */
static __always_inline int on_watch(struct __sk_buff *skb,
				    const struct tuple *tuple,
				    struct flow *flow, struct packet *packet,
				    __u32 from)
{
	struct side *sender = &flow->sides[from & 1];
	struct side *other = &flow->sides[(from & 1) ^ 1];
	struct options options;
	__u32 expected, seen;

	if (packet->flags & TCP_RST)
		return pass_for_good(flow, REASON_ENDED_EARLY);
	if (packet->payload_len == 0 && packet->flags & TCP_FIN)
		return pass_for_good(flow, REASON_ENDED_EARLY);
	if (packet->payload_len && flow->state != FLOW_SYNACK)
		return pass_for_good(flow, REASON_EARLY_PAYLOAD);
	if (packet->flags & TCP_URG)
		return pass_for_good(flow, REASON_URGENT);

	parse_options(skb, packet->options_off, packet->options_len, &options);
	if (options.flags & SIDE_TS)
		sender->tsval = options.tsval;
	if (flow->state == FLOW_SYNACK) {
		sender->window = packet->window;
		if (sender->flags & other->flags & SIDE_WSCALE)
			sender->window <<= sender->wscale & 15;
	}
	if (packet->payload_len == 0)
		return VERDICT_NEXT;

	expected = sender->isn + 1;
	if (flow->prefix_len) {
		if (flow->prefix_side != from)
			return pass_for_good(flow, REASON_BOTH_SIDES);
		expected += flow->prefix_len;
	}
	/*
	 * The other side has sent its SYN and nothing else. The legs would be
	 * built from a number that says otherwise, forged or not.
	 */
	if (!(packet->flags & TCP_ACK) || packet->ack != other->isn + 1)
		return pass_for_good(flow, REASON_OUT_OF_ORDER);
	seen = expected - packet->seq;
	if (seen > flow->prefix_len)
		return pass_for_good(flow, REASON_OUT_OF_ORDER);
	if (packet->payload_len <= seen)
		return VERDICT_NEXT; /* the prefix, sent again */
	packet->seq += seen;
	packet->payload_off += seen;
	packet->payload_len -= seen;
	if (packet->payload_len > WEIR_PAYLOAD_MAX)
		return pass_for_good(flow, REASON_TOO_LARGE);
	return on_payload(skb, tuple, flow, packet, from);
}

#endif
