"use strict";
// What all drawings use: elements, numbers as text, scales and axes. Texts of a run are only ever set as text, never as HTML.

// Colours of the style sheet, which has others for the dark; a canvas takes no variables.
const INK = "var(--ink)", SOFT = "var(--soft)", LINE = "var(--line)", BEST = "var(--best)", BOUND = "var(--bound)", FAILED = "var(--failed)";
const HALO = "paint-order:stroke;stroke:var(--paper)", ON_CELL = "#1b1f24";
// Okabe and Ito (2008), which colour-blind people can tell apart.
const SOURCES = {
  U: ["default", INK], W: ["warm start", "#e69f00"], M: ["tree policy", BOUND], R: ["rollout", "#009e73"],
  D: ["bound dive", "#cc79a7"], N: ["near the best", "#56b4e9"],
  C: ["components together", "#cc79a7"], F: ["final", BEST], "?": ["not kept", "#999999"],
};
const sourceOf = tag => SOURCES[tag] || SOURCES["?"];

window.addEventListener("error", e => { document.documentElement.dataset.error = e.message; });
window.addEventListener("unhandledrejection", e => { document.documentElement.dataset.error = String(e.reason); });

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined));
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const put = (id, ...children) => document.getElementById(id).append(...children.flat(Infinity).filter(Boolean));

// --- numbers ---

function digits(x, n = 4) { return Number(x.toPrecision(n)).toLocaleString("en", { maximumSignificantDigits: n, useGrouping: false }); }
function timeText(ns, n = 4) {
  if (ns === null || ns === undefined || !isFinite(ns)) return "not known";
  for (const [unit, factor] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (ns >= factor * 0.9995) return `${digits(ns / factor, n)} ${unit}`;
  return `${digits(ns, n)} ns`;
}
function bytesText(n) {
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= factor) return `${digits(n / factor, 3)} ${unit}`;
  return `${digits(n, 3)} B`;
}
const share = x => `${(100 * x).toFixed(1)} %`;
const factorText = x => x >= 10 ? `${x.toFixed(0)}×` : `${x.toFixed(2)}×`;

// --- scales and axes ---

