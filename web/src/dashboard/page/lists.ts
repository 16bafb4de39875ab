// The lower part of the page: sessions under way and objects held. They are
// asked for every few seconds, and only while somebody looks.

import { ago, bytes, count, duration, joined, percent } from "../core/format.ts";
import { decodeFlows, decodeObjects, type FlowStatus, type ObjectStatus } from "../core/model.ts";
import { ask, removeObject } from "./api.ts";
import { byId, cell, keyed, setText, tableRow } from "./dom.ts";

/** Rows a table shows; more would help nobody. */
const FLOWS_SHOWN = 50;
const OBJECTS_SHOWN = 200;
/** Objects among which one can search. */
const OBJECTS_ASKED = 2000;

const flowRows = new Map<string, HTMLTableRowElement>();
const objectRows = new Map<string, HTMLTableRowElement>();
let objects: readonly ObjectStatus[] = [];
let objectsTotal = 0;

export async function refreshFlows(signal: AbortSignal): Promise<void> {
  const answer = await ask(`/flows?limit=${FLOWS_SHOWN}`, decodeFlows, signal);
  if (answer.type === "ok") showFlows(answer.value, answer.total ?? answer.value.length);
}

export async function refreshObjects(signal: AbortSignal): Promise<void> {
  const answer = await ask(`/objects?limit=${OBJECTS_ASKED}`, decodeObjects, signal);
  if (answer.type !== "ok") return;
  objects = answer.value;
  objectsTotal = answer.total ?? objects.length;
  showObjects(signal);
}

/** Wires the search field. */
export function watchSearch(signal: AbortSignal): void {
  byId("objects-find", HTMLInputElement).addEventListener(
    "input",
    () => {
      showObjects(signal);
    },
    { signal },
  );
}

function showFlows(flows: readonly FlowStatus[], total: number): void {
  setText("flows-count", count(total));
  note("flows-empty", total === 0 ? "No session at the moment." : more(total, flows.length));
  keyed(byId("flows", HTMLTableSectionElement), flows, flowRows, {
    key: (flow) => String(flow.id),
    make: (flow) => {
      const { row, head } = tableRow();
      head.textContent = flow.client;
      const peer = cell("Peer");
      peer.textContent = flow.peer;
      const app = cell("App");
      const name = document.createElement("span");
      const way = document.createElement("span");
      way.className = "quiet";
      way.textContent = `${flow.mode}, dialled from ${flow.dialer}`;
      name.append(flow.app, " ", way);
      app.append(name);
      row.append(peer, app, cell("From the store", "n"), cell("Over the link", "n"), cell("Age", "n"));
      return row;
    },
    update: (row, flow) => {
      fill(row, 3, [
        joined(bytes(flow.bytes.served)),
        joined(bytes(flow.bytes.fetched)),
        duration(flow.age_seconds),
      ]);
    },
  });
}

function showObjects(signal: AbortSignal): void {
  const wanted = byId("objects-find", HTMLInputElement).value.trim().toLowerCase();
  const found = objects.filter(({ name, app, id }) =>
    [name, app, id].some((text) => text.toLowerCase().includes(wanted)),
  );
  const shown = found.slice(0, OBJECTS_SHOWN);
  setText("objects-count", count(objectsTotal));
  note(
    "objects-empty",
    objectsTotal === 0
      ? "The store holds nothing yet."
      : found.length === 0
        ? "No object matches."
        : more(wanted === "" ? objectsTotal : found.length, shown.length),
  );
  keyed(byId("objects", HTMLTableSectionElement), shown, objectRows, {
    key: (object) => object.id,
    make: (object) => objectRow(object, signal),
    update: (row, object) => {
      const { name, size_bytes: size, held_bytes: held, idle_seconds: idle } = object;
      const title = row.querySelector(".name");
      if (title !== null) title.textContent = name === "" ? object.id : name;
      fill(row, 2, [
        size === null ? "unknown" : joined(bytes(size)),
        size === null ? joined(bytes(held)) : percent(held, size),
        ago(idle),
      ]);
    },
  });
}

function objectRow(object: ObjectStatus, signal: AbortSignal): HTMLTableRowElement {
  const { row, head } = tableRow();
  const title = document.createElement("span");
  title.className = "name";
  head.append(title);
  head.title = object.id;
  const app = cell("App");
  app.textContent = object.app;
  const action = cell("", "action");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain small";
  button.textContent = "Delete";
  button.setAttribute("aria-label", `Delete ${object.name === "" ? object.id : object.name}`);
  button.addEventListener("click", () => {
    void confirmAndRemove(object, signal);
  });
  action.append(button);
  row.append(app, cell("Size", "n"), cell("Held", "n"), cell("Last used", "n"), action);
  return row;
}

async function confirmAndRemove(object: ObjectStatus, signal: AbortSignal): Promise<void> {
  const name = object.name === "" ? object.id : object.name;
  const dialog = byId("confirm", HTMLDialogElement);
  setText("confirm-text", `${name}, ${joined(bytes(object.held_bytes))}`);
  dialog.returnValue = "keep";
  dialog.showModal();
  await new Promise((resolve) => {
    dialog.addEventListener("close", resolve, { once: true });
  });
  if (dialog.returnValue !== "delete") return;
  const refused = await removeObject(object.id, signal);
  toast(refused === undefined ? `${name} is deleted.` : `${name} is still there: ${refused}.`);
  await refreshObjects(signal);
}

let toastTimer: ReturnType<typeof setTimeout> | undefined;

function toast(text: string): void {
  setText("toast", text);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    setText("toast", "");
  }, 6000);
}

/** Sets the text of cells from `first` on. */
function fill(row: HTMLTableRowElement, first: number, texts: readonly string[]): void {
  texts.forEach((text, index) => {
    const place = row.cells[first + index];
    if (place !== undefined && place.textContent !== text) place.textContent = text;
  });
}

function note(id: string, text: string): void {
  byId(id, HTMLParagraphElement).hidden = text === "";
  setText(id, text);
}

function more(total: number, shown: number): string {
  return total > shown ? `and ${count(total - shown)} more` : "";
}
