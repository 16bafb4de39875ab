/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Packets of adopted flows: to the legs by mark, or dropped and counted.
 *
 * A SYN never ends a flow that is alive, whoever sent it: the leg answers it
 * with a challenge ACK (RFC 5961 section 4.2).
 */
#ifndef WEIR_ADOPTED_H
#define WEIR_ADOPTED_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"
#include "maps.h"

/* linux/bpf.h of older systems lacks them (Linux 6.6). */
#define VERDICT_NEXT (-1) /* TCX_NEXT: the next program decides, or pass */
#define VERDICT_DROP 2 /* TCX_DROP */

/* Set before load: the local delivery bit. */
const volatile __u32 deliver_mark = 0x40000000;

/* Routed to this machine by its mark, where a leg's socket takes it. */
static __always_inline int deliver(struct __sk_buff *skb,
				   const struct adopted *adoption)
{
	if (adoption->hold) {
		count(REASON_ADOPTED_HOLD);
		return VERDICT_DROP;
	}
	skb->mark |= deliver_mark;
	return VERDICT_NEXT;
}

static __always_inline int to_leg(struct __sk_buff *skb,
				  const struct adopted *adoption, __u32 from)
{
	/* It came past the outside hook before the leg was there. */
	if (from == OUTSIDE) {
		count(REASON_ADOPTED_STRAY);
		return VERDICT_DROP;
	}
	return deliver(skb, adoption);
}

static __always_inline int syn_to_leg(struct __sk_buff *skb,
				      const struct adopted *adoption,
				      __u32 from)
{
	count(REASON_ADOPTED_SYN);
	return to_leg(skb, adoption, from);
}

/*
 * Whether the flow goes on: the daemon has not ended it, and its inside leg is
 * there. A reset takes the leg some time before the daemon knows; without a
 * leg to answer, the gateway would refuse the tuple's next connection.
 */
static __always_inline int is_live(struct __sk_buff *skb,
				   const struct adopted *adoption,
				   const struct tuple *tuple)
{
	struct bpf_sock_tuple ends = {};
	struct bpf_sock *leg;
	__u32 len;
	int live;

	if (adoption->ended)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		ends.ipv4.saddr = tuple->inside.word_be[3];
		ends.ipv4.daddr = tuple->outside.word_be[3];
		ends.ipv4.sport = tuple->inside_port_be;
		ends.ipv4.dport = tuple->outside_port_be;
		len = sizeof(ends.ipv4);
	} else {
		__builtin_memcpy(ends.ipv6.saddr, &tuple->inside, 16);
		__builtin_memcpy(ends.ipv6.daddr, &tuple->outside, 16);
		ends.ipv6.sport = tuple->inside_port_be;
		ends.ipv6.dport = tuple->outside_port_be;
		len = sizeof(ends.ipv6);
	}
	leg = bpf_sk_lookup_tcp(skb, &ends, len, BPF_F_CURRENT_NETNS, 0);
	if (!leg)
		return 0;
	/* Not some service of this machine that listens on the port. */
	live = leg->state != BPF_TCP_LISTEN;
	bpf_sk_release(leg);
	return live;
}

#endif
