// Starts the dashboard: one loop for the live events, one for the lists, one
// clock for "how old is what I see".

import { describeLink, isStale, type Link } from "../core/link.ts";
import { decodeHistory, sampleOf, type Status } from "../core/model.ts";
import { append, type Series } from "../core/series.ts";
import { ask, hasToken, setToken } from "./api.ts";
import { byId, setText } from "./dom.ts";
import { refreshFlows, refreshObjects, watchSearch } from "./lists.ts";
import { follow, pause } from "./live.ts";
import { showStatus } from "./overview.ts";

const LISTS_EVERY_MS = 2000;

let series: Series = [];
let link: Link = { type: "connecting" };
let lastNewsMs: number | undefined;
let latest: Status | undefined;

const page = new AbortController();

async function run(signal: AbortSignal): Promise<void> {
  showLink();
  const lists = new AbortController();
  void keepListsFresh(lists.signal);
  await follow(
    {
      onOpen: () => {
        void fillSeries(signal);
      },
      onStatus: (status) => {
        lastNewsMs = performance.now();
        series = append(series, sampleOf(status));
        latest = status;
        showStatus(status, series);
        showLink();
      },
      onLink: (next) => {
        link = next;
        showLink();
      },
    },
    signal,
  );
  lists.abort();
}

/** The chart begins with what the gateway remembers. */
async function fillSeries(signal: AbortSignal): Promise<void> {
  const answer = await ask("/history", decodeHistory, signal);
  if (answer.type !== "ok") return;
  const newest = answer.value.samples.at(-1)?.uptime_seconds ?? 0;
  const later = series.filter((sample) => sample.uptime_seconds > newest);
  series = [...answer.value.samples, ...later].reduce<Series>(append, []);
  if (latest !== undefined) showStatus(latest, series);
}

async function keepListsFresh(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    if (document.visibilityState === "visible") {
      await Promise.all([refreshFlows(signal), refreshObjects(signal)]);
    }
    await pause(LISTS_EVERY_MS, signal);
  }
}

function showLink(): void {
  const now = performance.now();
  const stale = link.type !== "live" || isStale(lastNewsMs, now);
  byId("link", HTMLParagraphElement).dataset["link"] = stale && link.type === "live" ? "lost" : link.type;
  setText("link", describeLink(link, lastNewsMs, now));
  byId("figures", HTMLDivElement).dataset["stale"] = String(stale && lastNewsMs !== undefined);
  byId("figures", HTMLDivElement).hidden = link.type === "locked";
  const lock = byId("lock", HTMLFormElement);
  if (link.type === "locked" && lock.hidden) {
    setText("lock-error", hasToken() ? "That is not the gateway's token." : "");
    lock.hidden = false;
    byId("token", HTMLInputElement).focus();
  } else if (link.type === "live") {
    lock.hidden = true;
  }
}

byId("lock", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  const input = byId("token", HTMLInputElement);
  setToken(input.value.trim());
  input.value = "";
  byId("lock", HTMLFormElement).hidden = true;
  link = { type: "connecting" };
  void run(page.signal);
});

watchSearch(page.signal);
setInterval(showLink, 1000);
void run(page.signal);
