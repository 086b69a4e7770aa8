// Sorting, choosing a graph, and the picture of a tensor's cores. The page is complete without it, except for that picture.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
        const number = head.classList.contains("n");
        const compare = (a, b) => (number ? key(a) - key(b) : key(a).localeCompare(key(b)));
        const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? -compare(a, b) : compare(a, b)));
        table.tBodies[0].append(...rows);
      });
    });
  }

  const colour = (core, cores) =>
    core === data.nobody ? "transparent" : core === data.several ? "#8886" : `hsl(${Math.round((core * 360) / Math.max(cores, 1))} 65% ${core % 2 ? 45 : 58}%)`;

  function draw(section, picture) {
    const svg = section.querySelector("svg.own"), rows = picture.cells.length, columns = picture.cells[0].length;
    svg.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    svg.replaceChildren();
    const seen = new Set();
    picture.cells.forEach((row, y) => {
      for (let x = 0; x < columns; ) {
        let end = x + 1;
        while (end < columns && row[end] === row[x]) end += 1;
        const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        for (const [name, value] of Object.entries({ x, y, width: end - x, height: 1, fill: colour(row[x], picture.cores) })) rect.setAttribute(name, value);
        svg.append(rect);
        seen.add(row[x]);
        x = end;
      }
    });
    const name = (core) => (core === data.nobody ? "no core" : core === data.several ? "several cores" : `core ${core}`);
    const legend = section.querySelector(".legend");
    legend.replaceChildren(
      ...[...seen].sort((a, b) => a - b).map((core) => {
        const entry = document.createElement("span"), mark = document.createElement("i");
        mark.style.background = colour(core, picture.cores);
        entry.append(mark, name(core));
        return entry;
      }),
    );
    const others = picture.device_size.slice(0, -1).filter((_, i) => i !== picture.down);
    section.querySelector("figcaption.own").textContent =
      `${picture.buffer}, ${picture.writes ? "written" : "read"} by ${picture.op} (${picture.kernel}) on ${picture.cores} cores: device dimension ${picture.down} ` +
      `(${picture.device_size[picture.down]} places) from top to bottom, ${others.join(" × ") || 1} sticks across`;
  }

  for (const section of document.querySelectorAll("section.graph")) {
    const pictures = data.graphs[section.dataset.graph] ?? [], choice = section.querySelector("select.tensor");
    if (!choice || pictures.length === 0) continue;
    const show = () => draw(section, { ...pictures[choice.value], cells: data.cells[pictures[choice.value].cells] });
    choice.addEventListener("change", show);
    const owners = (picture) => new Set(data.cells[picture.cells].flat()).size; // the first picture shown is one with something to see
    choice.value = pictures.reduce((best, picture, i) => (owners(picture) > owners(pictures[best]) ? i : best), 0);
    show();
  }

  const chooser = document.getElementById("graph");
  if (chooser) {
    const show = () => document.querySelectorAll("section.graph").forEach((s) => s.classList.toggle("hidden", s.dataset.graph !== chooser.value));
    chooser.addEventListener("change", show);
    show();
  }

  document.documentElement.dataset.ready = "yes";
  document.documentElement.dataset.overflow = document.documentElement.scrollWidth > window.innerWidth ? "yes" : "no";
})();
