// The upper part of the page: the headline, the chart, totals, apps, health.

import { stackedAreas } from "../core/chart.ts";
import { bytes, count, duration, joined, micros, percent, rate, words } from "../core/format.ts";
import { explain, findings, ranked } from "../core/health.ts";
import type { Status } from "../core/model.ts";
import { rateNow, rates, type Series, SPAN_SECONDS } from "../core/series.ts";
import { byId, cell, keyed, pairs, setText, tableRow } from "./dom.ts";

const FRAME = { width: 600, height: 200, spanSeconds: SPAN_SECONDS };
const SVG = "http://www.w3.org/2000/svg";
const appRows = new Map<string, HTMLTableRowElement>();

export function showStatus(status: Status, series: Series): void {
  setText("facts", `${status.version} · up ${duration(status.uptime_seconds)}`);
  showFindings(status);
  showNow(series);
  showChart(series);
  showTotals(status);
  showApps(status);
  showHealth(status);
}

function showFindings(status: Status): void {
  const list = byId("findings", HTMLUListElement);
  const found = findings(status);
  const shown = JSON.stringify(found);
  if (list.dataset["shown"] === shown) return;
  list.dataset["shown"] = shown;
  list.replaceChildren(
    ...found.map(({ level, text }) => {
      const item = document.createElement("li");
      item.className = "finding";
      item.dataset["level"] = level;
      item.textContent = text;
      return item;
    }),
  );
}

function showNow(series: Series): void {
  const now = rateNow(series);
  const saved = rate(now?.served ?? 0);
  const big = byId("saved", HTMLParagraphElement);
  const [figure, unit] = big.querySelectorAll("span");
  if (figure !== undefined && unit !== undefined) {
    figure.textContent = now === undefined ? "–" : saved.figure;
    unit.textContent = now === undefined ? "" : saved.unit;
  }
  const delivered = (now?.served ?? 0) + (now?.fetched ?? 0);
  setText(
    "saved-share",
    now === undefined
      ? "Waiting for the first figures"
      : delivered > 0
        ? `${percent(now.served, delivered)} of what clients receive does not cross the link`
        : "Nobody asks for content at the moment",
  );
  setText("rate-served", joined(saved));
  setText("rate-fetched", joined(rate(now?.fetched ?? 0)));
}

function showChart(series: Series): void {
  const points = rates(series);
  const areas = stackedAreas(points, FRAME);
  byId("area-served", SVGPathElement).setAttribute("d", areas.served);
  byId("area-fetched", SVGPathElement).setAttribute("d", areas.fetched);
  byId("line-total", SVGPathElement).setAttribute("d", areas.total);
  byId("chart-grid", SVGGElement).replaceChildren(
    ...areas.ticks.map(({ y }) => {
      const line = document.createElementNS(SVG, "line");
      for (const [name, value] of [["x1", 0], ["x2", FRAME.width], ["y1", y], ["y2", y]] as const) {
        line.setAttribute(name, String(value));
      }
      return line;
    }),
  );
  byId("chart-ticks", HTMLDivElement).replaceChildren(
    ...areas.ticks.map(({ value, y }) => {
      const label = document.createElement("span");
      label.textContent = joined(rate(value));
      label.style.top = `${(y / FRAME.height) * 100}%`;
      return label;
    }),
  );
  setText("chart-empty", points.length < 2 ? "The chart fills as time goes by" : "");
  const now = points.at(-1);
  const label =
    now === undefined
      ? "Rates of the last five minutes: no figures yet"
      : `Rates of the last five minutes. Now ${joined(rate(now.served))} from the store and ` +
        `${joined(rate(now.fetched))} over the link; the chart's top is ${joined(rate(areas.top))}.`;
  byId("chart", SVGSVGElement).setAttribute("aria-label", label);
}

