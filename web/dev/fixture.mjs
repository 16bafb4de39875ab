// For development only: serves dist/ with the gateway's own content policy and a
// made-up gateway behind it, so that the page can be worked on without one.
//
//   npm run dev            http://127.0.0.1:8481
//   PORT=9000 TOKEN=secret CASE=empty|degraded|busy npm run dev

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";

const dist = fileURLToPath(new URL("../dist/", import.meta.url));
const scene = process.env.CASE ?? "busy";
const port = Number(process.env.PORT ?? 8481);
const token = process.env.TOKEN;
const MIB = 1 << 20;
const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

// Five minutes of load that looks like an evening: a function of the second.
const servedAt = (t) => (scene === "empty" ? 0 : MIB * Math.max(0, 22 + 16 * Math.sin(t / 37) + 7 * Math.sin(t / 5.1) + 5 * Math.sin(t * 1.7)));
const fetchedAt = (t) => (scene === "empty" ? 0 : MIB * Math.max(0.3, 7 + 6 * Math.cos(t / 41) + 3 * Math.sin(t / 3.3)));

const begun = Date.now() - 400_000;
const samples = [];
let total = { served: scene === "empty" ? 0 : 187e9, fetched: scene === "empty" ? 0 : 61e9 };
const uptime = () => (Date.now() - begun) / 1000;

function sample(at) {
  total = { served: total.served + servedAt(at), fetched: total.fetched + fetchedAt(at) };
  samples.push({
    uptime_seconds: at,
    asked_inside: Math.round(total.served + total.fetched),
    served_inside: Math.round(total.served),
    fetched_inside: Math.round(total.fetched),
  });
  if (samples.length > 301) samples.shift();
}
for (let ago = 300; ago > 0; ago -= 1) sample(uptime() - ago);

const content = (served, fetched) => ({
  asked: served + fetched, served, fetched,
  asked_inside: served + fetched, served_inside: served, fetched_inside: fetched,
});

function status() {
  const last = samples.at(-1);
  const outside = scene === "empty" ? 0 : 3_400_000_000;
  const busy = scene !== "empty";
  return {
    api_version: 1,
    version: "0.1.0",
    uptime_seconds: last.uptime_seconds,
    modes: { inside: ["eth1"], outside: ["eth0"], explicit: "127.0.0.1:3128" },
    bytes: {
      asked: last.asked_inside + outside, served: last.served_inside + outside, fetched: last.fetched_inside,
      asked_inside: last.asked_inside, served_inside: last.served_inside, fetched_inside: last.fetched_inside,
    },
    apps: busy
      ? {
          bittorrent: { seen: 18233, sessions: 17810, active: flows.length },
          gnutella: { seen: 41, sessions: 0, active: 0 },
          tls: { seen: 5120, sessions: 0, active: 0 },
          http: { seen: 0, sessions: 0, active: 0 },
        }
      : {},
    store: {
      capacity_bytes: 512 * 1024 * MIB, held_bytes: busy ? 391_830_000_000 : 0, used_bytes: busy ? 392_000_000_000 : 0, objects: objects.length,
      segments: busy ? 23_915_432 : 0, hits: busy ? 11_204_311 : 0, misses: busy ? 3_410_221 : 0,
      evicted_bytes: busy ? 88_000_000_000 : 0, declined_bytes: busy ? 3_000_000_000 : 0, checksum_failures: scene === "degraded" ? 3 : 0,
      errors: scene === "degraded" ? 1 : 0, degraded: scene === "degraded",
    },
    store_error: null,
    adopt: {
      adopted: busy ? 17810 : 0, given_back: busy ? 37 : 0, held_p50_us: 212, held_p99_us: 741,
      reasons: busy ? { option_unknown: 3, payload_split: 112, syn_data: 4, table_full: 0 } : {},
    },
    reasons: busy ? { asked_too_often: 12, assembly_full: 3, not_ours: 37, timeout: 2 } : {},
  };
}

const flows = scene === "empty" ? [] : Array.from({ length: 7 }, (_, n) => ({
  id: 900 + n, app: "bittorrent", mode: n % 3 === 2 ? "explicit" : "adopt",
  client: `10.20.${3 + n}.0/24`, peer: n % 2 ? `198.51.${n}.0/24` : `2001:db8:${n}a::/64`,
  dialer: n % 4 === 3 ? "outside" : "inside", age_seconds: 4 + n * n * 31,
  bytes: content((n + 1) * 73_400_320, n * 9_100_000),
}));

const names = [
  ["debian-13.1.0-amd64-netinst.iso", 783_000_000, 1], ["archlinux-2026.11.01-x86_64.iso", 1_280_000_000, 1],
  ["Big Buck Bunny (4K, 60 fps)", 6_400_000_000, 0.734], ["blender-movies-collection-with-a-rather-long-name-that-has-to-wrap-somewhere", 41_000_000_000, 0.12],
  ["ubuntu-26.04-desktop-amd64.iso", 5_900_000_000, 0.9996], ["<b>not markup</b> & co", null, 0],
];
let objects = scene === "empty" ? [] : names.map(([name, size, share], n) => ({
  id: `${n}`.repeat(32), app: "bittorrent", name, size_bytes: size,
  held_bytes: size === null ? 88 * MIB : Math.round(size * share), idle_seconds: [0, 2, 47, 900, 40_000, 400_000][n],
}));

const followers = new Set();
setInterval(() => {
  sample(uptime());
  for (const response of followers) response.write(`event: status\ndata: ${JSON.stringify(status())}\n\n`);
}, 1000);

const json = (response, value, headers = {}) => {
  response.writeHead(200, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(value));
};
const problem = (response, code, detail) => {
  response.writeHead(code, { "content-type": "application/problem+json" });
  response.end(JSON.stringify({ type: "urn:weir:problem:x", title: "Refused", status: code, detail }));
};

createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  response.setHeader("content-security-policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'");
  if (pathname.startsWith("/api") && token !== undefined && request.headers.authorization !== `Bearer ${token}`) {
    return problem(response, 401, "send the configured token");
  }
  if (pathname === "/api/v1/status") return json(response, status());
  if (pathname === "/api/v1/history") return json(response, { samples });
  if (pathname === "/api/v1/flows") return json(response, flows, { "x-weir-total": flows.length === 0 ? 0 : 63 });
  if (pathname === "/api/v1/objects") return json(response, objects, { "x-weir-total": objects.length });
  if (request.method === "DELETE" && pathname.startsWith("/api/v1/objects/")) {
    objects = objects.filter((object) => !pathname.endsWith(object.id));
    response.writeHead(204);
    return response.end();
  }
  if (pathname === "/api/v1/events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`event: status\ndata: ${JSON.stringify(status())}\n\n`);
    followers.add(response);
    return request.on("close", () => followers.delete(response));
  }
  const name = pathname === "/" ? "index.html" : pathname.slice(1);
  if (!/^[a-z.]+$/.test(name)) return problem(response, 404, "nothing here");
  try {
    const file = await readFile(dist + name);
    response.writeHead(200, { "content-type": types[extname(name)] ?? "application/octet-stream" });
    return response.end(file);
  } catch {
    return problem(response, 404, "nothing here");
  }
}).listen(port, "127.0.0.1", () => console.error(`dashboard with made-up figures: http://127.0.0.1:${port}`));
