// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Mode adopt: four TCX programs, Linux >= 6.6. One object, because they share
 * maps; one function a hook.
 *
 * All fail open. What a hook does not understand it passes to the next program
 * and counts. Dropped, and counted as well, are: a flow on hold (at most
 * hold_ns_max), what comes beside an adopted flow, and what comes while one is
 * given back. With the daemon the links go, and so do the hooks.
 */
#include "hooks.h"

/*
 * Packets from inside hosts, before conntrack and NAT.
 * Reads and writes flows, adopted; reads links, signatures; writes held_ring.
 */
SEC("tcx/ingress")
int inside_ingress(struct __sk_buff *skb)
{
	return inside_hook(skb, INSIDE);
}

/*
 * Packets towards inside hosts, after conntrack and NAT. Maps as above.
 */
SEC("tcx/egress")
int inside_egress(struct __sk_buff *skb)
{
	return inside_hook(skb, OUTSIDE);
}

/*
 * Packets from the link, before conntrack and NAT. Writes links; reads
 * adopted_outside, whose packets get the mark for local delivery, and removes
 * what is over.
 */
SEC("tcx/ingress")
int outside_ingress(struct __sk_buff *skb)
{
	return outside_hook(skb, OUTSIDE);
}

/*
 * Packets onto the link, after conntrack and NAT. Writes links; removes what is
 * over from adopted_outside.
 */
SEC("tcx/egress")
int outside_egress(struct __sk_buff *skb)
{
	return outside_hook(skb, INSIDE);
}

char LICENSE[] SEC("license") = "GPL";
