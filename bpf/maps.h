/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The maps, who writes them, and what happens when they are full. */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

/*
 * Watched flows by the inside tuple. Written by the inside hooks; the daemon
 * only moves an entry to FLOW_PASS. Full: the least recently used is forgotten,
 * which for any state but FLOW_HOLD of an unadopted flow means "pass".
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct tuple);
	__type(value, struct flow);
} flows SEC(".maps");

/*
 * SYNs seen on the outside interface. Written by the outside hooks. Full: the
 * oldest is forgotten, its flow passes with REASON_NO_OUTSIDE_KEY.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct link_key);
	__type(value, struct link_value);
} links SEC(".maps");

/*
 * Adopted flows by the inside tuple, and by the outside tuple. Not LRU: an
 * entry lost would break a live connection. Written and deleted by the daemon;
 * the hooks delete one when a new SYN takes the tuple of a flow that is over.
 * Full: the daemon lets the flow pass.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tuple);
	__type(value, struct adopted);
} adopted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tuple);
	__type(value, struct adopted);
} adopted_outside SEC(".maps");

/* Written by the daemon; the first entry with end == 0 ends the list. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_SIGNATURES);
	__type(key, __u32);
	__type(value, struct signature);
} signatures SEC(".maps");

/* Counters, by enum reason. Written by all hooks. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASON_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} reasons SEC(".maps");

/* Flows that matched, by app. Written by the inside hooks. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_APPS);
	__type(key, __u32);
	__type(value, __u64);
} apps SEC(".maps");

/* Held first payloads. Full: the flow passes with REASON_RING_FULL. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} held_ring SEC(".maps");

/* Where a payload's first bytes are put together; twice the window. */
struct scratch {
	__u64 words[2 * WEIR_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline void count(__u32 reason)
{
	__u64 *value = bpf_map_lookup_elem(&reasons, &reason);

	if (value)
		(*value)++;
}

static __always_inline void count_app(__u32 app)
{
	__u64 *value = bpf_map_lookup_elem(&apps, &app);

	if (value)
		(*value)++;
}

#endif
