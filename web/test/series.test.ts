import assert from "node:assert/strict";
import { test } from "node:test";
import { niceTop, stackedAreas } from "../src/dashboard/core/chart.ts";
import type { Sample } from "../src/dashboard/core/model.ts";
import { append, rateNow, rates, type Series, SPAN_SECONDS } from "../src/dashboard/core/series.ts";

const at = (uptime_seconds: number, served_inside: number, fetched_inside = 0): Sample => ({
  uptime_seconds, served_inside, fetched_inside, asked_inside: served_inside + fetched_inside,
});
const series = (...samples: Sample[]): Series => samples.reduce<Series>(append, []);

test("rates are differences over the time between", () => {
  assert.deepEqual(rates(series(at(1, 0), at(2, 100, 50), at(4, 300, 50))), [
    { atSeconds: 2, asked: 150, served: 100, fetched: 50 },
    { atSeconds: 4, asked: 100, served: 100, fetched: 0 },
  ]);
});

test("the rate of now is that of the last three seconds", () => {
  const samples = [0, 1, 2, 3, 4, 5].map((second) => at(second, second < 2 ? 0 : (second - 2) * 600));
  assert.equal(rateNow(series(...samples))?.served, 600);
  assert.equal(rateNow([]), undefined);
  assert.equal(rateNow(series(at(1, 5))), undefined);
});

test("a gateway that was restarted begins a new series", () => {
  assert.deepEqual(series(at(100, 50), at(1, 0)), [at(1, 0)]);
  assert.deepEqual(series(at(100, 50), at(101, 10)), [at(101, 10)]);
});

test("samples that are too close do not become spikes", () => {
  assert.deepEqual(series(at(1, 0), at(1.49, 100), at(1.5, 100)), [at(1, 0), at(1.5, 100)]);
});

test("the same sample twice is one, and old ones go", () => {
  assert.equal(series(at(1, 1), at(1, 1)).length, 1);
  const long = series(...Array.from({ length: 1000 }, (_, second) => at(second, second)));
  assert.equal(long.length, SPAN_SECONDS + 2);
  assert.equal(long.at(-1)?.uptime_seconds, 999);
});

test("the newest point is at the right edge and areas are stacked", () => {
  const frame = { width: 100, height: 10, spanSeconds: 10 };
  const points = [
    { atSeconds: 5, asked: 0, served: 0, fetched: 0 },
    { atSeconds: 10, asked: 1000, served: 500, fetched: 500 },
  ];
  const areas = stackedAreas(points, frame);
  assert.equal(areas.top, 1000);
  assert.equal(areas.served, "M50,10L100,5L100,10L50,10Z");
  assert.equal(areas.fetched, "M50,10L100,0L100,5L50,10Z");
  assert.equal(areas.total, "M50,10L100,0");
  assert.deepEqual(areas.ticks, [{ value: 500, y: 5 }, { value: 1000, y: 0 }]);
});

test("points beyond the left edge are left out, and less than two draw nothing", () => {
  const frame = { width: 100, height: 10, spanSeconds: 10 };
  const point = { atSeconds: 0, asked: 1, served: 1, fetched: 1 };
  const areas = stackedAreas([point, { ...point, atSeconds: 20 }], frame);
  assert.deepEqual([areas.served, areas.fetched, areas.total], ["", "", ""]);
  assert.equal(stackedAreas([], frame).total, "");
});

test("the chart's top is a round number of bits that nothing exceeds", () => {
  const cases: readonly (readonly [number, number])[] = [
    [0, 1e3], [125, 1e3], [126, 2e3], [12.5e6, 1e8], [13e6, 2e8], [60e6, 8e8], [101e6, 1e9],
  ];
  for (const [rate, bits] of cases) assert.equal(niceTop(rate) * 8, bits);
  for (let rate = 1; rate < 1e10; rate *= 1.07) assert.ok(niceTop(rate) >= rate * (1 - 1e-12));
});
