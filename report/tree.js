"use strict";
// The search tree as an icicle on a canvas: cells of less than a pixel are merged, so that a million nodes are drawn at once.

const NONE = 65535, OPEN = 0, EXPANDED = 1, CUT = 2, FORBIDDEN = 3, CLOSED_BOUND = 4, CLOSED_CONSTRAINT = 5;
const FATES = {
  [OPEN]: ["not looked into", "#ffffff"], [EXPANDED]: ["expanded", "#cfe3f3"], [CUT]: ["cannot beat the best: cut off at once", "#c9ccd1"],
  [FORBIDDEN]: ["forbidden by a constraint", "#6e7681"], [CLOSED_BOUND]: ["closed later: cannot beat the best", "#b3aec4"],
  [CLOSED_CONSTRAINT]: ["closed later: nothing below is possible", "#8f7f79"],
};
const ON_WAY = "#fdc896";

class TreeView {
  constructor(data, k) {
    const column = name => data.arrays[`tree${k}.${name}`];
    Object.assign(this, {
      names: data.trees[k].names, parent: column("parent"), value: column("value"), name: column("name"), state: column("state"),
      tag: column("tag"), bound: column("bound"), best: column("best"), cut: column("cut"), bestNs: column("best")[0],
    });
    this.layOut();
    this.way = new Uint8Array(this.n);  // the nodes that the best is below
    for (let row = 0; row < this.n; row++)
      if (this.bestNs && this.best[row] === this.bestNs && (row === 0 || this.way[this.parent[row]])) { this.way[row] = 1; this.end = row; }
    this.left0 = 0; this.right0 = 1; this.top = 0; this.chosen = 0; this.colours = "fate";
    this.canvas = h("canvas", { height: 10, tabindex: 0, role: "application", "aria-label": "search tree: arrow keys go to the parent, a child, a neighbour" });
    this.info = h("div", { class: "cellinfo" });
    this.listen();
  }

  // Left edge, width and depth of every node, in a picture of width 1: parents stand before their children.
  layOut() {
    const { parent } = this, n = this.n = parent.length;
    const leaves = new Float64Array(n), inner = new Uint8Array(n), left = new Float64Array(n), free = new Float64Array(n);
    const depth = new Uint16Array(n);
    for (let row = 1; row < n; row++) inner[parent[row]] = 1;
    for (let row = n - 1; row > 0; row--) { if (!inner[row]) leaves[row] = 1; leaves[parent[row]] += leaves[row]; }
    if (!inner[0]) leaves[0] = 1;
    let levels = 1;
    for (let row = 1; row < n; row++) {
      const p = parent[row];
      left[row] = left[p] + free[p];
      free[p] += leaves[row];
      depth[row] = depth[p] + 1;
      if (depth[row] >= levels) levels = depth[row] + 1;
    }
    const all = leaves[0];
    for (let row = 0; row < n; row++) { left[row] /= all; leaves[row] /= all; }
    Object.assign(this, { left, width: leaves, depth, levels });
  }

  text(k) { return k === NONE || this.names[k] === undefined ? "" : this.names[k]; }
  asked(row) { return row === 0 ? "" : this.text(this.name[this.parent[row]]); }
  label(row) { return row === 0 ? "all implementations" : `${this.asked(row)} = ${this.text(this.value[row])}`; }

  colour(row) {
    if (this.colours === "best") return this.best[row] ? ramp(Math.log(this.best[row] / this.bestNs) / Math.log(8)) : "#f3f4f6";
    if (this.colours === "bound") return ramp(Math.log(this.bound[row] / this.bound[0]) / Math.log(Math.max(1.5, (this.bestNs || 8 * this.bound[0]) / this.bound[0])));
    return this.way[row] ? ON_WAY : FATES[this.state[row]][1];
  }

