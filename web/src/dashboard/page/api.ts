// Asking the gateway. The token lives in this tab only.

import { type Decoder, parse, type Result } from "../core/decode.ts";
import { decodeProblem } from "../core/model.ts";

/** What an answer can be; `locked` asks for a token. */
export type Answer<T> =
  | { readonly type: "ok"; readonly value: T; readonly total: number | undefined }
  | { readonly type: "locked" }
  | { readonly type: "failed"; readonly reason: string };

const TOKEN_KEY = "weir-token";

export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN_KEY, token);
}

export function hasToken(): boolean {
  return sessionStorage.getItem(TOKEN_KEY) !== null;
}

/** A request to the API; rejects only when `signal` aborts or nobody answers. */
export function request(path: string, signal: AbortSignal, method = "GET"): Promise<Response> {
  const headers = new Headers({ "X-Weir-Request": "dashboard" });
  const token = sessionStorage.getItem(TOKEN_KEY);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  return fetch(`/api/v1${path}`, { method, headers, signal, cache: "no-store" });
}

/** Asks for JSON. */
export async function ask<T>(path: string, decode: Decoder<T>, signal: AbortSignal): Promise<Answer<T>> {
  try {
    const response = await request(path, signal);
    if (response.status === 401) return { type: "locked" };
    const body = await response.text();
    if (!response.ok) return { type: "failed", reason: problem(response, body) };
    const result: Result<T> = parse(body, decode, path);
    if (!result.ok) return { type: "failed", reason: result.reason };
    const total = response.headers.get("x-weir-total");
    return { type: "ok", value: result.value, total: total === null ? undefined : Number(total) };
  } catch (error) {
    return { type: "failed", reason: reasonOf(error) };
  }
}

/** Drops an object from the store; `undefined` when it is gone, else why not. */
export async function removeObject(id: string, signal: AbortSignal): Promise<string | undefined> {
  try {
    const response = await request(`/objects/${encodeURIComponent(id)}`, signal, "DELETE");
    if (response.ok || response.status === 404) return undefined;
    return problem(response, await response.text());
  } catch (error) {
    return reasonOf(error);
  }
}

/** A refused request in words. */
export function problem(response: Response, body: string): string {
  const told = parse(body, decodeProblem, "problem");
  return told.ok ? told.value.detail : `the gateway answered ${response.status}`;
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : "the gateway did not answer";
}
