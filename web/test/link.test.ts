import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeStatus } from "../src/dashboard/core/model.ts";
import { explain, findings, ranked } from "../src/dashboard/core/health.ts";
import { describeLink, isStale, retryDelayMs, STALE_AFTER_MS } from "../src/dashboard/core/link.ts";
import { EVENT_CHARS_MAX, EventParser } from "../src/dashboard/core/sse.ts";
import { status, storeOf } from "./fixtures.ts";

const STREAM = ': hello\n\nevent: status\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata:x\n\nevent: empty\n\n';
const EVENTS = [{ name: "status", data: '{"a":\n1}' }, { name: "message", data: "x" }];

test("events are the same however the stream is cut", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let start = 0; start < STREAM.length; start += size) {
      const result = parser.feed(STREAM.slice(start, start + size));
      assert.ok(result.ok);
      events.push(...result.value);
    }
    assert.deepEqual(events, EVENTS, `pieces of ${size}`);
  }
});

test("an event without an end is given up", () => {
  const parser = new EventParser();
  assert.ok(parser.feed("data: " + "x".repeat(EVENT_CHARS_MAX - 10)).ok);
  assert.ok(!parser.feed("x".repeat(20)).ok);
});

test("pauses between attempts double up to ten seconds and are spread", () => {
  assert.deepEqual([0, 1, 2, 5, 50].map((n) => retryDelayMs(n, 0)), [500, 1000, 2000, 10_000, 10_000]);
  assert.equal(retryDelayMs(0, 0.5), 625);
});

test("news is old after its limit and not before", () => {
  assert.equal(isStale(1000, 1000 + STALE_AFTER_MS), false);
  assert.equal(isStale(1000, 1001 + STALE_AFTER_MS), true);
  assert.equal(isStale(undefined, 0), true);
});

test("the link is said in words", () => {
  const say = describeLink;
  assert.equal(say({ type: "live" }, 0, 1000), "Live");
  assert.equal(say({ type: "live" }, 0, 9000), "No news for 9\u00a0s");
  assert.equal(say({ type: "lost", reason: "x" }, 0, 9000), "Connection lost 9\u00a0s ago, trying again…");
  assert.equal(say({ type: "lost", reason: "x" }, undefined, 1), "Not reachable, trying again…");
});

test("a healthy gateway has no findings, and each fault has one", () => {
  const of = (change: object): readonly string[] => {
    const result = decodeStatus({ ...status(), ...change }, "status");
    assert.ok(result.ok);
    return findings(result.value).map(({ level, text }) => `${level}: ${text}`);
  };
  assert.deepEqual(of({}), []);
  assert.match(of({ store: null, store_error: "the disk is full" })[0] ?? "", /^bad: .*the disk is full/);
  const broken = { ...storeOf(), degraded: true, errors: 2, checksum_failures: 1 };
  assert.equal(of({ store: broken }).length, 3);
  assert.match(of({ adopt: null })[0] ?? "", /^note: /);
  assert.match(of({ adopt: null, modes: { inside: [], outside: [], explicit: null } })[0] ?? "", /^bad: /);
});

test("reasons are ranked, and those that did not occur are left out", () => {
  assert.deepEqual(ranked(new Map([["b", 1], ["a", 1], ["c", 5], ["d", 0]])), [["c", 5], ["a", 1], ["b", 1]]);
  assert.equal(explain("not_a_reason"), undefined);
  assert.ok(explain("assembly_full"));
});