  draw() {
    const { canvas, depth, left, width } = this;
    const wide = canvas.clientWidth || 1120, ratio = window.devicePixelRatio || 1;
    const rowHigh = this.rowHigh = Math.max(17, Math.min(34, Math.floor(560 / this.levels)));
    const rows = Math.min(this.levels, Math.floor(560 / rowHigh)), high = rows * rowHigh;
    this.rows = rows;
    canvas.style.height = `${high}px`;
    canvas.width = wide * ratio; canvas.height = high * ratio;
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "12px system-ui, sans-serif"; c.textBaseline = "middle";
    const zoom = wide / (this.right0 - this.left0), from = this.left0, top = this.top;
    const seen = new Uint8Array(rows * (wide + 2));
    let drawn = 0;
    for (let row = 0; row < this.n; row++) {
      const level = depth[row] - top;
      if (level < 0 || level >= rows) continue;
      let x = (left[row] - from) * zoom, w = width[row] * zoom;
      if (x + w < 0 || x > wide) continue;
      if (w < 1) {
        const at = level * (wide + 2) + Math.max(0, x | 0);
        if (seen[at]) continue;
        seen[at] = 1; w = 1;
      }
      if (x < 0) { w += x; x = 0; }
      if (x + w > wide) w = wide - x;
      const y = level * rowHigh;
      c.fillStyle = this.colour(row);
      c.fillRect(x, y, w, rowHigh - 1);
      if (w > 3) { c.fillStyle = "#9aa1a9"; c.fillRect(x + w - 0.6, y, 0.6, rowHigh - 1); }
      if (row === this.chosen) { c.strokeStyle = ON_CELL; c.lineWidth = 2; c.strokeRect(x + 1, y + 1, w - 2, rowHigh - 3); }
      if (w > 26) this.write(c, row, x, y, w);
      drawn++;
    }
    this.drawn = drawn;
    this.tell();
  }

  write(c, row, x, y, w) {
    const dark = this.colours === "fate" ? [FORBIDDEN, CLOSED_CONSTRAINT].includes(this.state[row]) && !this.way[row] : this.isDark(row);
    c.fillStyle = dark ? "#ffffff" : ON_CELL;
    const value = row === 0 ? this.label(0) : this.text(this.value[row]), best = this.best[row] ? timeText(this.best[row], 3) : "";
    for (const text of [best && `${this.label(row)}   ${best}`, this.label(row), value]) {
      if (!text || c.measureText(text).width > w - 8) continue;
      c.fillText(text, x + 4, y + this.rowHigh / 2);
      return;
    }
  }
  isDark(row) { const m = this.colour(row).match(/\d+/g); return m !== null && m.length === 3 && +m[1] < 110; }

  // The node at a place of the canvas, -1 for none.
  at(e) {
    const box = this.canvas.getBoundingClientRect();
    const level = this.top + Math.floor((e.clientY - box.top) / this.rowHigh);
    const x = this.left0 + (e.clientX - box.left) / box.width * (this.right0 - this.left0);
    for (let row = this.n - 1; row >= 0; row--)
      if (this.depth[row] === level && this.left[row] <= x && x < this.left[row] + this.width[row]) return row;
    return -1;
  }

  choose(row) {
    this.chosen = row;
    this.left0 = this.left[row]; this.right0 = this.left[row] + this.width[row];
    this.top = Math.max(0, Math.min(this.depth[row] - 4, this.levels - this.rows));
    this.draw();
  }

