"use strict";
// Pan is the scrolling of #view, zoom the size of the drawing. Texts are set as textContent only, so none becomes markup.
const { boxes, edges, left } = JSON.parse(document.getElementById("graph-data").textContent);
const view = document.getElementById("view"), drawing = document.getElementById("graph");
const panel = document.getElementById("panel"), find = document.getElementById("find");
const shapes = [...document.querySelectorAll(".k")];
const wide = drawing.width.baseVal.value, high = drawing.height.baseVal.value;
const MOST = 100; // results that are listed
let scale = 1, hits = [], hit = -1;

function zoom(to, x = view.clientWidth / 2, y = view.clientHeight / 2) {
  to = Math.min(Math.max(to, 0.05), 3);
  const ratio = to / scale, a = (view.scrollLeft + x) * ratio - x, b = (view.scrollTop + y) * ratio - y;
  scale = to;
  drawing.setAttribute("width", wide * scale);
  drawing.setAttribute("height", high * scale);
  view.scrollTo(a, b);
}
function make(tag, text, parent, kind) {
  const made = parent.appendChild(document.createElement(tag));
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function choose(k, move) {
  for (const one of document.querySelectorAll(".on")) one.classList.remove("on");
  shapes[k].classList.add("on");
  for (const path of document.querySelectorAll(".e")) {
    const [a, b] = edges[path.dataset.e];
    if (a === k || b === k) path.classList.add("on");
  }
  if (move) {
    if (scale < 0.6) zoom(0.9);
    const at = shapes[k].getBoundingClientRect(), area = view.getBoundingClientRect();
    view.scrollBy(at.x + at.width / 2 - area.x - area.width / 2, at.y - area.y - area.height / 3);
  }
}
function tell(k) {
  const box = boxes[k];
  panel.replaceChildren();
  make("h2", box.title, panel);
  const facts = make("dl", "", panel);
  for (const [name, value] of box.facts) make("dt", name, facts), make("dd", value, facts);
  for (const [op, type, early, names] of box.nodes) {
    make("strong", op, panel);
    make("small", ` ${type}${early ? ", computed while operands are read" : ""}`, panel);
    const list = make("ul", "", panel);
    for (const name of names) make("li", name, list);
    if (!names.length) make("li", "added by a pass", list);
  }
  const near = [["read from", edges.filter((e) => e[1] === k).map((e) => e[0])],
                ["read by", edges.filter((e) => e[0] === k).map((e) => e[1])]];
  for (const [title, others] of near)
    if (others.length) {
      make("strong", title, panel);
      for (const other of others) jump(other, boxes[other].title);
    }
}
function jump(k, text, detail) {
  const button = make("button", text, panel);
  if (detail) make("small", ` ${detail}`, button);
  button.addEventListener("click", () => { choose(k, true); tell(k); });
}
function search() {
  const words = find.value.trim().toLowerCase(), found = [];
  for (const one of document.querySelectorAll(".hit")) one.classList.remove("hit");
  hits = [];
  hit = -1;
  if (!words) return panel.replaceChildren();
  boxes.forEach((box, k) => {
    const matched = box.title.toLowerCase().includes(words) ? [""] : [];
    for (const [op, , , names] of box.nodes) {
      const named = names.filter((name) => name.toLowerCase().includes(words));
      if (named.length) matched.push(...named);
      else if (op.toLowerCase().includes(words)) matched.push(op);
    }
    if (!matched.length) return;
    shapes[k].classList.add("hit");
    hits.push(k);
    for (const name of new Set(matched)) found.push([k, name]);
  });
  const gone = left.filter(([op, name]) => `${op} ${name}`.toLowerCase().includes(words));
  panel.replaceChildren();
  make("h2", `${found.length + gone.length} found in ${hits.length} kernels`, panel);
  for (const [k, name] of found.slice(0, MOST)) jump(k, name || boxes[k].title, name && boxes[k].head);
  if (found.length > MOST) make("p", `and ${found.length - MOST} more`, panel, "hint");
  if (gone.length) {
    make("strong", "In no kernel", panel);
    make("p", "Computed at compile time, or not needed: gpucomp inspect --node NAME says which.", panel, "hint");
    const list = make("ul", "", panel);
    for (const [op, name, why] of gone.slice(0, MOST)) make("li", `${op} ${name}${why ? `: ${why}` : ""}`, list);
    if (gone.length > MOST) make("p", `and ${gone.length - MOST} more`, panel, "hint");
  }
  if (hits.length) choose(hits[0], true);
}

find.addEventListener("input", search);
find.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && hits.length) choose(hits[(hit = (hit + 1) % hits.length)], true);
});
for (const [k, shape] of shapes.entries()) {
  shape.addEventListener("click", () => { choose(k, false); tell(k); });
  shape.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(k, true), tell(k); });
}
let held = null;
view.addEventListener("pointerdown", (event) => {
  if (event.pointerType === "mouse" && event.button === 0) held = [event.clientX, event.clientY];
});
window.addEventListener("pointermove", (event) => {
  if (!held) return;
  view.classList.add("held");
  view.scrollBy(held[0] - event.clientX, held[1] - event.clientY);
  held = [event.clientX, event.clientY];
});
window.addEventListener("pointerup", () => { held = null; view.classList.remove("held"); });
view.addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const area = view.getBoundingClientRect();
  zoom(scale * Math.exp(-event.deltaY / 300), event.clientX - area.x, event.clientY - area.y);
}, { passive: false });
document.getElementById("in").addEventListener("click", () => zoom(scale * 1.25));
document.getElementById("out").addEventListener("click", () => zoom(scale / 1.25));
document.getElementById("fit").addEventListener("click", () => zoom(Math.min(view.clientWidth / wide, view.clientHeight / high)));
zoom(Math.min(1, Math.max(0.55, view.clientWidth / wide)));
if (location.hash.length > 1) {
  find.value = decodeURIComponent(location.hash.slice(1)); // graph.html#layer.3 opens with what is found
  search();
} else if (shapes.length) {
  const at = shapes[0].getBoundingClientRect();
  view.scrollTo(at.x + at.width / 2 + view.scrollLeft - view.getBoundingClientRect().x - view.clientWidth / 2, 0);
}
