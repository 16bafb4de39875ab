// The geometry of the stacked area chart: points in, SVG path data out.

import type { RatePoint } from "./series.ts";

export interface Frame {
  readonly width: number;
  readonly height: number;
  /** Seconds from the left edge to the right one. */
  readonly spanSeconds: number;
}

export interface StackedAreas {
  /** The lower area. */
  readonly served: string;
  /** The upper one, on top of it. */
  readonly fetched: string;
  /** The line along the top of both. */
  readonly total: string;
  /** What the top edge stands for, in bytes per second. */
  readonly top: number;
  /** Heights for grid lines, in bytes per second and in the frame's units. */
  readonly ticks: readonly { readonly value: number; readonly y: number }[];
}

/** Lays the points out, the newest at the right edge. */
export function stackedAreas(points: readonly RatePoint[], frame: Frame): StackedAreas {
  const newest = points.at(-1)?.atSeconds ?? 0;
  const shown = points.filter((point) => point.atSeconds >= newest - frame.spanSeconds);
  const top = niceTop(Math.max(0, ...shown.map((point) => point.served + point.fetched)));
  const x = (point: RatePoint): number =>
    frame.width - ((newest - point.atSeconds) / frame.spanSeconds) * frame.width;
  const y = (value: number): number => frame.height - (value / top) * frame.height;

  const lower = shown.map((point) => at(x(point), y(point.served)));
  const upper = shown.map((point) => at(x(point), y(point.served + point.fetched)));
  const floor = shown.map((point) => at(x(point), frame.height));
  return {
    served: area(lower, floor),
    fetched: area(upper, lower),
    total: upper.length > 1 ? `M${upper.join("L")}` : "",
    top,
    ticks: [0.5, 1].map((share) => ({ value: top * share, y: y(top * share) })),
  };
}

/** The smallest of 1, 2, 4 and 8 times a power of ten bits that is not below
 * `rate`, in bytes per second; 1 kbit/s at least. */
export function niceTop(rate: number): number {
  const bits = Math.max(rate * 8, 1000);
  const decade = 10 ** Math.floor(Math.log10(bits));
  const step = [1, 2, 4, 8, 10].find((candidate) => candidate * decade >= bits) ?? 10;
  return (step * decade) / 8;
}

function at(x: number, y: number): string {
  return `${Math.round(x * 10) / 10},${Math.round(y * 10) / 10}`;
}

/** The area between two lines; nothing for less than two points. */
function area(top: readonly string[], bottom: readonly string[]): string {
  return top.length > 1 ? `M${top.join("L")}L${[...bottom].reverse().join("L")}Z` : "";
}
