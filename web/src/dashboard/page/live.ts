// Follows the live events, and comes back by itself when the line breaks.

import { parse } from "../core/decode.ts";
import { decodeStatus, type Status } from "../core/model.ts";
import { EventParser } from "../core/sse.ts";
import { GIVE_UP_AFTER_MS, type Link, retryDelayMs } from "../core/link.ts";
import { problem, reasonOf, request } from "./api.ts";

export interface Listener {
  /** A connection stands; what came before may have a gap. */
  readonly onOpen: () => void;
  readonly onStatus: (status: Status) => void;
  readonly onLink: (link: Link) => void;
}

/** Follows until `signal` aborts or the gateway asks for a token. */
export async function follow(listener: Listener, signal: AbortSignal): Promise<void> {
  let attempt = 0;
  listener.onLink({ type: "connecting" });
  while (!signal.aborted) {
    const end = await connection(listener, signal);
    listener.onLink(end.link);
    if (end.link.type === "locked") return;
    attempt = end.heard ? 0 : attempt + 1;
    await pause(retryDelayMs(attempt, Math.random()), signal);
  }
}

/** One connection, from its request to its end. */
async function connection(
  listener: Listener,
  signal: AbortSignal,
): Promise<{ readonly link: Link; readonly heard: boolean }> {
  const ours = new AbortController();
  const abort = (): void => {
    ours.abort(new Error("no news"));
  };
  signal.addEventListener("abort", abort, { once: true });
  // A line that broke without a word gives no error for minutes.
  let watchdog = setTimeout(abort, GIVE_UP_AFTER_MS);
  let heard = false;
  const lost = (reason: string): { link: Link; heard: boolean } => ({ link: { type: "lost", reason }, heard });
  try {
    const response = await request("/events", ours.signal);
    if (response.status === 401) return { link: { type: "locked" }, heard };
    if (!response.ok || response.body === null) return lost(problem(response, await response.text()));
    listener.onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return lost("the gateway ended the connection");
      const events = parser.feed(value);
      if (!events.ok) return lost(events.reason);
      const latest = events.value.filter((event) => event.name === "status").at(-1);
      if (latest === undefined) continue;
      const status = parse(latest.data, decodeStatus, "status");
      if (!status.ok) return lost(status.reason);
      heard = true;
      clearTimeout(watchdog);
      watchdog = setTimeout(abort, GIVE_UP_AFTER_MS);
      listener.onLink({ type: "live" });
      listener.onStatus(status.value);
    }
  } catch (error) {
    return lost(reasonOf(error));
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener("abort", abort);
    ours.abort();
  }
}

/** Resolves after `ms`, or when `signal` aborts. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
  });
}
