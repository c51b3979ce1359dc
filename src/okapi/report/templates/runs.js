"use strict";
// The gallery is filtered and sorted, the map is coloured; all that they show stands in the page already.
(() => {
  const $ = (id) => document.getElementById(id);
  const onChange = (elements, action) => elements.forEach((element) => element.addEventListener("change", action));

  const list = $("gallery-list");
  if (list) {
    const queries = [...list.children];
    const filters = [["by-domain", "domain"], ["by-class", "class"], ["by-mark", "mark"]].filter(([id]) => $(id));
    const FIRST = 24; // of the queries that are asked for: a phone would scroll for minutes
    let all = false;
    const update = () => {
      const fits = (query) => filters.every(([id, key]) => ["", query.dataset[key]].includes($(id).value));
      const sign = { near: 1, far: -1 }[$("by-order").value];
      const distance = (query) => Number(query.dataset.distance);
      const ordered = sign ? [...queries].sort((a, b) => sign * (distance(a) - distance(b))) : queries;
      const found = ordered.filter(fits);
      const shown = new Set(all ? found : found.slice(0, FIRST));
      for (const query of queries) query.hidden = !shown.has(query);
      list.append(...ordered);
      $("gallery-count").textContent =
        found.length === queries.length ? `${found.length} queries` : `${found.length} of ${queries.length} queries`;
      $("gallery-more").textContent = `Show all ${found.length}`;
      $("gallery-more").hidden = shown.size === found.length;
      $("gallery-none").hidden = found.length > 0;
    };
    $("gallery-more").addEventListener("click", () => {
      all = true;
      update();
    });
    onChange([...$("gallery-controls").querySelectorAll("select")], update);
    $("gallery-controls").hidden = false;
    update();
  }

  const drawings = $("map-drawings");
  if (drawings) {
    const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value ?? "0";
    const update = () => {
      const colouring = chosen("colouring");
      drawings.className = `by-${colouring}`;
      for (const key of document.querySelectorAll(".key[data-colouring]")) {
        key.hidden = key.dataset.colouring !== colouring;
      }
      for (const figure of drawings.children) figure.hidden = figure.dataset.drawing !== chosen("drawing");
    };
    onChange([...$("map-controls").querySelectorAll("input")], update);
    for (const kind of ["pointerover", "click"]) {
      drawings.addEventListener(kind, ({ target }) => {
        const title = target.querySelector?.(":scope > title");
        if (title) $("map-sample").textContent = title.textContent;
      });
    }
    $("map-controls").hidden = false;
    update();
  }
})();
