/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the programs and the daemon share. Rust's side of these layouts is
 * crates/linux/src/abi/layout.rs; tests beside it compare both with the
 * object's BTF.
 *
 * "inside" and "outside" are sides of the gateway, "dialer" and "listener" are
 * roles. Multi-byte fields are in host order unless named _be.
 */
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

#include <linux/types.h>

/* The longest signature end, and the longest kept prefix, in bytes. */
#define WEIR_WINDOW 64
#define WEIR_WORDS (WEIR_WINDOW / 8)
/* Signatures looked at for one first payload. */
#define WEIR_SIGNATURES 64
/* Apps counted; an app is an index given with its signatures. */
#define WEIR_APPS 64
/* The longest first payload that is held, in bytes. */
#define WEIR_PAYLOAD_MAX 16384
/* Most first payloads fit in a record of this class. */
#define WEIR_PAYLOAD_SMALL 1840

enum side_index {
	INSIDE = 0,
	OUTSIDE = 1,
};

enum flow_state {
	FLOW_SYN = 0, /* the dialer's SYN was seen */
	FLOW_SYNACK = 1, /* the listener answered; the first payload decides */
	FLOW_PASS = 2, /* not ours, for good */
	FLOW_HOLD = 3, /* the daemon builds sockets; nothing passes */
};

/* Why a packet or a flow was passed by, held or dropped. */
enum reason {
	REASON_NONE = 0,
	REASON_WATCHED, /* flow: a SYN began a watch */
	REASON_NO_MATCH, /* flow: the first payload is nobody's */
	REASON_COUNTED, /* flow: matched a signature that only counts */
	REASON_HELD, /* flow: matched, handed to the daemon */
	REASON_PREFIX_KEPT, /* packet: too short to decide, remembered */
	REASON_HOLD_DROP, /* packet: dropped while held */
	REASON_HOLD_TIMEOUT, /* flow: the daemon did not answer in time */
	REASON_HOLD_RESET, /* flow: RST while held */
	REASON_SYN_DATA, /* flow: SYN with payload (RFC 7413) */
	REASON_EARLY_PAYLOAD, /* flow: payload before the SYN-ACK */
	REASON_OUT_OF_ORDER, /* flow: the first payload seen is not the first */
	REASON_BOTH_SIDES, /* flow: both sides began, neither decided */
	REASON_URGENT, /* flow: urgent data */
	REASON_TOO_LARGE, /* flow: first payload above WEIR_PAYLOAD_MAX */
	REASON_NO_OUTSIDE_KEY, /* flow: its SYN was not seen outside */
	REASON_RING_FULL, /* flow: no room for the record */
	REASON_UNREADABLE, /* flow: the payload could not be read */
	REASON_TABLE_FULL, /* flow: no room for a watch entry */
	REASON_ENDED_EARLY, /* flow: FIN or RST before any payload */
	REASON_IP_OPTIONS, /* packet: IPv4 options */
	REASON_FRAGMENT, /* packet: a fragment */
	REASON_IPV6_EXTENSION, /* packet: IPv6 extension header */
	REASON_TRUNCATED, /* packet: headers not as long as they say */
	REASON_ADOPTED_STRAY, /* packet: forwarded beside its adopted flow */
	REASON_ADOPTED_HOLD, /* packet: dropped while a flow is given back */
	REASON_REUSED, /* flow: a new SYN on the tuple of an ended one */
	REASON_ICMP_DELIVERED, /* packet: ICMP error handed to an adopted leg */
	REASON_ADOPTED_SYN, /* packet: SYN for an adopted flow's leg, or nobody
			     */
	REASON_COUNT,
};

/* An address: IPv6, or IPv4 mapped as in RFC 4291 section 2.5.5.2. */
struct addr {
	__u32 word_be[4];
};

