// Without this the page is complete; with it, tables can be sorted and lines be hidden.
"use strict";

const asButton = (parent) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...parent.childNodes);
  parent.append(button);
  return button;
};

// Numbers by value, words by letters; what is no number comes last, whatever the direction.
const compare = (a, b, sign, words) => {
  const [x, y] = [a, b].map((text) => (words ? NaN : parseFloat(text)));
  if (isNaN(x) && isNaN(y)) return (words ? sign : 1) * a.localeCompare(b, "en", { numeric: true });
  return isNaN(x) ? 1 : isNaN(y) ? -1 : sign * (x - y);
};

// Upwards, downwards, as it was.
const NEXT = { null: "ascending", ascending: "descending", descending: "none", none: "ascending" };

for (const table of document.querySelectorAll("table:not(.words)")) {
  const [body] = table.tBodies, rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  if (rows.length < 2) continue;
  heads.forEach((head, column) => {
    asButton(head).addEventListener("click", () => {
      const order = NEXT[head.getAttribute("aria-sort")];
      for (const other of heads) other.setAttribute("aria-sort", other === head ? order : "none");
      const sign = order === "descending" ? -1 : 1;
      const text = (row) => row.cells[column].textContent;
      const sorted = [...rows].sort((a, b) => compare(text(a), text(b), sign, column === 0));
      body.append(...(order === "none" ? rows : sorted));
    });
  });
}

for (const item of document.querySelectorAll(".keys li")) {
  const button = asButton(item);
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    for (const part of item.closest("figure").querySelectorAll(`g.${item.dataset.series}`)) {
      part.classList.toggle("off", !shown);
    }
  });
}
