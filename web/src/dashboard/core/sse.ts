// Server-sent events out of a stream of text, as the HTML standard has it
// (§9.2.6), without ids and retry times, which the gateway does not send.
//
// The browser's own EventSource cannot send a token, hence this.

import type { Result } from "./decode.ts";

export interface ServerEvent {
  readonly name: string;
  readonly data: string;
}

/** More than any event has; a stream beyond it is not ours. */
export const EVENT_CHARS_MAX = 4 << 20;

/** A parser that is fed text as it comes. */
export class EventParser {
  #rest = "";
  #name = "";
  #data: string[] = [];
  #length = 0;

  /** The events that `text` completes, or why the stream is hopeless. */
  feed(text: string): Result<readonly ServerEvent[]> {
    const events: ServerEvent[] = [];
    // A trailing CR may be half of a CRLF: it waits for what follows.
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      const event = this.#line(line);
      if (event !== undefined) events.push(event);
    }
    if (this.#rest.length + this.#length > EVENT_CHARS_MAX) {
      return { ok: false, reason: "an event is too long" };
    }
    return { ok: true, value: events };
  }

  #line(line: string): ServerEvent | undefined {
    if (line === "") {
      const event = { name: this.#name === "" ? "message" : this.#name, data: this.#data.join("\n") };
      const complete = this.#data.length > 0;
      [this.#name, this.#data, this.#length] = ["", [], 0];
      return complete ? event : undefined;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    if (field === "data") {
      this.#data.push(value);
      this.#length += value.length;
    }
    return undefined;
  }
}
