/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The two sides' common entry: tuple by direction, look-up order, marks. */
#ifndef WEIR_HOOKS_H
#define WEIR_HOOKS_H

#include "abi.h"
#include "adopted.h"
#include "maps.h"
#include "parse.h"
#include "watch.h"

/* Set before load: bytes before the IP header. */
const volatile __u32 inside_l2_len = 14;
const volatile __u32 outside_l2_len = 14;

#define ICMP_UNREACHABLE 3
#define ICMPV6_TOO_BIG 2
#define ICMPV6_UNREACHABLE 1
#define ICMP_HEAD 8

static __always_inline void make_tuple(struct tuple *tuple,
				       const struct packet *packet, int outward)
{
	if (outward) {
		tuple->inside = packet->source;
		tuple->outside = packet->dest;
		tuple->inside_port_be = packet->source_port_be;
		tuple->outside_port_be = packet->dest_port_be;
	} else {
		tuple->inside = packet->dest;
		tuple->outside = packet->source;
		tuple->inside_port_be = packet->dest_port_be;
		tuple->outside_port_be = packet->source_port_be;
	}
}

/*
 * An ICMP error about a packet a leg sent (RFC 1191, RFC 8201) belongs to the
 * leg: the host it names never sent that packet. `outward`: as in the error's
 * own direction, the quoted packet went the other way.
 */
static __always_inline int on_icmp(struct __sk_buff *skb, struct cursor *cursor,
				   const struct packet *error, int outward,
				   void *map)
{
	struct packet quoted = {};
	struct adopted *adoption;
	struct tuple tuple;
	__be16 ports[2];
	__u8 type;

	if (bpf_skb_load_bytes(skb, cursor->off, &type, 1))
		return VERDICT_NEXT;
	if (error->protocol == IPPROTO_ICMP
		    ? type != ICMP_UNREACHABLE
		    : type != ICMPV6_TOO_BIG && type != ICMPV6_UNREACHABLE)
		return VERDICT_NEXT;
	cursor->off += ICMP_HEAD;
	if (parse_ip(cursor, skb->protocol, &quoted) != PARSE_OK ||
	    quoted.protocol != IPPROTO_TCP ||
	    parse_bytes(cursor, ports, sizeof(ports)))
		return VERDICT_NEXT;
	quoted.source_port_be = ports[0];
	quoted.dest_port_be = ports[1];
	make_tuple(&tuple, &quoted, !outward);
	adoption = bpf_map_lookup_elem(map, &tuple);
	if (!adoption)
		return VERDICT_NEXT;
	count(REASON_ICMP_DELIVERED);
	return deliver(skb, adoption);
}

static __always_inline int inside_hook(struct __sk_buff *skb, __u32 from)
{
	struct adopted *adoption;
	struct packet packet = {};
	struct cursor cursor;
	struct tuple tuple;
	struct flow *flow;
	int got, verdict;

	/* Sent by this machine: a leg, or the gateway's own service. */
	if (from == OUTSIDE && skb->ingress_ifindex == 0)
		return VERDICT_NEXT;
	got = parse_packet(&cursor, skb, inside_l2_len, &packet);
	if (got < 0)
		count(-got);
	if (got != PARSE_OK)
		return VERDICT_NEXT;
	if (packet.protocol != IPPROTO_TCP)
		return from == INSIDE
			       ? on_icmp(skb, &cursor, &packet, 1, &adopted)
			       : VERDICT_NEXT;
	make_tuple(&tuple, &packet, from == INSIDE);

	flow = bpf_map_lookup_elem(&flows, &tuple);
	verdict = VERDICT_HELD;
	if ((packet.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		verdict = on_dial(skb, flow, &tuple, &packet, from);
	else if (flow && flow->state == FLOW_PASS)
		return VERDICT_NEXT;
	else if (flow && flow->state < FLOW_PASS)
		verdict = packet.flags & TCP_SYN
				  ? on_answer(skb, flow, &packet, from)
				  : on_watch(skb, &tuple, flow, &packet, from);
	if (verdict != VERDICT_HELD)
		return verdict;

	adoption = bpf_map_lookup_elem(&adopted, &tuple);
	if (adoption)
		return to_leg(skb, adoption, from);
	return flow ? on_hold(skb, &tuple, flow, &packet, from) : VERDICT_NEXT;
}

/* A SYN: remembered under what no NAT changes, the far end and the ISN. */
static __always_inline int note_link(struct __sk_buff *skb,
				     const struct tuple *tuple,
				     const struct packet *packet, __u32 dialer)
{
	struct adopted *adoption = bpf_map_lookup_elem(&adopted_outside, tuple);
	struct link_key key = {
		.remote = tuple->outside,
		.isn = packet->seq,
		.remote_port_be = tuple->outside_port_be,
		.dialer = dialer,
	};
	struct link_value value = {
		.local = tuple->inside,
		.local_port_be = tuple->inside_port_be,
	};

	/* Anybody out there can send this; the leg knows what to make of it. */
	if (adoption && dialer == OUTSIDE && !adoption->ended)
		return syn_to_leg(skb, adoption, INSIDE);
	/* From inside it comes only where the inside hook saw the flow over. */
	if (adoption && adoption->dialer_isn != packet->seq)
		bpf_map_delete_elem(&adopted_outside, tuple);
	bpf_map_update_elem(&links, &key, &value, BPF_ANY);
	return VERDICT_NEXT;
}

static __always_inline int outside_hook(struct __sk_buff *skb, __u32 from)
{
	struct packet packet = {};
	struct adopted *adoption;
	struct cursor cursor;
	struct tuple tuple;

	/* Not counted here: the inside hook counts what it cannot read. */
	if (parse_packet(&cursor, skb, outside_l2_len, &packet) != PARSE_OK)
		return VERDICT_NEXT;
	if (packet.protocol != IPPROTO_TCP)
		return from == OUTSIDE ? on_icmp(skb, &cursor, &packet, 0,
						 &adopted_outside)
				       : VERDICT_NEXT;
	make_tuple(&tuple, &packet, from == INSIDE);

	if (packet.flags & TCP_SYN)
		return packet.flags & TCP_ACK
			       ? VERDICT_NEXT
			       : note_link(skb, &tuple, &packet, from);
	if (from == INSIDE)
		return VERDICT_NEXT;
	adoption = bpf_map_lookup_elem(&adopted_outside, &tuple);
	return adoption ? deliver(skb, adoption) : VERDICT_NEXT;
}

#endif