/* A flow as one of the gateway's sides knows it. */
struct tuple {
	struct addr inside;
	struct addr outside;
	__u16 inside_port_be;
	__u16 outside_port_be;
};
_Static_assert(sizeof(struct tuple) == 36, "tuple");

#define SIDE_SYN 1 /* its SYN was seen, the rest is valid */
#define SIDE_WSCALE 2 /* offered a window scale (RFC 7323) */
#define SIDE_SACK 4 /* offered SACK (RFC 2018) */
#define SIDE_TS 8 /* offered timestamps (RFC 7323) */

struct side {
	__u32 isn;
	__u32 tsval; /* of its last packet */
	__u32 window; /* it last offered, in bytes, scaled */
	__u16 mss; /* 0: not said */
	__u8 wscale;
	__u8 flags;
};
_Static_assert(sizeof(struct side) == 16, "side");

struct flow {
	__u32 state; /* enum flow_state */
	__u8 dialer; /* enum side_index */
	__u8 prefix_side;
	__u16 prefix_len; /* 0..WEIR_WINDOW - 1 */
	__u64 hold_ns; /* CLOCK_MONOTONIC; valid from FLOW_HOLD on */
	struct side sides[2];
	__u8 prefix[WEIR_WINDOW];
};
_Static_assert(sizeof(struct flow) == 112, "flow");

/* A flow whose two ends are sockets of this machine. Only the daemon writes. */
struct adopted {
	__u32 dialer_isn;
	__u32 ended; /* 1: over, a new SYN may take the tuple */
	__u32 hold; /* 1: being given back, drop both directions */
	__u32 pad;
};
_Static_assert(sizeof(struct adopted) == 16, "adopted");

/* How a SYN is found again on the other interface, behind whatever NAT. */
struct link_key {
	struct addr remote;
	__u32 isn;
	__u16 remote_port_be;
	__u8 dialer;
	__u8 pad;
};
_Static_assert(sizeof(struct link_key) == 24, "link_key");

struct link_value {
	struct addr local;
	__u16 local_port_be;
	__u16 pad;
};
_Static_assert(sizeof(struct link_value) == 20, "link_value");

#define FROM_DIALER 1
#define FROM_LISTENER 2

/* Pattern and mask already moved to their offset; value == value & mask. */
struct signature {
	__u64 value[WEIR_WORDS];
	__u64 mask[WEIR_WORDS];
	__u16 app;
	__u8 end; /* offset + length, 1..WEIR_WINDOW; 0 ends the list */
	__u8 from; /* FROM_* bits */
	__u8 adopt;
	__u8 pad[3];
};
_Static_assert(sizeof(struct signature) == 136, "signature");

/* Head of a ring record; `len` payload bytes follow. */
struct held {
	struct tuple inside;
	struct tuple outside;
	struct flow flow;
	__u32 seq; /* of the first payload byte in this record */
	__u32 ack;
	__u32 len; /* 1..WEIR_PAYLOAD_MAX */
	__u16 app;
	__u8 from; /* enum side_index: who sent it */
	__u8 pad;
};
_Static_assert(sizeof(struct held) == 200, "held");
/* No map has this type, so it has no BTF: its members are asserted here. */
_Static_assert(__builtin_offsetof(struct held, outside) == 36, "held");
_Static_assert(__builtin_offsetof(struct held, flow) == 72, "held");
_Static_assert(__builtin_offsetof(struct held, seq) == 184, "held");
_Static_assert(__builtin_offsetof(struct held, ack) == 188, "held");
_Static_assert(__builtin_offsetof(struct held, len) == 192, "held");
_Static_assert(__builtin_offsetof(struct held, app) == 196, "held");
_Static_assert(__builtin_offsetof(struct held, from) == 198, "held");

struct held_small {
	struct held head;
	__u8 data[WEIR_PAYLOAD_SMALL];
};

struct held_large {
	struct held head;
	__u8 data[WEIR_PAYLOAD_MAX];
};

#endif
