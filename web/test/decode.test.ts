import assert from "node:assert/strict";
import { test } from "node:test";
import { amount, fields, listOf, mapOf, nullable, parse, text } from "../src/dashboard/core/decode.ts";
import { decodeFlows, decodeHistory, decodeObjects, decodeStatus, sampleOf } from "../src/dashboard/core/model.ts";
import { bytesOf, status } from "./fixtures.ts";

test("a whole status is decoded and keeps its figures", () => {
  const result = parse(JSON.stringify(status()), decodeStatus, "status");
  assert.ok(result.ok);
  assert.equal(result.value.store?.held_bytes, 40);
  assert.deepEqual(result.value.apps.get("bittorrent"), { seen: 5, sessions: 3, active: 1 });
  assert.deepEqual(sampleOf(result.value), {
    uptime_seconds: 10, asked_inside: 3, served_inside: 2, fetched_inside: 1,
  });
});

test("what may be missing may be null, and nothing else may", () => {
  const bare = { ...status(), store: null, adopt: null };
  assert.ok(decodeStatus(bare, "status").ok);
  assert.deepEqual(decodeStatus({ ...status(), bytes: null }, "status"), {
    ok: false, reason: "status.bytes: expected an object, got null",
  });
});

test("the reason names the place, what was expected and what came", () => {
  const wrong = { ...status(), store: { ...status().store, hits: "many" } };
  assert.deepEqual(decodeStatus(wrong, "status"), {
    ok: false, reason: 'status.store.hits: expected a number of at least 0, got "many"',
  });
  assert.deepEqual(decodeFlows([{}], "flows"), {
    ok: false, reason: "flows[0].id: expected a number of at least 0, got nothing",
  });
});

test("another version of the API is refused", () => {
  const result = decodeStatus({ ...status(), api_version: 2 }, "status");
  assert.ok(!result.ok && result.reason.includes("expected version 1, got 2"));
});

test("a field of a newer gateway is ignored", () => {
  assert.ok(decodeStatus({ ...status(), novelty: { a: 1 } }, "status").ok);
});

test("numbers that are no amounts are refused", () => {
  for (const value of [-1, Number.NaN, Number.POSITIVE_INFINITY, "1", null, [], {}]) {
    assert.ok(!amount(value, "n").ok, JSON.stringify(value));
  }
  assert.ok(amount(0, "n").ok);
});

test("what is not JSON is refused without an exception", () => {
  assert.deepEqual(parse("<html>", text, "answer"), { ok: false, reason: "answer: not JSON" });
});

test("a key called __proto__ is a key like any other", () => {
  const result = parse('{"__proto__": 3}', mapOf(amount), "map");
  assert.ok(result.ok);
  assert.equal(result.value.get("__proto__"), 3);
  assert.ok(!parse('{"__proto__": {"a": 1}}', fields({ a: amount }), "object").ok);
});

test("lists, flows, objects and history are decoded", () => {
  assert.deepEqual(listOf(nullable(amount))([1, null], "list"), { ok: true, value: [1, null] });
  assert.ok(!listOf(amount)({ length: 0 }, "list").ok);
  const flow = {
    id: 1, app: "bittorrent", mode: "adopt", client: "10.0.0.0/24", peer: "192.0.2.0/24",
    dialer: "inside", age_seconds: 1.5, bytes: bytesOf(),
  };
  assert.ok(decodeFlows([flow], "flows").ok);
  const object = { id: "0", app: "bittorrent", name: "", size_bytes: null, held_bytes: 1, idle_seconds: 0 };
  assert.ok(decodeObjects([object], "objects").ok);
  assert.ok(decodeHistory({ samples: [] }, "history").ok);
});
