// The last minutes of what inside clients asked for, as rates.

import type { Sample } from "./model.ts";

/** Rates between two samples, in bytes per second. */
export interface RatePoint {
  /** The end of the interval, in seconds of the gateway's uptime. */
  readonly atSeconds: number;
  readonly asked: number;
  readonly served: number;
  readonly fetched: number;
}

/** Closer samples would turn jitter into spikes: the later one is left out. */
export const APART_SECONDS = 0.5;

/** Samples, oldest first, at most as many seconds apart as the chart is wide. */
export type Series = readonly Sample[];

/** The chart's width. */
export const SPAN_SECONDS = 300;

/** What one sees as "now": short enough to be alive, long enough not to flicker. */
export const NOW_SECONDS = 3;

/** Adds a sample. A gateway that was restarted begins a new series. */
export function append(series: Series, sample: Sample): Series {
  const last = series.at(-1);
  if (last === undefined || wentBack(last, sample)) return [sample];
  if (sample.uptime_seconds - last.uptime_seconds < APART_SECONDS) return series;
  const oldest = sample.uptime_seconds - SPAN_SECONDS - 1;
  return [...series.filter((old) => old.uptime_seconds >= oldest), sample];
}

/** The rates between neighbours. */
export function rates(series: Series): readonly RatePoint[] {
  const points: RatePoint[] = [];
  for (let index = 1; index < series.length; index += 1) {
    const [from, to] = [series[index - 1], series[index]];
    if (from !== undefined && to !== undefined) points.push(between(from, to));
  }
  return points;
}

/** The rates of the last seconds; `undefined` before there are two samples. */
export function rateNow(series: Series): RatePoint | undefined {
  const last = series.at(-1);
  if (last === undefined) return undefined;
  const start = last.uptime_seconds - NOW_SECONDS - 0.5;
  const from = series.find((sample) => sample.uptime_seconds >= start);
  return from === undefined || from === last ? undefined : between(from, last);
}

function between(from: Sample, to: Sample): RatePoint {
  const seconds = to.uptime_seconds - from.uptime_seconds;
  const perSecond = (a: number, b: number): number => (seconds > 0 ? (b - a) / seconds : 0);
  return {
    atSeconds: to.uptime_seconds,
    asked: perSecond(from.asked_inside, to.asked_inside),
    served: perSecond(from.served_inside, to.served_inside),
    fetched: perSecond(from.fetched_inside, to.fetched_inside),
  };
}

/** Counters only grow while a gateway lives. */
function wentBack(last: Sample, sample: Sample): boolean {
  return (
    sample.uptime_seconds < last.uptime_seconds ||
    sample.asked_inside < last.asked_inside ||
    sample.served_inside < last.served_inside ||
    sample.fetched_inside < last.fetched_inside
  );
}
