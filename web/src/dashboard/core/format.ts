// Figures for people. Sizes in binary units, rates in bits per second.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;
const RATE_UNITS = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"] as const;

/** A figure and its unit, apart so that they can be set apart. */
export interface Quantity {
  readonly figure: string;
  readonly unit: string;
}

export function bytes(sizeBytes: number): Quantity {
  return scaled(sizeBytes, 1024, BYTE_UNITS);
}

/** A rate given in bytes per second. */
export function rate(bytesPerSecond: number): Quantity {
  return scaled(bytesPerSecond * 8, 1000, RATE_UNITS);
}

/** With a no-break space between figure and unit. */
export function joined({ figure, unit }: Quantity): string {
  return `${figure}\u00a0${unit}`;
}

/** A share as a percentage; a dash when there is nothing to share. 100 % and 0 %
 * are said only when they are exact. */
export function percent(part: number, whole: number): string {
  if (whole <= 0) return "–";
  const share = Math.min(part / whole, 1) * 100;
  const rounded = Math.round(share * 10) / 10;
  if (rounded === 0 && part > 0) return "<0.1\u00a0%";
  if (rounded === 100 && part < whole) return ">99.9\u00a0%";
  return `${rounded === 100 || rounded === 0 ? rounded : rounded.toFixed(1)}\u00a0%`;
}

/** A count with its thousands set apart. */
export function count(n: number): string {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** A length of time, in its two largest units. */
export function duration(seconds: number): string {
  const whole = Math.floor(seconds);
  const [d, h, m, s] = [
    Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60,
  ];
  if (d > 0) return `${d}\u00a0d ${h}\u00a0h`;
  if (h > 0) return `${h}\u00a0h ${m}\u00a0min`;
  if (m > 0) return `${m}\u00a0min ${s}\u00a0s`;
  return `${s}\u00a0s`;
}

/** How long ago, in one unit. */
export function ago(seconds: number): string {
  if (seconds < 5) return "now";
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]] as const) {
    if (seconds >= unit) return `${Math.floor(seconds / unit)}\u00a0${name} ago`;
  }
  return "now";
}

/** A time in microseconds, as microseconds or milliseconds. */
export function micros(us: number): string {
  return us < 1000 ? `${Math.round(us)}\u00a0µs` : `${(us / 1000).toFixed(1)}\u00a0ms`;
}

/** A stable name such as `assembly_full` as words. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

function scaled(value: number, base: number, units: readonly [string, ...string[]]): Quantity {
  let index = 0;
  let figure = value;
  // 999.5 would be shown as 1000, so it belongs to the next unit.
  while (index + 1 < units.length && figure >= base - 0.5) {
    figure /= base;
    index += 1;
  }
  const digits = index === 0 || figure >= 99.95 ? 0 : figure >= 9.995 ? 1 : 2;
  return { figure: figure.toFixed(digits), unit: units[index] ?? units[0] };
}
