// A status as the gateway sends it.

export function bytesOf() {
  return { asked: 4, served: 3, fetched: 1, asked_inside: 3, served_inside: 2, fetched_inside: 1 };
}

export function storeOf() {
  return {
    capacity_bytes: 100, held_bytes: 40, used_bytes: 41, objects: 1, segments: 2, hits: 3, misses: 1,
    evicted_bytes: 0, declined_bytes: 0, checksum_failures: 0, errors: 0, degraded: false,
  };
}

export function status() {
  return {
    api_version: 1,
    version: "0.1.0",
    uptime_seconds: 10,
    modes: { inside: ["eth1"], outside: ["eth0"], explicit: "127.0.0.1:3128" },
    bytes: bytesOf(),
    apps: { bittorrent: { seen: 5, sessions: 3, active: 1 } },
    store: storeOf(),
    store_error: null,
    adopt: { adopted: 3, given_back: 1, held_p50_us: 200, held_p99_us: 700.5, reasons: { table_full: 1 } },
    reasons: { assembly_full: 2 },
  };
}
