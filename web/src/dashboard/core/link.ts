// The state of the connection to the gateway, and when to try again.

/** Without news for this long, what is shown is old. */
export const STALE_AFTER_MS = 3500;

/** Without news for this long, a new connection is tried. */
export const GIVE_UP_AFTER_MS = 6000;

export type Link =
  | { readonly type: "connecting" }
  | { readonly type: "live" }
  | { readonly type: "lost"; readonly reason: string }
  | { readonly type: "locked" };

/** A pause before attempt `attempt` (0 for the first): doubling from half a
 * second to ten, with up to a half more so that pages do not come all at once.
 * `random` is in [0, 1). */
export function retryDelayMs(attempt: number, random: number): number {
  return Math.min(500 * 2 ** Math.min(attempt, 10), 10_000) * (1 + random / 2);
}

/** Whether news of `lastNewsMs` is old at `nowMs`. */
export function isStale(lastNewsMs: number | undefined, nowMs: number): boolean {
  return lastNewsMs === undefined || nowMs - lastNewsMs > STALE_AFTER_MS;
}

/** The link in words. */
export function describeLink(link: Link, lastNewsMs: number | undefined, nowMs: number): string {
  switch (link.type) {
    case "connecting":
      return "Connecting…";
    case "locked":
      return "Token needed";
    case "live":
      return isStale(lastNewsMs, nowMs) ? `No news for ${secondsSince(lastNewsMs, nowMs)}` : "Live";
    case "lost":
      return lastNewsMs === undefined
        ? "Not reachable, trying again…"
        : `Connection lost ${secondsSince(lastNewsMs, nowMs)} ago, trying again…`;
    default:
      return link satisfies never;
  }
}

function secondsSince(lastNewsMs: number | undefined, nowMs: number): string {
  return `${Math.round((nowMs - (lastNewsMs ?? nowMs)) / 1000)}\u00a0s`;
}
