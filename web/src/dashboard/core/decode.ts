// Decoders: from unknown JSON to typed values, or to a reason why not.
//
// Fields that are not known are ignored: a newer gateway may send more.

export type Result<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly reason: string };

/** Decodes `value`; `path` says where it stands, for the reason. */
export type Decoder<T> = (value: unknown, path: string) => Result<T>;

/** The type that a decoder yields. */
export type Decoded<D> = D extends Decoder<infer T> ? T : never;

export function succeed<T>(value: T): Result<T> {
  return { ok: true, value };
}

export function fail(path: string, expected: string, value: unknown): Result<never> {
  return { ok: false, reason: `${path}: expected ${expected}, got ${describe(value)}` };
}

export const text: Decoder<string> = (value, path) =>
  typeof value === "string" ? succeed(value) : fail(path, "text", value);

export const flag: Decoder<boolean> = (value, path) =>
  typeof value === "boolean" ? succeed(value) : fail(path, "true or false", value);

/** A count, a size or a time: finite and not negative. */
export const amount: Decoder<number> = (value, path) =>
  typeof value === "number" && Number.isFinite(value) && value >= 0
    ? succeed(value)
    : fail(path, "a number of at least 0", value);

export function nullable<T>(decode: Decoder<T>): Decoder<T | null> {
  return (value, path) => (value === null ? succeed(null) : decode(value, path));
}

export function listOf<T>(decode: Decoder<T>): Decoder<readonly T[]> {
  return (value, path) => {
    if (!Array.isArray(value)) return fail(path, "a list", value);
    const list: T[] = [];
    for (const [index, element] of (value as unknown[]).entries()) {
      const result = decode(element, `${path}[${index}]`);
      if (!result.ok) return result;
      list.push(result.value);
    }
    return succeed(list);
  };
}

/** A map with any keys; a `Map`, so that no key can be `__proto__`. */
export function mapOf<T>(decode: Decoder<T>): Decoder<ReadonlyMap<string, T>> {
  return (value, path) => {
    if (!isRecord(value)) return fail(path, "an object", value);
    const map = new Map<string, T>();
    for (const [key, element] of Object.entries(value)) {
      const result = decode(element, `${path}.${key}`);
      if (!result.ok) return result;
      map.set(key, result.value);
    }
    return succeed(map);
  };
}

/** An object with these fields, each required. */
export function fields<D extends Record<string, Decoder<unknown>>>(
  decoders: D,
): Decoder<{ readonly [K in keyof D]: Decoded<D[K]> }> {
  return (value, path) => {
    if (!isRecord(value)) return fail(path, "an object", value);
    const object: Record<string, unknown> = {};
    for (const [key, decode] of Object.entries(decoders)) {
      const result = decode(value[key], `${path}.${key}`);
      if (!result.ok) return result;
      object[key] = result.value;
    }
    return succeed(object as { readonly [K in keyof D]: Decoded<D[K]> });
  };
}

/** Parses JSON, then decodes it. */
export function parse<T>(json: string, decode: Decoder<T>, name: string): Result<T> {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return { ok: false, reason: `${name}: not JSON` };
  }
  return decode(value, name);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function describe(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  return `an ${typeof value}`;
}
