// Finding and making elements; text always goes in as text, never as markup.

/** The element with this id, which index.html promises. */
export function byId<T extends Element>(id: string, type: new () => T): T {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`index.html lacks #${id}`);
  return element;
}

/** Sets an element's text, unless it has it already. */
export function setText(id: string, text: string): void {
  const element = document.getElementById(id);
  if (element !== null && element.textContent !== text) element.textContent = text;
}

/** A table row and its head. The roles are said, because small screens show rows
 * as blocks, which takes the table's own away. */
export function tableRow(): { readonly row: HTMLTableRowElement; readonly head: HTMLTableCellElement } {
  const row = document.createElement("tr");
  row.setAttribute("role", "row");
  const head = document.createElement("th");
  head.scope = "row";
  head.setAttribute("role", "rowheader");
  row.append(head);
  return { row, head };
}

/** A table cell with its column's name, which small screens show beside it. */
export function cell(label: string, className = ""): HTMLTableCellElement {
  const element = document.createElement("td");
  element.dataset["label"] = label;
  element.setAttribute("role", "cell");
  if (className !== "") element.className = className;
  return element;
}

/** Brings the children of `parent` in line with `items`: made once by key,
 * updated in place, so that focus and selection stay where they are. */
export function keyed<T, E extends HTMLElement>(
  parent: HTMLElement,
  items: readonly T[],
  rows: Map<string, E>,
  steps: {
    readonly key: (item: T) => string;
    readonly make: (item: T) => E;
    readonly update: (row: E, item: T) => void;
  },
): void {
  const present = new Set(items.map(steps.key));
  for (const [key, row] of rows) {
    if (!present.has(key)) {
      row.remove();
      rows.delete(key);
    }
  }
  let place: Element | null = parent.firstElementChild;
  for (const item of items) {
    const key = steps.key(item);
    let row = rows.get(key);
    if (row === undefined) {
      row = steps.make(item);
      rows.set(key, row);
    }
    steps.update(row, item);
    if (row === place) place = place.nextElementSibling;
    else parent.insertBefore(row, place);
  }
}

/** Fills a list of pairs. */
export function pairs(id: string, entries: readonly (readonly [string, string])[], none: string): void {
  const list = byId(id, HTMLDListElement);
  const shown = JSON.stringify(entries);
  if (list.dataset["shown"] === shown) return;
  list.dataset["shown"] = shown;
  list.replaceChildren(
    ...(entries.length === 0 ? [[none, ""] as const] : entries).map(([term, value]) => {
      const group = document.createElement("div");
      const dt = document.createElement("dt");
      const dd = document.createElement("dd");
      dt.textContent = term;
      dd.textContent = value;
      if (value === "") dt.className = "quiet";
      group.append(dt, dd);
      return group;
    }),
  );
}
