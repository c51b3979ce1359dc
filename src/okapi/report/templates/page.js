"use strict";
// Tables are sorted and searched, galleries filtered and ordered. All text is in the page already, and set as text only.
(() => {
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const labelled = (text, control) => make("label", {}, text, control);

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const sign = head.ariaSort === "ascending" ? -1 : 1;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.ariaSort = sign > 0 ? "ascending" : "descending";
        const missing = (cell) => cell.textContent === "–"; // last, both ways
        const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const numeric = head.classList.contains("number");
        body.append(...[...rows].sort((a, b) =>
          missing(a.cells[column]) - missing(b.cells[column]) ||
          sign * (numeric ? value(a) - value(b) || 0 : collator.compare(value(a), value(b)))));
      });
    });
    if (rows.length > 20) {
      const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join("\n").toLowerCase());
      const count = make("output", { ariaLive: "polite", textContent: `${rows.length} rows` });
      const search = make("input", { type: "search", autocomplete: "off", spellcheck: false });
      search.addEventListener("input", () => {
        const wanted = search.value.trim().toLowerCase();
        rows.forEach((row, place) => (row.hidden = !texts[place].includes(wanted)));
        const shown = rows.filter((row) => !row.hidden).length;
        count.textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
      });
      table.parentElement.before(make("div", { className: "controls" }, labelled("Search", search), count));
    }
  }

  for (const list of document.querySelectorAll(".gallery")) {
    const FIRST = 24; // queries: a phone would scroll for minutes
    const queries = [...list.children];
    const count = make("output", { ariaLive: "polite" });
    const more = make("button", { type: "button" });
    const filters = {};
    const select = (...options) => {
      const control = make("select", {}, ...options.map(([text, value]) => new Option(text, value)));
      control.addEventListener("change", () => update());
      return control;
    };
    for (const key of ["domain", "class", "matches"]) {
      const values = [...new Set(queries.map((query) => query.dataset[key]).filter((value) => value !== undefined))];
      if (values.length > 1) {
        filters[key] = select(["all", ""], ...values.sort(collator.compare).map((value) => [value, `=${value}`]));
      }
    }
    const order = select(["as drawn", "0"], ["nearest first", "1"], ["farthest first", "-1"]);
    let all = false;
    const update = () => {
      const fits = (query) =>
        Object.entries(filters).every(([key, { value }]) => ["", `=${query.dataset[key]}`].includes(value));
      const sorted = [...queries].sort((a, b) => order.value * (a.dataset.distance - b.dataset.distance));
      const chosen = sorted.filter(fits);
      const shown = new Set(all ? chosen : chosen.slice(0, FIRST));
      for (const query of queries) query.hidden = !shown.has(query);
      list.append(...sorted);
      count.textContent = chosen.length === queries.length ? `${chosen.length} queries` : `${chosen.length} of ${queries.length} queries`;
      more.textContent = `Show all ${chosen.length}`;
      more.hidden = shown.size === chosen.length;
    };
    more.addEventListener("click", () => {
      all = true;
      update();
    });
    const names = { domain: "Domain", class: "Class", matches: "Matches" };
    const labels = Object.entries(filters).map(([key, control]) => labelled(names[key], control));
    list.before(make("div", { className: "controls" }, ...labels, labelled("Order", order), count));
    list.after(more);
    update();
  }
})();