function showTotals({ bytes: content, store }: Status): void {
  const outside = (all: number, inside: number): string =>
    all > inside ? `and ${joined(bytes(all - inside))} by outside peers` : "by clients inside";
  setText("total-asked", joined(bytes(content.asked_inside)));
  setText("total-asked-note", outside(content.asked, content.asked_inside));
  setText("total-served", joined(bytes(content.served_inside)));
  setText(
    "total-served-note",
    content.served > content.served_inside
      ? `and ${joined(bytes(content.served - content.served_inside))} to outside peers`
      : "to clients inside",
  );
  setText("total-fetched", joined(bytes(content.fetched_inside)));
  setText("total-fetched-note", "for clients inside");
  const delivered = content.served_inside + content.fetched_inside;
  setText("hit-ratio", percent(content.served_inside, delivered));
  setText("hit-ratio-note", `of ${joined(bytes(delivered))} delivered`);

  const meter = byId("fill-meter", HTMLDivElement);
  meter.hidden = store === null;
  if (store === null) {
    setText("fill", "none");
    setText("fill-note", "nothing is kept");
    return;
  }
  const share = store.capacity_bytes > 0 ? Math.min(store.held_bytes / store.capacity_bytes, 1) : 0;
  meter.setAttribute("aria-valuenow", String(Math.round(share * 100)));
  byId("fill-bar", HTMLDivElement).style.width = `${share * 100}%`;
  setText("fill", percent(store.held_bytes, store.capacity_bytes));
  setText("fill-note", `${joined(bytes(store.held_bytes))} of ${joined(bytes(store.capacity_bytes))}`);
}

function showApps(status: Status): void {
  const apps = [...status.apps].filter(([, flows]) => flows.seen > 0 || flows.sessions > 0);
  apps.sort(([nameA, a], [nameB, b]) => b.seen - a.seen || (nameA < nameB ? -1 : 1));
  byId("apps-empty", HTMLParagraphElement).hidden = apps.length > 0;
  keyed(byId("apps", HTMLTableSectionElement), apps, appRows, {
    key: ([name]) => name,
    make: ([name]) => {
      const { row, head } = tableRow();
      head.textContent = name;
      const labels = ["Seen", "Taken into a session", "Active now", "Counted and passed"];
      row.append(...labels.map((label) => cell(label, "n")));
      return row;
    },
    update: (row, [, flows]) => {
      const passed = Math.max(0, flows.seen - flows.sessions);
      const figures = [flows.seen, flows.sessions, flows.active, passed];
      figures.forEach((figure, index) => {
        const place = row.cells[index + 1];
        if (place !== undefined) place.textContent = count(figure);
      });
    },
  });
}

function showHealth({ modes, adopt, store, reasons }: Status): void {
  pairs(
    "modes",
    [
      ["Routed flows", adopt === null ? "not used" : `${modes.inside.join(", ")} → ${modes.outside.join(", ")}`],
      ["Proxy port", modes.explicit ?? "not used"],
      ...(adopt === null
        ? []
        : ([
            ["Adopted", count(adopt.adopted)],
            ["Given back", count(adopt.given_back)],
            ["Held, median", adopt.adopted > 0 ? micros(adopt.held_p50_us) : "–"],
            ["Held, 99th percentile", adopt.adopted > 0 ? micros(adopt.held_p99_us) : "–"],
          ] as const)),
    ],
    "",
  );
  pairs(
    "store",
    store === null
      ? []
      : [
          ["Writes", store.degraded ? "refused" : "taken"],
          ["Look-ups that hit", percent(store.hits, store.hits + store.misses)],
          ["Segments", count(store.segments)],
          ["Evicted", joined(bytes(store.evicted_bytes))],
          ["Declined", joined(bytes(store.declined_bytes))],
          ["Wrong checksums", count(store.checksum_failures)],
          ["Device errors", count(store.errors)],
        ],
    "There is no store",
  );
  const reasonPairs = ranked(reasons).map(
    ([reason, n]) => [explain(reason) ?? words(reason), count(n)] as const,
  );
  pairs("reasons", reasonPairs, "Nothing so far");
  const kernelPairs = ranked(adopt?.reasons ?? new Map<string, number>()).map(
    ([reason, n]) => [words(reason), count(n)] as const,
  );
  pairs("kernel", kernelPairs, adopt === null ? "Not used" : "Nothing so far");
}