function scale(kind, low, high, from, to) {
  const f = kind === "log" ? Math.log10 : x => x;
  const a = f(low), b = f(high) === f(low) ? f(low) + 1 : f(high);
  const at = x => from + (to - from) * (f(x) - a) / (b - a);
  at.kind = kind; at.low = low; at.high = high; at.from = from; at.to = to;
  return at;
}
// The range of some values with room at both ends.
function ranged(kind, values, from, to, floor) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  if (!isFinite(low)) { low = 1; high = 10; }
  if (kind === "log") { const r = Math.max(1.15, Math.pow(high / low, 0.05)); return scale(kind, low / r, high * r, from, to); }
  const pad = 0.03 * (high - low || 1);
  return scale(kind, floor === undefined ? low - pad : floor, high + pad, from, to);
}
function ticks(at, most = 8) {
  const found = [];
  if (at.kind === "log") {
    const decades = Math.log10(at.high / at.low);
    const steps = decades < 0.5 ? [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9] : decades < 1.6 ? [1, 2, 3, 5] : decades < 3 ? [1, 3] : [1];
    const every = decades > most ? Math.ceil(decades / most) : 1;
    for (let k = Math.floor(Math.log10(at.low)); k <= Math.log10(at.high); k++)
      for (const m of steps) { const v = m * Math.pow(10, k); if (v >= at.low && v <= at.high && k % every === 0) found.push(v); }
    return found;
  }
  const raw = (at.high - at.low) / most, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = power * [1, 2, 5, 10].find(m => m * power >= raw);
  for (let v = Math.ceil(at.low / step) * step; v <= at.high; v += step) found.push(v);
  return found;
}
// An SVG with grid and axes; `x` and `y` are scales in its pixels.
function frame(width, height, x, y, { xText, yText, xName, yName, xTicks = 9, yTicks = 7 }) {
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  for (const v of ticks(y, yTicks)) {
    svg.append(s("path", { d: `M${x.from} ${y(v)}H${x.to}`, stroke: LINE }));
    svg.append(s("text", { x: x.from - 7, y: y(v) + 4, "text-anchor": "end" }, yText(v)));
  }
  for (const v of ticks(x, xTicks)) {
    svg.append(s("path", { d: `M${x(v)} ${y.from}V${y.to}`, stroke: LINE }));
    svg.append(s("text", { x: x(v), y: y.from + 17, "text-anchor": "middle" }, xText(v)));
  }
  svg.append(s("text", { x: (x.from + x.to) / 2, y: height - 4, "text-anchor": "middle", class: "soft" }, xName));
  svg.append(s("text", { transform: `translate(13 ${(y.from + y.to) / 2}) rotate(-90)`, "text-anchor": "middle", class: "soft" }, yName));
  return svg;
}
// Many points as one path a colour. `points` are {x, y, colour, lines}: what is said when the pointer is near.
function dots(svg, points, size = 5) {
  const paths = new Map();
  for (const p of points) paths.set(p.colour, (paths.get(p.colour) || "") + `M${p.x.toFixed(1)} ${p.y.toFixed(1)}h0`);
  for (const [stroke, d] of paths)
    svg.append(s("path", { d, stroke, "stroke-width": size, "stroke-linecap": "round", fill: "none", opacity: 0.85 }));
  svg.addEventListener("pointermove", e => pick(e));
  svg.addEventListener("pointerdown", e => pick(e));
  svg.addEventListener("pointerleave", untip);
  byKeys(svg, points);
  function pick(e) {
    const box = svg.getBoundingClientRect(), k = svg.viewBox.baseVal.width / box.width;
    const mx = (e.clientX - box.left) * k, my = (e.clientY - box.top) * k;
    let near = null, least = 144;
    for (const p of points) { const d = (p.x - mx) ** 2 + (p.y - my) ** 2; if (d < least) { least = d; near = p; } }
    near ? tip(e, near.lines()) : untip();
  }
}
// The arrow keys go from point to point, from left to right.
function byKeys(svg, points) {
  const order = [...points].sort((p, q) => p.x - q.x), ring = s("circle", { r: 7, fill: "none", stroke: INK, "stroke-width": 2, visibility: "hidden" });
  let at = -1;
  svg.append(ring);
  svg.setAttribute("tabindex", 0);
  svg.setAttribute("aria-label", `${points.length} points: the arrow keys go from one to the next`);
  svg.addEventListener("blur", () => { ring.setAttribute("visibility", "hidden"); untip(); });
  svg.addEventListener("keydown", e => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step || !order.length) return;
    e.preventDefault();
    at = Math.max(0, Math.min(order.length - 1, at + step));
    const p = order[at], box = svg.getBoundingClientRect(), k = box.width / svg.viewBox.baseVal.width;
    fill(ring, { cx: p.x, cy: p.y, visibility: "visible" }, []);
    tip({ clientX: box.left + p.x * k, clientY: box.top + p.y * k }, p.lines());
  });
}
// Labels at one edge, [y, text, colour], moved apart where they would lie on one another.
function edgeLabels(svg, x, labels, low, high) {
  const apart = 14, sorted = labels.map(l => [...l]).sort((a, b) => a[0] - b[0]);
  sorted.forEach((l, k) => { l[0] = Math.max(l[0], k ? sorted[k - 1][0] + apart : low); });
  for (let k = sorted.length - 1, most = high; k >= 0; most = sorted[k--][0] - apart) sorted[k][0] = Math.min(sorted[k][0], most);
  for (const [y, text, colour] of sorted) svg.append(s("text", { x, y, "text-anchor": "end", style: `fill:${colour};${HALO};stroke-width:3px` }, text));
}
function legend(entries, shape) {
  return h("div", { class: "legend" }, entries.map(([name, colour]) =>
    h("span", {}, h("i", { class: shape || "", style: `background:${colour}` }), name)));
}
function tip(e, lines) {
  const box = document.getElementById("tip");
  box.textContent = lines.join("\n");
  box.hidden = false;
  const w = box.offsetWidth, high = box.offsetHeight;
  box.style.left = `${Math.max(4, Math.min(e.clientX + 14, innerWidth - w - 8))}px`;
  box.style.top = `${e.clientY + 18 + high > innerHeight ? e.clientY - high - 12 : e.clientY + 18}px`;
}
function untip() { document.getElementById("tip").hidden = true; }

// Dark blue to yellow, readable for everyone (after cividis, Nunez et al. 2018); t from 0 to 1.
const RAMP = [[0, 32, 77], [58, 74, 108], [124, 123, 120], [187, 173, 109], [255, 233, 69]];
function ramp(t) {
  const at = Math.max(0, Math.min(1, t)) * (RAMP.length - 1), k = Math.min(RAMP.length - 2, Math.floor(at)), f = at - k;
  return `rgb(${RAMP[k].map((c, i) => Math.round(c + f * (RAMP[k + 1][i] - c))).join(",")})`;
}

// --- data ---

async function inflated(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}
const KINDS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };
async function readData() {
  const data = JSON.parse(new TextDecoder().decode(await inflated("values")));
  const buffer = await inflated("arrays");
  for (const [name, [kind, at, n]] of Object.entries(data.arrays)) data.arrays[name] = new KINDS[kind](buffer, at, n);
  return data;
}
