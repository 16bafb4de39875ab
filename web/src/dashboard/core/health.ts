// What an operator should know, out of a status.

import type { Status } from "./model.ts";
import { count } from "./format.ts";

export interface Finding {
  readonly level: "bad" | "note";
  readonly text: string;
}

/** The findings, the worst first. */
export function findings(status: Status): readonly Finding[] {
  const found: Finding[] = [];
  const bad = (text: string): unknown => found.push({ level: "bad", text });
  const note = (text: string): unknown => found.push({ level: "note", text });
  const { store } = status;
  if (store === null) {
    bad(`There is no store: ${status.store_error ?? "none is configured"}. Everything passes, nothing is kept.`);
  } else {
    if (store.degraded) bad("The store refuses writes since an error of its device. What it holds is still served.");
    if (store.errors > 0) bad(`The store's device failed ${times(store.errors)}.`);
    if (store.checksum_failures > 0) {
      bad(`${count(store.checksum_failures)} stored segments had a wrong checksum. None was served.`);
    }
  }
  if (status.adopt === null && status.modes.explicit === null) {
    bad("No traffic reaches the gateway: neither routed flows nor the proxy port are in use.");
  } else if (status.adopt === null) {
    note("Routed traffic is not looked at. Only clients that are told the proxy are served.");
  }
  return found;
}

/** The reasons, the most frequent first, without those that did not occur. */
export function ranked(reasons: ReadonlyMap<string, number>): readonly (readonly [string, number])[] {
  return [...reasons]
    .filter(([, n]) => n > 0)
    .sort(([nameA, a], [nameB, b]) => b - a || (nameA < nameB ? -1 : 1));
}

/** A reason's meaning; `undefined` for one this page does not know. */
export function explain(reason: string): string | undefined {
  return REASONS.get(reason);
}

function times(n: number): string {
  return n === 1 ? "once" : `${count(n)} times`;
}

/** Reasons of sessions and of the proxy port. A test of the gateway holds this list
 * against its own. */
const REASONS: ReadonlyMap<string, string> = new Map([
  ["assembly_full", "memory for incomplete pieces was full"],
  ["block_unasked", "a block came that nobody had asked for"],
  ["block_out_of_range", "a block outside its content"],
  ["request_out_of_range", "a request outside its content"],
  ["lookups_full", "too many look-ups at once"],
  ["metadata_mismatch", "metadata did not match its hash"],
  ["metadata_refused", "metadata was too large or malformed"],
  ["inference_wrong", "an inferred piece length was wrong"],
  ["asked_too_often", "asked for so often that the peer answers"],
  ["store_busy", "too much waited to be written to the store"],
  ["not_ours", "only looked like a protocol we know"],
  ["content_mismatch", "the two sides name different content"],
  ["unsupported", "a version that is not cached yet"],
  ["malformed", "a message broke the protocol"],
  ["refused", "switched off, or the table was full"],
  ["client", "a client of a network that is not served"],
  ["connect_failed", "the destination did not answer"],
  ["auth", "wrong user or password"],
  ["destination", "a destination kept from clients"],
  ["loop", "a request that goes round in circles"],
  ["upstream_broke", "the server broke off"],
  ["malformed_request", "a malformed proxy request"],
  ["name_unknown", "the name has no address"],
  ["timeout", "the client did not say what it wants"],
  ["unsupported_command", "a request the proxy port does not offer"],
]);
