"use strict";
// The table of pairs: sorted, filtered and shown a page at a time. Text reaches the page by textContent only.
(() => {
  const PAGE = 50;
  const $ = (id) => document.getElementById(id);
  const { rows, columns } = JSON.parse($("pairs-data").textContent);
  const table = $("pairs-table");
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const state = { column: null, ascending: true, search: "", domains: new Map(), page: 0 };
  let order = [];

  const show = (column, row) => {
    const value = column.values[row];
    if (value === null) return "–";
    return column.decimals === null ? String(value) : value.toFixed(column.decimals);
  };
  const make = (tag, text, className) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const haystack = new Array(rows);
  const textOf = (row) => (haystack[row] ??= columns.map((column) => show(column, row)).join("\n").toLowerCase());

  function compare(column) {
    const { values, numeric } = column;
    const sign = state.ascending ? 1 : -1;
    return (a, b) => {
      const x = values[a], y = values[b];
      if (x === null || y === null) return (x === null) - (y === null) || a - b; // missing ones last, both ways
      return sign * (numeric ? x - y : collator.compare(x, y)) || a - b;
    };
  }

  function update() {
    order = [];
    for (let row = 0; row < rows; row++) {
      let keep = !state.search || textOf(row).includes(state.search);
      for (const [column, domain] of state.domains) keep &&= String(column.values[row]) === domain;
      if (keep) order.push(row);
    }
    if (state.column) order.sort(compare(state.column));
    state.page = 0;
    draw();
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(order.length / PAGE));
    const start = state.page * PAGE;
    const body = document.createDocumentFragment();
    for (const row of order.slice(start, start + PAGE)) {
      const line = make("tr");
      for (const column of columns) {
        const text = show(column, row);
        line.append(make("td", text, column.numeric ? "number" : text.length > 32 ? "long" : ""));
      }
      body.append(line);
    }
    table.tBodies[0].replaceChildren(body);
    $("count").textContent = order.length === rows ? `${rows} pairs` : `${order.length} of ${rows} pairs`;
    $("page").textContent = `Page ${state.page + 1} of ${pages}`;
    $("previous").disabled = state.page === 0;
    $("next").disabled = state.page + 1 >= pages;
    document.querySelector(".pager").hidden = pages === 1;
  }

  function header() {
    const line = make("tr");
    for (const column of columns) {
      const cell = make("th", undefined, column.numeric ? "number" : "");
      const button = make("button", column.label);
      cell.scope = "col";
      button.type = "button";
      button.addEventListener("click", () => {
        state.ascending = state.column === column ? !state.ascending : true;
        state.column = column;
        for (const other of line.cells) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", state.ascending ? "ascending" : "descending");
        update();
      });
      cell.append(button);
      line.append(cell);
    }
    table.tHead.append(line);
  }

  function domainSelects() {
    for (const column of columns.filter(({ name }) => name === "query_domain" || name === "key_domain")) {
      const label = make("label", column.label);
      const select = make("select");
      select.id = column.name;
      select.append(new Option("all", ""));
      const names = [...new Set(column.values.map(String))].sort(collator.compare);
      names.forEach((name, i) => select.append(new Option(name, String(i))));
      select.addEventListener("change", () => {
        if (select.value === "") state.domains.delete(column);
        else state.domains.set(column, names[Number(select.value)]);
        update();
      });
      label.append(select);
      $("selects").append(label);
    }
  }

  const turn = (by) => () => {
    state.page += by;
    draw();
    table.parentElement.scrollTop = 0;
  };
  $("search").addEventListener("input", (event) => {
    state.search = event.target.value.trim().toLowerCase();
    update();
  });
  $("previous").addEventListener("click", turn(-1));
  $("next").addEventListener("click", turn(1));
  document.querySelector(".controls").hidden = false;
  header();
  domainSelects();
  update();
})();
