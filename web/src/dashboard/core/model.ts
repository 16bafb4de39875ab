// What the gateway says, as in /api/v1/openapi.json. Names are those of the JSON.

import {
  amount, type Decoded, type Decoder, fail, fields, flag, listOf, mapOf, nullable, succeed, text,
} from "./decode.ts";

/** The version of the API this page understands. */
export const API_VERSION = 1;

const version: Decoder<number> = (value, path) =>
  value === API_VERSION ? succeed(API_VERSION) : fail(path, `version ${API_VERSION}`, value);

const contentBytes = fields({
  asked: amount,
  served: amount,
  fetched: amount,
  asked_inside: amount,
  served_inside: amount,
  fetched_inside: amount,
});

const storeStatus = fields({
  capacity_bytes: amount,
  held_bytes: amount,
  used_bytes: amount,
  objects: amount,
  segments: amount,
  hits: amount,
  misses: amount,
  evicted_bytes: amount,
  declined_bytes: amount,
  checksum_failures: amount,
  errors: amount,
  degraded: flag,
});

const adoptStatus = fields({
  adopted: amount,
  given_back: amount,
  held_p50_us: amount,
  held_p99_us: amount,
  reasons: mapOf(amount),
});

export const decodeStatus = fields({
  api_version: version,
  version: text,
  uptime_seconds: amount,
  modes: fields({ inside: listOf(text), outside: listOf(text), explicit: nullable(text) }),
  bytes: contentBytes,
  apps: mapOf(fields({ seen: amount, sessions: amount, active: amount })),
  store: nullable(storeStatus),
  store_error: nullable(text),
  adopt: nullable(adoptStatus),
  reasons: mapOf(amount),
});

export const decodeFlows = listOf(
  fields({
    id: amount,
    app: text,
    mode: text,
    client: text,
    peer: text,
    dialer: text,
    age_seconds: amount,
    bytes: contentBytes,
  }),
);

export const decodeObjects = listOf(
  fields({
    id: text,
    app: text,
    name: text,
    size_bytes: nullable(amount),
    held_bytes: amount,
    idle_seconds: amount,
  }),
);

export const decodeHistory = fields({
  samples: listOf(
    fields({
      uptime_seconds: amount,
      asked_inside: amount,
      served_inside: amount,
      fetched_inside: amount,
    }),
  ),
});

/** RFC 9457. */
export const decodeProblem = fields({ title: text, detail: text });

export type Status = Decoded<typeof decodeStatus>;
export type ContentBytes = Status["bytes"];
export type StoreStatus = NonNullable<Status["store"]>;
export type FlowStatus = Decoded<typeof decodeFlows>[number];
export type ObjectStatus = Decoded<typeof decodeObjects>[number];
export type Sample = Decoded<typeof decodeHistory>["samples"][number];

/** A status as a sample of the history. */
export function sampleOf(status: Status): Sample {
  const { asked_inside, served_inside, fetched_inside } = status.bytes;
  return { uptime_seconds: status.uptime_seconds, asked_inside, served_inside, fetched_inside };
}