  listen() {
    let grip = null, moved = false;
    const { canvas } = this;
    canvas.addEventListener("pointerdown", e => { grip = [e.clientX, e.clientY, this.left0, this.right0, this.top]; moved = false; });
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => { grip = null; });
    canvas.addEventListener("pointermove", e => {
      if (grip === null) { const row = this.at(e); row < 0 ? untip() : tip(e, this.lines(row)); return; }
      const dx = e.clientX - grip[0], dy = e.clientY - grip[1];
      if (Math.abs(dx) + Math.abs(dy) < 4) return;
      moved = true; untip();
      const span = grip[3] - grip[2], shift = Math.max(-grip[2], Math.min(1 - grip[3], -dx / canvas.clientWidth * span));
      this.left0 = grip[2] + shift; this.right0 = grip[3] + shift;
      this.top = Math.max(0, Math.min(this.levels - this.rows, Math.round(grip[4] - dy / this.rowHigh)));
      this.draw();
    });
    canvas.addEventListener("pointerleave", untip);
    canvas.addEventListener("click", e => { const row = moved ? -1 : this.at(e); if (row >= 0) this.choose(row); });
    canvas.addEventListener("wheel", e => {
      e.preventDefault();
      const at = this.left0 + e.offsetX / canvas.clientWidth * (this.right0 - this.left0), f = Math.exp(e.deltaY / 400);
      this.left0 = Math.max(0, at - (at - this.left0) * f); this.right0 = Math.min(1, at + (this.right0 - at) * f);
      this.draw();
    }, { passive: false });
    window.addEventListener("keydown", e => { if (e.key === "Escape") this.choose(0); });
    canvas.addEventListener("keydown", e => {
      const row = this.beside(e.key);
      if (row < 0) return;
      e.preventDefault();
      this.choose(row);
    });
    new ResizeObserver(() => { if (Math.abs(canvas.clientWidth * (window.devicePixelRatio || 1) - canvas.width) > 1) this.draw(); }).observe(canvas);
  }

  // Where an arrow key leads from the chosen node, -1 for nowhere.
  beside(key) {
    const row = this.chosen, parent = row > 0 ? this.parent[row] : -1;
    const children = of => [...Array(this.n).keys()].filter(k => k > 0 && this.parent[k] === of);
    if (key === "ArrowUp") return parent;
    if (key === "ArrowDown") { const below = children(row); return below.length ? below.reduce((a, k) => this.width[k] > this.width[a] ? k : a) : -1; }
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key], all = step && parent >= 0 ? children(parent) : [];
    return all[all.indexOf(row) + step] ?? -1;
  }

  lines(row) {
    const found = [this.label(row)];
    found.push(`bound ${timeText(this.bound[row])}` + (this.best[row] ? `, best below ${timeText(this.best[row])}` : ", nothing measured below"));
    found.push(this.fate(row));
    if (this.state[row] === EXPANDED) found.push(`asks for ${this.text(this.name[row])} (${sourceOf(String.fromCharCode(this.tag[row]))[0]})`);
    return found;
  }
  fate(row) {
    const words = FATES[this.state[row]][0], cut = this.cut[row];
    if (this.state[row] === FORBIDDEN && this.name[row] !== NONE) return `${words}: ${this.text(this.name[row])}`;
    return cut ? `${words} (then ${timeText(cut)})` : words;
  }

  // What is chosen, beside the decisions above it.
  tell() {
    const row = this.chosen, above = [];
    for (let at = row; at > 0; at = this.parent[at]) above.unshift(at);
    this.info.replaceChildren(
      h("div", {}, this.lines(row).map((line, k) => h(k ? "div" : "b", {}, line)), h("div", { class: "soft" }, `level ${this.depth[row]} of ${this.levels - 1}`)),
      h("div", {}, h("div", { class: "soft" }, above.length ? "decisions above" : "no decision above"),
        h("code", {}, above.map(at => this.label(at)).join(",  "))));
  }
}

function drawTree(data) {
  if (!data.trees.length) { put("tree", h("p", { class: "note" }, "No search tree was kept.")); return; }
  if (data.evaluations.tag.includes("C") && data.trees.every(t => t.n_nodes === 1)) {
    put("tree", h("p", { class: "note" }, "Each component was searched by a tree of its own, which is not kept. `explore explain` has the table of components."));
    return;
  }
  const holder = h("div"), tools = h("div", { class: "tools" });
  put("tree", tools, holder);
  const views = new Map();
  let view = null;
  const show = k => {
    view = views.get(k) || new TreeView(data, k);
    views.set(k, view);
    holder.replaceChildren(view.canvas, view.info);
    view.draw();
  };
  const last = data.trees.reduce((a, t, k) => t.n_nodes >= data.trees[a].n_nodes ? k : a, 0);
  if (data.trees.length > 1)
    tools.append(h("select", { onchange: e => show(+e.target.value) }, data.trees.map((t, k) =>
      h("option", { value: k, selected: k === last ? "" : false }, `session ${t.session}: ${t.n_nodes.toLocaleString("en")} nodes`))));
  const keys = h("div");
  const relegend = () => keys.replaceChildren(view.colours === "fate"
    ? legend([["on the way to the best", ON_WAY], ...Object.values(FATES)], "cell")
    : legend(view.colours === "best" ? [["best time below: the best", ramp(0)], ["8 times as long", ramp(1)], ["nothing measured", "#f3f4f6"]]
      : [["bound: that of the root", ramp(0)], ["the best time", ramp(1)]], "cell"));
  tools.append(
    h("button", { onclick: () => view.choose(0) }, "whole tree"),
    h("button", { onclick: () => view.choose(view.end || 0) }, "way to the best"),
    h("select", { "aria-label": "colour", onchange: e => { view.colours = e.target.value; view.draw(); relegend(); } },
      h("option", { value: "fate" }, "colour: what became of it"), h("option", { value: "best" }, "colour: best time below"), h("option", { value: "bound" }, "colour: bound")),
    h("span", { class: "soft" }, `${data.trees[last].n_nodes.toLocaleString("en")} nodes`));
  show(last);
  relegend();
  put("tree", keys);
  Object.assign(document.documentElement.dataset, { treeNodes: view.n, treeCells: view.drawn, rootCell: view.label(0) });
}
