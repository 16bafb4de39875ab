/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * From a packet to the fields the hooks decide on.
 *
 * Every parse_*() copies from the cursor, moves it and returns 0, or returns
 * -1 past the end. Copies, not pointers: a payload may lie outside the linear
 * part of the buffer. parse_packet() returns PARSE_OK, PARSE_OTHER for traffic
 * that is none of ours, or minus a reason to count.
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

#define PARSE_OK 1
#define PARSE_OTHER 0

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_URG 0x20

#define IPV4_OFFSET_OR_MORE 0x3fff

/* Options walked in one header; RFC 9293 allows at most 40 bytes. */
#define OPTIONS_MAX 20

struct cursor {
	struct __sk_buff *skb;
	__u32 off;
};

struct packet {
	struct addr source;
	struct addr dest;
	__u16 source_port_be;
	__u16 dest_port_be;
	__u32 seq;
	__u32 ack;
	__u32 options_off;
	__u32 options_len;
	__u32 payload_off;
	__u32 payload_len;
	__u16 window;
	__u8 flags;
	__u8 protocol;
};

struct options {
	__u32 tsval;
	__u16 mss;
	__u8 wscale;
	__u8 flags; /* SIDE_* */
};

static __always_inline int parse_bytes(struct cursor *cursor, void *to,
				       __u32 len)
{
	if (bpf_skb_load_bytes(cursor->skb, cursor->off, to, len))
		return -1;
	cursor->off += len;
	return 0;
}

static __always_inline void map_ipv4(struct addr *addr, __be32 ipv4)
{
	addr->word_be[0] = 0;
	addr->word_be[1] = 0;
	addr->word_be[2] = bpf_htonl(0xffff);
	addr->word_be[3] = ipv4;
}

/* Fills addresses, protocol and payload_len (all after the IP header). */
static __always_inline int parse_ip(struct cursor *cursor, __be16 ethertype,
				    struct packet *packet)
{
	if (ethertype == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (parse_bytes(cursor, &ip, sizeof(ip)))
			return -REASON_TRUNCATED;
		packet->protocol = ip.protocol;
		if (ip.protocol != IPPROTO_TCP && ip.protocol != IPPROTO_ICMP)
			return PARSE_OTHER;
		if (ip.ihl != 5)
			return -REASON_IP_OPTIONS;
		if (ip.frag_off & bpf_htons(IPV4_OFFSET_OR_MORE))
			return -REASON_FRAGMENT;
		map_ipv4(&packet->source, ip.saddr);
		map_ipv4(&packet->dest, ip.daddr);
		packet->payload_len = bpf_ntohs(ip.tot_len) - sizeof(ip);
		return PARSE_OK;
	}
	if (ethertype == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (parse_bytes(cursor, &ip, sizeof(ip)))
			return -REASON_TRUNCATED;
		packet->protocol = ip.nexthdr;
		switch (ip.nexthdr) {
		case IPPROTO_TCP:
		case IPPROTO_ICMPV6:
			break;
		case IPPROTO_FRAGMENT:
			return -REASON_FRAGMENT;
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			return -REASON_IPV6_EXTENSION;
		default:
			return PARSE_OTHER;
		}
		/* A link-local peer needs a scope no map here keeps. */
		if (ip.saddr.s6_addr[0] == 0xfe || ip.daddr.s6_addr[0] == 0xfe)
			return PARSE_OTHER;
		__builtin_memcpy(&packet->source, &ip.saddr, 16);
		__builtin_memcpy(&packet->dest, &ip.daddr, 16);
		packet->payload_len = bpf_ntohs(ip.payload_len);
		return PARSE_OK;
	}
	return PARSE_OTHER;
}

static __always_inline int parse_tcp(struct cursor *cursor,
				     struct packet *packet)
{
	__u32 start = cursor->off;
	struct tcphdr tcp;
	__u32 head;

	if (parse_bytes(cursor, &tcp, sizeof(tcp)))
		return -REASON_TRUNCATED;
	head = tcp.doff * 4;
	if (head < sizeof(tcp) || head > packet->payload_len)
		return -REASON_TRUNCATED;
	packet->source_port_be = tcp.source;
	packet->dest_port_be = tcp.dest;
	packet->seq = bpf_ntohl(tcp.seq);
	packet->ack = bpf_ntohl(tcp.ack_seq);
	packet->window = bpf_ntohs(tcp.window);
	packet->flags = ((__u8 *)&tcp)[13];
	packet->options_off = start + sizeof(tcp);
	packet->options_len = head - sizeof(tcp);
	packet->payload_off = start + head;
	packet->payload_len -= head;
	return PARSE_OK;
}

/* The caller looks at packet->protocol: TCP is whole, ICMP stops at its head,
 * where *cursor then stands. */
static __always_inline int parse_packet(struct cursor *cursor,
					struct __sk_buff *skb, __u32 l2_len,
					struct packet *packet)
{
	int got;

	cursor->skb = skb;
	cursor->off = l2_len;
	got = parse_ip(cursor, skb->protocol, packet);
	if (got != PARSE_OK || packet->protocol != IPPROTO_TCP)
		return got;
	return parse_tcp(cursor, packet);
}

static __noinline int parse_options(struct __sk_buff *skb, __u32 off, __u32 len,
				    struct options *options)
{
	__u32 end = off + len;
	__u8 head[2];
	__u32 word;
	__u16 half;

	if (!options)
		return 0;
	options->tsval = 0;
	options->mss = 0;
	options->wscale = 0;
	options->flags = 0;
	for (int i = 0; i < OPTIONS_MAX && off < end; i++) {
		if (bpf_skb_load_bytes(skb, off, head, 1) || head[0] == 0)
			break;
		if (head[0] == 1) {
			off++;
			continue;
		}
		if (bpf_skb_load_bytes(skb, off, head, 2) || head[1] < 2 ||
		    off + head[1] > end)
			break;
		if (head[0] == 2 && head[1] == 4) {
			if (bpf_skb_load_bytes(skb, off + 2, &half, 2))
				break;
			options->mss = bpf_ntohs(half);
		} else if (head[0] == 3 && head[1] == 3) {
			if (bpf_skb_load_bytes(skb, off + 2, head, 1))
				break;
			/* RFC 7323 section 2.3: above 14 means 14. */
			options->wscale = head[0] > 14 ? 14 : head[0];
			options->flags |= SIDE_WSCALE;
			off += 3;
			continue;
		} else if (head[0] == 4 && head[1] == 2) {
			options->flags |= SIDE_SACK;
		} else if (head[0] == 8 && head[1] == 10) {
			if (bpf_skb_load_bytes(skb, off + 2, &word, 4))
				break;
			options->tsval = bpf_ntohl(word);
			options->flags |= SIDE_TS;
		}
		off += head[1];
	}
	return 0;
}

#endif
