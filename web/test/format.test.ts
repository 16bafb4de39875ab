import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, bytes, count, duration, joined, micros, percent, rate, words } from "../src/dashboard/core/format.ts";

const plain = (text: string): string => text.replaceAll(/[\u00a0\u202f]/g, " ");

test("sizes are in binary units with three figures at most", () => {
  const cases: readonly (readonly [number, string])[] = [
    [0, "0 B"], [1023, "1023 B"], [1024, "1.00 KiB"], [10 * 1024, "10.0 KiB"], [100 * 1024, "100 KiB"],
    [1024 ** 2 - 1, "1.00 MiB"], [1.5 * 1024 ** 3, "1.50 GiB"], [2 ** 60, "1024 PiB"],
  ];
  for (const [size, text] of cases) assert.equal(plain(joined(bytes(size))), text);
});

test("rates are in bits per second and decimal units", () => {
  const cases: readonly (readonly [number, string])[] = [
    [0, "0 bit/s"], [124, "992 bit/s"], [125, "1.00 kbit/s"], [12.5e6, "100 Mbit/s"],
    [124.95e6, "1.00 Gbit/s"], [1.25e9, "10.0 Gbit/s"],
  ];
  for (const [bytesPerSecond, text] of cases) assert.equal(plain(joined(rate(bytesPerSecond))), text);
});

test("no figure is shown as 1000 of its unit, or 1024", () => {
  for (let n = 990; n < 1030; n += 0.05) {
    assert.notEqual(rate((n / 8) * 1000).figure, "1000");
    assert.notEqual(bytes(n * 1024).figure, "1024");
  }
});

test("percentages say all and nothing only when it is so", () => {
  assert.equal(plain(percent(0, 10)), "0 %");
  assert.equal(plain(percent(10, 10)), "100 %");
  assert.equal(plain(percent(9_999_999, 10_000_000)), ">99.9 %");
  assert.equal(plain(percent(1, 10_000_000)), "<0.1 %");
  assert.equal(plain(percent(1, 3)), "33.3 %");
  assert.equal(plain(percent(11, 10)), "100 %");
  assert.equal(percent(0, 0), "–");
});

test("times are in their two largest units, and ages in one", () => {
  assert.deepEqual([0, 59.9, 61, 3600, 90_061].map(duration).map(plain), [
    "0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h",
  ]);
  assert.deepEqual([4, 5, 60, 7300, 172_800].map(ago).map(plain), [
    "now", "5 s ago", "1 min ago", "2 h ago", "2 d ago",
  ]);
  assert.deepEqual([212.4, 999, 1500].map(micros).map(plain), ["212 µs", "999 µs", "1.5 ms"]);
});

test("counts have their thousands apart, and names become words", () => {
  assert.deepEqual([0, 999, 1000, 1_234_567].map(count).map(plain), ["0", "999", "1 000", "1 234 567"]);
  assert.equal(words("block_out_of_range"), "block out of range");
});
