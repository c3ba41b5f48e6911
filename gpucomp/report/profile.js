"use strict";
// Orders the rows by the buttons above them.
const rows = document.querySelector(".kernels tbody");
for (const button of document.querySelectorAll(".sort button"))
  button.addEventListener("click", () => {
    const by = button.dataset.by, sign = by === "number" ? 1 : -1;
    rows.append(...[...rows.children].sort((a, b) => sign * (a.dataset[by] - b.dataset[by])));
    for (const one of document.querySelectorAll(".sort button")) one.setAttribute("aria-pressed", one === button);
  });
