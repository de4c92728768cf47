"use strict";
// The page of a run, from its data: report/contents.py says what is in them.

readData().then(data => {
  const E = data.evaluations, n = E.at_s.length;
  const timed = [...Array(n).keys()].filter(k => E.time_ns[k] !== null);
  const best = data.looked.length ? data.looked[0].evaluation : timed.reduce((a, k) => a < 0 || E.time_ns[k] < E.time_ns[a] ? k : a, -1);
  Object.assign(data, { n, timed, bestAt: best });
  for (const draw of [drawHead, drawTree, drawSearch, drawEffects, drawPredicted, drawParallel, drawScatter, drawRoofline, drawCompare,
    drawGraph, drawSteps, drawComponents, drawTimeline, drawFoot]) draw(data);
  document.documentElement.dataset.drawnMs = performance.now().toFixed(0);
  if (data.refresh_s) setTimeout(() => location.reload(), 1000 * data.refresh_s);
});

const SAYS_NOTHING = 0.01;  // of a time: no gap is drawn to a bound that is less (search/events.py)

const none = (id, why) => put(id, h("p", { class: "soft" }, why));

function about(data, k) {
  const E = data.evaluations, lines = [`${sourceOf(E.tag[k])[0]} at ${E.at_s[k].toFixed(1)} s, ${E.key[k]}`];
  if (E.time_ns[k] === null) lines.push(`${E.status[k]}: ${E.detail[k].split("\n")[0].slice(0, 100)}`);
  else lines.push(`${timeText(E.time_ns[k])} ± ${share(E.spread[k])}` + (E.stopped_early[k] ? ", stopped early: clearly slower" : `, ${E.n_samples[k]} samples`));
  if (E.bound_ns[k]) lines.push(`bound ${timeText(E.bound_ns[k])}`);
  if (E.parent[k]) lines.push(`made of ${E.parent[k]}`);
  return lines;
}

function drawHead(data) {
  const H = data.head, gapTo = ns => H.best_ns && ns > SAYS_NOTHING * H.best_ns ? share(Math.max(0, 1 - ns / H.best_ns)) : "not known";
  const card = (title, value, below, why) => h("div", { class: "card", title: why }, h("span", {}, title), h("b", {}, value), h("span", {}, below || "\u00a0"));
  const failed = data.evaluations.status.filter(x => x !== "ok").length;
  const searched = data.bestAt < 0 ? null : data.evaluations.time_ns[data.bestAt];
  const inSearch = searched !== null && searched !== H.best_ns ? `${timeText(searched)} in the search` : "";
  const times = base => H[base] && H.best_ns ? factorText(H[base] / H.best_ns) : "not known";
  put("head",
    h("h1", {}, H.name, " ", h("span", { class: "soft", style: "font-weight:400" }, Object.entries(H.sizes).map(([k, v]) => `${k}=${v}`).join(", "), " ", H.dtype)),
    H.formula && h("div", { class: "formula" }, H.formula),
    h("div", { class: "cards" },
      card("best", timeText(H.best_ns), [H.spread ? `± ${share(H.spread)}` : "", inSearch].filter(x => x).join("; "), "As it was timed at the end, in turn with the other best ones."),
      card("lower bound", H.doubted ? "withdrawn" : timeText(H.bound_ns), H.limiting && H.bound_ns ? `limited by ${H.limiting}` : H.best_ns && !H.doubted ? "timed beside other work" : ""),
      card("gap", gapTo(H.bound_ns), !H.bound_ns ? "" : H.bound_now_ns ? `${gapTo(H.bound_now_ns)} on the machine as it was at the end` : "can be saved at most", "What can be saved at most on this machine at its best; below, on the machine as it was while the best was timed at the end."),
      card("over the default", times("default_ns"), timeText(H.default_ns)),
      card("over NumPy", times("numpy_ns"), timeText(H.numpy_ns)),
      card("evaluations", String(data.n), failed ? `${failed} failed` : "none failed"),
      prunedCard(data, card),
      card("status", H.status.replace(/_/g, " "), `${H.total_s.toFixed(1)} s, seed ${H.seed}`)),
    foundBy(data),
    h("div", { class: "soft" }, `${H.target}: ${H.cpu}, ${H.cores} cores; ${H.compiler}`),
    data.refresh_s ? h("div", { class: "note" }, `The search goes on: this page is read again every ${data.refresh_s} s.`) : null,
    H.fixed ? h("div", { class: "note" }, `${H.fixed}; bound and gap are of the space with that.`) : null,
    H.doubted ? h("div", { class: "note" }, "A time below its bound was measured: the gap is withdrawn.") : null,
    data.notes.map(text => h("div", { class: "note" }, text)),
    H.why_no_space ? h("div", { class: "note" }, `C texts, bounds by resource, roofline and predictions are left out: ${H.why_no_space}.`) : null);
}

// What was pruned: the sum, and below it by what, most first.
function prunedCard(data, card) {
  const by = data.pruned.filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  if (!by.length) return null;
  const all = by.reduce((sum, [, n]) => sum + n, 0), words = by.map(([what, n]) => `${n.toLocaleString("en")} by ${what}`);
  return card("pruned", all.toLocaleString("en"), words.slice(0, 2).join("; "), `${words.join("; ")}. Nodes and values that were taken out of the search without being measured.`);
}

// The way to the best: by whom it was made, and of which measured implementations where it did not come from the tree.
function foundBy(data) {
  const E = data.evaluations, D = data.decisions, way = [];
  for (let k = data.bestAt; k >= 0 && way.length < 6 && !way.includes(k);) {
    way.push(k);
    k = E.parent[k] ? E.key.indexOf(E.parent[k]) : -1;
  }
  if (!way.length) return null;
  const differ = (a, b) => D.choices.filter((_, c) => D.rows[a][c] !== D.rows[b][c]).length;
  const one = (k, j) => `${sourceOf(E.tag[k])[0]} at ${E.at_s[k].toFixed(1)} s, ${timeText(E.time_ns[k])}` + (j + 1 < way.length ? `, which changed ${differ(k, way[j + 1])} decisions of ` : "");
  return h("div", { class: "soft" }, "How the best was found: ", way.map(one).join(""), ".");
}

function drawSearch(data) {
  const E = data.evaluations, V = data.events;
  if (!data.timed.length) return none("search", "Nothing was measured yet.");
  const W = 1120, HIGH = 380, end = Math.max(data.head.total_s, E.at_s[data.n - 1], 0.1);
  const x = scale("linear", 0, end, 78, W - 16);
  const bounds = V.bounds.filter(b => b[1] > 0);
  const y = ranged("log", [...data.timed.map(k => E.time_ns[k]), ...bounds.map(b => b[1]), ...[data.head.best_ns, data.head.bound_now_ns].filter(ns => ns)], HIGH - 44, 26);
  const svg = frame(W, HIGH, x, y, { xText: v => `${digits(v, 3)}`, yText: v => timeText(v, 3), xName: "seconds since the run began", yName: "time of one run" });
  const stairs = points => points.map(([px, py], k) => k ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `M${px.toFixed(1)} ${py.toFixed(1)}`).join("") + `H${x.to}`;
  const lows = [], edge = [];
  for (const k of data.timed) if (!lows.length || E.time_ns[k] < lows[lows.length - 1][1]) lows.push([E.at_s[k], E.time_ns[k]]);
  const line = lows.map(([t, ns]) => [x(t), y(ns)]);
  if (bounds.length && data.head.bound_ns) {
    const floor = bounds.map(b => [x(b[0]), y(b[1])]);
    const under = [...floor].reverse().map(([px, py], k, all) => `V${py.toFixed(1)}H${(px < line[0][0] ? line[0][0] : px).toFixed(1)}`).join("");
    svg.append(s("path", { d: `${stairs(line)}${under}Z`, fill: BEST, opacity: 0.07 }));
    svg.append(s("path", { d: stairs(floor), stroke: BOUND, "stroke-width": 2, fill: "none" }));
    edge.push([floor[floor.length - 1][1] - 6, `bound ${timeText(bounds[bounds.length - 1][1])}`, BOUND]);
  }
  for (const t of V.sessions.slice(1)) svg.append(s("path", { d: `M${x(t)} ${y.from}V${y.to}`, stroke: SOFT, "stroke-dasharray": "4 3" }), s("text", { x: x(t) + 4, y: 38, class: "soft" }, "resumed"));
  for (const [t, r] of V.machine) svg.append(s("path", { d: `M${x(t)} ${y.from}v8`, stroke: "#cc79a7", "stroke-width": 3 }, s("title", {}, `the machine changed: ${factorText(r)} the time`)));
  svg.append(s("path", { d: stairs(line), stroke: BEST, "stroke-width": 2, fill: "none" }));
  const points = data.timed.map(k => ({ x: x(E.at_s[k]), y: y(E.time_ns[k]), colour: sourceOf(E.tag[k])[1], lines: () => about(data, k) }));
  for (let k = 0; k < data.n; k++) if (E.time_ns[k] === null) points.push({ x: x(E.at_s[k]), y: 14, colour: FAILED, lines: () => about(data, k) });
  if (points.length > data.timed.length) svg.append(s("text", { x: x.from - 7, y: 18, "text-anchor": "end", style: `fill:${FAILED}` }, "failed"));
  dots(svg, points, data.n > 800 ? 4 : 6);
  const { best_ns: lastBest, bound_now_ns: now } = data.head;
  // The machine has a speed of its own at every moment: what was measured at the end says nothing of the rest.
  if (now) for (const [ns, colour, name, down] of [[lastBest, BEST, "best", -6], [now, BOUND, "bound", 15]]) {
    svg.append(s("path", { d: `M${x.to - 96} ${y(ns)}H${x.to}`, stroke: colour, "stroke-width": 2, "stroke-dasharray": "7 4" }));
    edge.push([y(ns) + down, `at the end: ${name} ${timeText(ns)}`, colour]);
  }
  edgeLabels(svg, x.to - 4, edge, y.to + 10, y.from - 4);
  const count = tag => E.tag.filter(t => t === tag).length;
  put("search", svg, legend(Object.entries(SOURCES).filter(([t]) => count(t)).map(([t, [name, colour]]) => [`${name} (${count(t)})`, colour])));
  if (now) put("search", h("p", { class: "soft" }, "Dashed: the best as it was timed at the end, and the bound on the machine as it was then."));
  if (V.machine.length) put("search", h("p", { class: "soft" }, `Marks below the axis: the machine itself changed its speed ${V.machine.length} time${V.machine.length === 1 ? "" : "s"}; each has the factor as its title.`));
  const gaps = V.bounds.filter(b => b[1] > 0).length ? gapOverTime(data, lows, bounds, end) : null;
  if (gaps) put("search", gaps);
  for (const [, ties, disturbed, entries] of V.finals)
    put("search", h("p", {}, disturbed ? "The final comparison was disturbed: the times of the search stand."
      : `In the final comparison, turn by turn, ${ties > 1 ? `the first ${ties} of ${entries.length} cannot be told apart` : `the first of ${entries.length} is faster than the others`}: ${entries.map(e => `${e[0]} ${timeText(e[1])}`).join(", ")}.`));
}

function gapOverTime(data, lows, bounds, end) {
  if (!data.head.bound_ns) return null;  // what the head does not claim is not drawn
  if (!lows.length || bounds.at(-1)[1] < SAYS_NOTHING * lows.at(-1)[1]) return null;
  const W = 1120, HIGH = 132, x = scale("linear", 0, end, 78, W - 16), y = scale("linear", 0, 1, HIGH - 40, 8);
  const svg = frame(W, HIGH, x, y, { xText: v => digits(v, 3), yText: v => `${Math.round(100 * v)} %`, xName: "seconds since the run began", yName: "gap", yTicks: 4 });
  const times = [...new Set([...lows.map(l => l[0]), ...bounds.map(b => b[0])])].sort((a, b) => a - b);
  let d = "";
  for (const t of times) {
    const low = lows.filter(l => l[0] <= t).pop(), floor = bounds.filter(b => b[0] <= t).pop();
    if (!low || !floor) continue;
    const at = y(Math.max(0, 1 - floor[1] / low[1])).toFixed(1);
    d += d ? `H${x(t).toFixed(1)}V${at}` : `M${x(t).toFixed(1)} ${at}`;
  }
  if (d) svg.append(s("path", { d: `${d}H${x.to}`, stroke: INK, "stroke-width": 1.6, fill: "none" }));
  return svg;
}

// --- decisions ---

const change = ([choice, before, after]) => h("div", {}, h("code", {}, `${choice}: ${before} → ${after}`));

function ratioBar(low, middle, high, most) {
  const x = scale("log", Math.min(0.5, 1 / most), most, 4, 256);
  return s("svg", { width: 260, height: 18, viewBox: "0 0 260 18" },
    s("path", { d: `M${x(1)} 1V17`, stroke: SOFT }), s("path", { d: `M${x(low)} 9H${x(high)}`, stroke: "#56b4e9", "stroke-width": 6, opacity: 0.55 }),
    s("circle", { cx: x(middle), cy: 9, r: 4, fill: middle <= 1 ? "#009e73" : BEST }));
}

function drawEffects(data) {
  if (!data.effects.length) return none("effects", "No two measured implementations differ in so few decisions.");
  // Told as what is lost by going back: ratios at or above 1.
  const rows = data.effects.map(e => ({ changes: e.changes.map(([c, a, b]) => [c, b, a]), ratios: e.ratios.map(r => 1 / r).sort((a, b) => a - b) }));
  const most = Math.max(2, ...rows.map(r => r.ratios[r.ratios.length - 1]));
  const middle = r => r[Math.floor(r.length / 2)];
  const body = rows.map(({ changes, ratios }) => h("tr", {}, h("td", {}, changes.map(change)), h("td", { class: "number" }, factorText(middle(ratios))),
    h("td", { class: "number" }, ratios.length > 1 ? `${factorText(ratios[0])} to ${factorText(ratios[ratios.length - 1])}` : ""),
    h("td", { class: "number" }, String(ratios.length)), h("td", {}, ratioBar(ratios[0], middle(ratios), ratios[ratios.length - 1], most))));
  put("effects", folded(body, 12, ["change", "time", "from, to", "pairs", ""]));
}

function folded(rows, n, names) {
  const body = h("tbody", {}, rows.slice(0, n));
  const table = h("table", {}, h("thead", {}, h("tr", {}, names.map((t, k) => h("th", { class: k > 0 && k < names.length - 1 ? "number" : "" }, t)))), body);
  if (rows.length <= n) return table;
  const more = h("button", { onclick: () => { body.append(...rows.slice(n)); more.remove(); } }, `${rows.length - n} more`);
  return [table, more];
}

function drawPredicted(data) {
  const P = data.predicted;
  if (!P) return none("predicted", data.head.why_no_space ? "Left out: see above." : "Too little was measured for that.");
  put("predicted", h("p", { class: "how" }, `Predicted, not measured: learned from ${P.n} times; half of held-out times were within a factor of ${P.error.toFixed(2)} of what was expected.`));
  const most = Math.max(2, ...P.rows.map(r => Math.max(r[2], 1 / r[2])));
  const rows = P.rows.map(([c, others, ratio]) => h("tr", {}, h("td", {}, change(c)), h("td", { class: "number" }, others ? `and ${others} with it` : ""),
    h("td", { class: "number" }, `${factorText(ratio)} predicted`), h("td", {}, ratioBar(Math.max(ratio / P.error, 1 / most), ratio, Math.min(most, ratio * P.error), most))));
  put("predicted", folded(rows, 8, ["change of the best", "", "time", ""]));
}

function drawParallel(data) {
  const D = data.decisions, E = data.evaluations, axes = data.axes.map(name => D.choices.indexOf(name));
  if (!axes.length) return none("parallel", "Too few implementations were measured.");
  const W = 1120, HIGH = 400, shown = [...data.timed].sort((a, b) => E.time_ns[b] - E.time_ns[a]).slice(-1200);
  const number = v => /^-?\d+$/.test(v);
  const orders = axes.map(a => {
    const found = [...new Set(shown.map(k => D.rows[k][a]))].filter(v => v >= 0);
    return found.sort((p, q) => { const [s0, s1] = [D.values[a][p], D.values[a][q]]; return number(s0) && number(s1) ? s1 - s0 : s0 < s1 ? -1 : 1; });
  });
  const left = j => 70 + j * (W - 190) / axes.length;
  const place = (j, v) => orders[j].length < 2 ? HIGH / 2 : 70 + orders[j].indexOf(v) * (HIGH - 108) / (orders[j].length - 1);
  const y = ranged("log", shown.map(k => E.time_ns[k]), HIGH - 24, 62), bestNs = data.bestAt >= 0 ? E.time_ns[data.bestAt] : 1;
  const worst = Math.min(8, Math.max(1.5, y.high / bestNs));
  const picked = axes.map(() => new Set()), lines = s("g"), svg = s("svg", { viewBox: `0 0 ${W} ${HIGH}`, width: W, height: HIGH }, lines);
  const count = h("span", { class: "soft" });
  const redraw = () => {
    lines.replaceChildren();
    let kept = 0;
    for (const k of shown) {
      if (picked.some((set, j) => set.size && !set.has(D.rows[k][axes[j]]))) continue;
      kept++;
      const shake = ((k * 7919) % 17 - 8) * 0.7;
      const points = axes.map((a, j) => D.rows[k][a] < 0 ? null : `${left(j)} ${(place(j, D.rows[k][a]) + shake).toFixed(1)}`).filter(p => p);
      const isBest = k === data.bestAt;
      lines.append(s("path", { d: `M${points.join("L")}L${left(axes.length)} ${y(E.time_ns[k]).toFixed(1)}`, fill: "none", stroke: isBest ? BEST : ramp(Math.log(E.time_ns[k] / bestNs) / Math.log(worst)),
        "stroke-width": isBest ? 2.6 : 1, opacity: isBest ? 1 : 0.5, onpointermove: e => tip(e, about(data, k)), onpointerleave: untip }));
    }
    count.textContent = `${kept} of ${shown.length} implementations`;
  };
  axes.forEach((a, j) => {
    svg.append(s("path", { d: `M${left(j)} 58V${HIGH - 20}`, stroke: INK }));
    const words = D.choices[a].match(/^([^(]*)\(?(.*?)\)?$/), parts = words[2].match(/^(.*?)(,|->|\.|$)(.*)$/);
    svg.append(s("text", { x: left(j), y: 14, "text-anchor": "middle", "font-weight": 600 }, words[1], s("title", {}, D.choices[a])));
    [parts[1], parts[3]].forEach((part, k) => svg.append(s("text", { x: left(j), y: 29 + 13 * k, "text-anchor": "middle", class: "soft", style: "font-size:10.5px" }, shorten(part, 17), s("title", {}, D.choices[a]))));
    for (const v of orders[j]) {
      const press = () => {
        picked[j].has(v) ? picked[j].delete(v) : picked[j].add(v);
        label.style.fontWeight = picked[j].has(v) ? 700 : 400; label.style.fill = picked[j].has(v) ? BEST : INK;
        redraw();
      };
      const label = s("text", { x: left(j) + 5, y: place(j, v) + 4, class: "pick", tabindex: 0, role: "button", onclick: press,
        onkeydown: e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); press(); } } }, shorten(D.values[a][v], 14));
      svg.append(label);
    }
  });
  svg.append(s("path", { d: `M${left(axes.length)} 58V${HIGH - 20}`, stroke: INK }), s("text", { x: left(axes.length), y: 14, "text-anchor": "middle", "font-weight": 600 }, "time"));
  for (const v of ticks(y, 8)) svg.append(s("text", { x: left(axes.length) + 6, y: y(v) + 4, style: "font-size:11px" }, timeText(v, 3)));
  redraw();
  put("parallel", svg, count);
}
const shorten = (text, n) => text.length > n ? `${text.slice(0, n - 1)}…` : text;

// --- bounds ---

function drawScatter(data) {
  const E = data.evaluations, shown = data.timed.filter(k => E.bound_ns[k] > 0);
  if (!shown.length) return none("scatter", "No bounds were kept.");
  const W = 720, HIGH = 440;
  const x = ranged("log", shown.map(k => E.bound_ns[k]), 78, W - 20), y = ranged("log", [...shown.map(k => E.time_ns[k]), ...shown.map(k => E.bound_ns[k])], HIGH - 44, 12);
  const svg = frame(W, HIGH, x, y, { xText: v => timeText(v, 3), yText: v => timeText(v, 3), xName: "lower bound", yName: "measured", xTicks: 6 });
  const low = Math.max(x.low, y.low), high = Math.min(x.high, y.high);
  if (low < high) svg.append(s("path", { d: `M${x(low)} ${y(low)}L${x(high)} ${y(high)}`, stroke: BOUND, "stroke-width": 1.6 }), s("text", { x: x(high) - 6, y: y(high) + 18, "text-anchor": "end", style: `fill:${BOUND}` }, "time = bound"));
  dots(svg, shown.map(k => ({ x: x(E.bound_ns[k]), y: y(E.time_ns[k]), colour: sourceOf(E.tag[k])[1], lines: () => about(data, k) })), 5);
  const kinds = new Map();
  for (const k of shown) { const b = E.bound_ns[k].toPrecision(4); kinds.set(b, (kinds.get(b) || 0) + 1); }
  const [b, many] = [...kinds].sort((p, q) => q[1] - p[1])[0];
  put("scatter", svg, h("p", { class: "soft" }, `${many} of ${shown.length} measured implementations have the same bound, ${timeText(+b)}.`));
}

function drawRoofline(data) {
  const R = data.roofline, E = data.evaluations;
  if (!R || !R.flops || !R.bytes || !R.arithmetic.length) return none("roofline", data.head.why_no_space ? "Left out: see above." : "No operations are counted, or nothing was measured.");
  const ideal = R.flops / R.bytes, points = data.looked.map((l, j) => ({ at: l.evaluation, oi: l.bytes ? R.flops / l.bytes : ideal, isDefault: j > 0 && E.tag[l.evaluation] === "U" }));
  const peak = Math.max(...R.arithmetic.map(a => a[1])), W = 760, HIGH = 430;
  const rates = points.map(p => R.flops / E.time_ns[p.at]);
  const x = scale("log", Math.min(ideal, ...points.map(p => p.oi)) / 4, Math.max(ideal, ...points.map(p => p.oi), peak / R.bandwidths[0][1]) * 3, 84, W - 20);
  const y = scale("log", Math.min(...rates) / 2, peak * 1.6, HIGH - 44, 12);
  const svg = frame(W, HIGH, x, y, { xText: v => digits(v, 2), yText: v => digits(v, 3), xName: "operations a byte of memory", yName: "GFLOP/s", xTicks: 7 });
  const colours = ["#0072b2", "#56b4e9", "#009e73", "#e69f00"];
  R.bandwidths.forEach(([name, rate], k) => {
    const to = Math.min(x.high, peak / rate), from = Math.max(x.low, y.low / rate);
    if (from >= to) return;
    svg.append(s("path", { d: `M${x(from)} ${y(from * rate)}L${x(to)} ${y(to * rate)}`, stroke: colours[k % 4], "stroke-width": 2, fill: "none" }));
  });
  for (const [name, rate] of R.arithmetic) svg.append(s("path", { d: `M${x(Math.max(x.low, rate / Math.max(...R.bandwidths.map(b => b[1]))))} ${y(rate)}H${x.to}`, stroke: INK, "stroke-width": 2 }));
  edgeLabels(svg, x.to - 4, R.arithmetic.map(([name, rate]) => [y(rate) - 6, `${name} ${digits(rate, 3)} GFLOP/s`, INK]), y.to + 10, y.from);
  svg.append(s("path", { d: `M${x(ideal)} ${y.from}V${y.to}`, stroke: SOFT, "stroke-dasharray": "3 4" }), s("text", { x: x(ideal) + 5, y: y.from - 8, class: "soft" }, "each array once"));
  dots(svg, points.map((p, j) => ({ x: x(p.oi), y: y(rates[j]), colour: j === 0 ? BEST : p.isDefault ? INK : "#999999", lines: () => [...about(data, p.at), `${digits(rates[j], 3)} GFLOP/s, ${bytesText(R.flops / p.oi)} surely through memory`] })), 10);
  put("roofline", svg, legend([...R.bandwidths.map(([name, rate], k) => [`${name} ${digits(rate, 3)} GB/s`, colours[k % 4]]), ["the best", BEST], ["the next fastest", "#999999"], ["the default", INK]]));
}

function drawSteps(data) {
  const S = data.steps;
  if (!S) return none("steps", data.head.why_no_space ? "Left out: see above." : "Nothing was measured yet.");
  const total = p => [...p.read, ...p.written].reduce((a, [, b]) => a + b, 0), most = S.phases.reduce((a, p) => a + total(p), 0);
  const teams = S.n_teams === null ? "" : `, ${S.n_teams} of them by a team of threads`;
  put("steps", h("p", {}, `${S.n_launches} launch${S.n_launches === 1 ? "" : "es"}${teams}; ${S.n_barriers} barrier${S.n_barriers === 1 ? "" : "s"} inside.`));
  const W = 1120, colours = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7"], svg = s("svg", { viewBox: `0 0 ${W} 46`, width: W, height: 46 });
  let at = 0;
  S.phases.forEach((p, k) => {
    const w = most ? (W - 2) * total(p) / most : W / S.phases.length;
    svg.append(s("rect", { x: at, y: 2, width: Math.max(1, w - 2), height: 40, rx: 3, fill: colours[k % 4], opacity: 0.55 },
      s("title", {}, `${p.tasks.join(", ")}: ${bytesText(total(p))}`)));
    const name = `${p.tasks.join(", ")}   ${bytesText(total(p))}`;
    if (w > 60) svg.append(s("text", { x: at + 8, y: 27 }, shorten(name, Math.floor(w / 7))));
    at += w;
  });
  const amounts = side => side.map(([a, b]) => `${a} ${bytesText(b)}`).join(", ") || "nothing";
  put("steps", svg, h("table", {}, h("tr", {}, ["phase", "tasks", "surely reads", "surely writes"].map(t => h("th", {}, t))),
    S.phases.map((p, k) => h("tr", {}, h("td", {}, String(k + 1)), h("td", {}, h("code", {}, p.tasks.join(", "))), h("td", {}, amounts(p.read)), h("td", {}, amounts(p.written))))),
    S.launches.length ? h("p", { class: "soft" }, `Launches: ${S.launches.join("; ")}.`) : null);
}

function drawComponents(data) {
  const C = data.components;
  if (!C) return none("components", data.head.why_no_space ? "Left out: see above." : "Nothing was measured yet.");
  if (C.n === 1) return none("components", "One component: its time is that of the best.");
  if (!C.accounts.length) return none("components", `${C.n} components, which were not timed singly.`);
  const number = text => h("td", { class: "number" }, text);
  const decided = decisions => Object.entries(decisions).map(([choice, value]) => h("div", {}, h("code", {}, `${choice}: ${value}`)));
  const rows = C.accounts.map(a => h("tr", {}, h("td", {}, h("details", {}, h("summary", {}, h("code", {}, a.name)), decided(a.decisions))),
    number(String(a.places)), number(timeText(a.time_ns)), number(share(a.share)), number(data.head.doubted ? "withdrawn" : timeText(a.bound_ns)),
    number(timeText(a.least_ns)), number(String(a.tried)), h("td", {}, shareBar(a.share))));
  put("components", h("p", {}, `${C.n} components, ${C.accounts.length} of them different.`),
    folded(rows, 12, ["component", "places", "time", "share", "bound", "least seen", "tried", ""]));
}
const shareBar = x => s("svg", { width: 120, height: 18, viewBox: "0 0 120 18" }, s("rect", { class: "bar", y: 4, height: 10, width: Math.max(1, 120 * x) }));

function drawTimeline(data) {
  const E = data.evaluations;
  if (!data.n || !E.run_s.some(t => t > 0)) return none("timeline", "Times of building and running were not kept.");
  const W = 1120, end = Math.max(data.head.total_s, 0.1), x = scale("linear", 0, end, 8, W - 16), y = scale("linear", 0, 1, 62, 8);
  const svg = frame(W, 100, x, y, { xText: v => digits(v, 3), yText: () => "", xName: "seconds since the run began", yName: "" });
  for (let k = 0; k < data.n; k++) {
    const from = Math.max(0, E.at_s[k] - E.run_s[k]);
    svg.append(s("rect", { x: x(from), y: 12, width: Math.max(0.7, x(E.at_s[k]) - x(from)), height: 46, fill: sourceOf(E.tag[k])[1], opacity: 0.8,
      onpointermove: e => tip(e, [...about(data, k), `ran ${E.run_s[k].toFixed(2)} s, its compiler ${E.build_s[k].toFixed(2)} s`]), onpointerleave: untip }));
  }
  const sum = a => a.reduce((p, q) => p + q, 0), run = sum(E.run_s), build = sum(E.build_s);
  put("timeline", svg, h("p", {}, `${end.toFixed(1)} s: candidates ran for ${run.toFixed(1)} s (${share(run / end)}); compilers took ${build.toFixed(1)} s, several at once; ${(end - run).toFixed(1)} s remain for choosing, compiling and preparing.`));
}

// --- comparing ---

function drawCompare(data) {
  const L = data.looked, E = data.evaluations;
  if (L.length < 2) return none("compare", L.length ? "Only one implementation was measured." : data.head.why_no_space ? "Left out: see above." : "Nothing was measured yet.");
  const title = j => `${j === 0 ? "the best" : E.tag[L[j].evaluation] === "U" ? "the default" : `number ${j + 1}`}: ${timeText(E.time_ns[L[j].evaluation])} in the search, ${E.key[L[j].evaluation]}`;
  const other = L.findIndex((l, j) => j > 0 && E.tag[l.evaluation] === "U"), picked = [other > 0 ? other : 1, 0];
  const out = h("div");
  const select = side => h("select", { onchange: e => { picked[side] = +e.target.value; show(); } }, L.map((_, j) => h("option", { value: j, selected: j === picked[side] ? "" : false }, title(j))));
  const show = () => out.replaceChildren(...comparison(data, L[picked[0]], L[picked[1]]));
  put("compare", h("div", { class: "tools" }, select(0), "against ", select(1)), out);
  show();
}

function comparison(data, a, b) {
  const D = data.decisions, A = D.rows[a.evaluation], B = D.rows[b.evaluation], rows = [];
  const value = (row, c) => row[c] < 0 ? "" : D.values[c][row[c]];
  D.choices.forEach((name, c) => { if (A[c] !== B[c]) rows.push(h("tr", {}, h("td", {}, h("code", {}, name)), h("td", {}, value(A, c)), h("td", {}, value(B, c)))); });
  const names = [...new Set([...a.terms, ...b.terms].map(t => t[0]))], most = Math.max(...[...a.terms, ...b.terms].map(t => t[1])) || 1;
  const term = (one, name) => (one.terms.find(t => t[0] === name) || [name, 0])[1];
  const bar = ns => [s("svg", { width: 120, height: 12, style: "display:inline-block;vertical-align:middle" }, s("rect", { class: "bar", y: 1, height: 10, width: Math.max(ns > 0 ? 1 : 0, 120 * ns / most) })), ` ${ns ? timeText(ns) : "0"}`];
  const words = [];
  for (const topic of [...new Set([...a.words, ...b.words].map(w => w[0]))]) {
    const of = one => (one.words.find(w => w[0] === topic) || [topic, []])[1], only = (p, q) => of(p).filter(x => !of(q).includes(x));
    if (only(a, b).length || only(b, a).length) words.push(h("tr", {}, h("td", {}, topic), h("td", {}, only(a, b).join("; ")), h("td", {}, only(b, a).join("; "))));
  }
  const head = (...t) => h("tr", {}, t.map(x => h("th", {}, x)));
  return [
    h("h3", {}, "In words"), words.length ? h("table", {}, head("", "left only", "right only"), words) : h("p", { class: "soft" }, "The same words describe both."),
    h("h3", {}, `${rows.length} decisions differ`), h("div", { class: "diff", style: "padding:4px 10px;max-height:240px" }, h("table", {}, head("choice", "left", "right"), rows)),
    h("h3", {}, "Terms of both bounds"), h("table", {}, head("resource alone", "left", "right"), names.map(t => h("tr", {}, h("td", {}, t), h("td", {}, bar(term(a, t))), h("td", {}, bar(term(b, t)))))),
    h("h3", {}, "C"), h("p", { class: "how" }, "Orange: left only; blue: right only."), diff(a.text.split("\n"), b.text.split("\n")),
  ];
}

// Lines of two texts by their longest common subsequence; unchanged ones are shown near changes only.
function diff(a, b) {
  let from = 0, tail = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from++;
  while (tail < a.length - from && tail < b.length - from && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const A = a.slice(from, a.length - tail), B = b.slice(from, b.length - tail), w = B.length + 1;
  const common = new Uint16Array((A.length + 1) * w);
  for (let i = A.length - 1; i >= 0; i--) for (let j = B.length - 1; j >= 0; j--)
    common[i * w + j] = A[i] === B[j] ? 1 + common[(i + 1) * w + j + 1] : Math.max(common[(i + 1) * w + j], common[i * w + j + 1]);
  const lines = a.slice(0, from).map(t => ["", t]);
  let i = 0, j = 0;
  while (i < A.length || j < B.length) {
    if (i < A.length && j < B.length && A[i] === B[j]) { lines.push(["", A[i]]); i++; j++; }
    else if (j >= B.length || (i < A.length && common[(i + 1) * w + j] >= common[i * w + j + 1])) lines.push(["left", A[i++]]);
    else lines.push(["right", B[j++]]);
  }
  lines.push(...a.slice(a.length - tail).map(t => ["", t]));
  const near = lines.map((_, k) => lines.slice(Math.max(0, k - 3), k + 4).some(l => l[0]));
  const rows = [];
  lines.forEach(([side, text], k) => {
    if (near[k]) rows.push(h("div", { class: side }, text || " "));
    else if (k === 0 || near[k - 1]) rows.push(h("div", { class: "gap" }, "⋯"));
  });
  return h("div", { class: "diff" }, h("code", {}, rows));
}

// --- state-flow graph ---

function drawGraph(data) {
  const G = data.graph;
  if (typeof G === "string") return none("graph", G);
  const layer = G.tasks.map(() => 0);
  for (const [source, sink] of G.edges) layer[sink] = Math.max(layer[sink], layer[source] + 1);
  const rows = new Map(), HIGHER = 128, row = layer.map(l => { const r = rows.get(l) || 0; rows.set(l, r + 1); return r; });
  const text = t => [t.name, `reads ${t.reads.join(", ") || "nothing"}`, `writes ${t.writes.join(", ")}`];
  const wide = Math.max(120, ...G.tasks.map(t => 7 * Math.max(...text(t).map(x => Math.min(34, x.length))) + 18)), apart = wide + 96;
  const W = (Math.max(...layer) + 1) * apart - 96 + 4, HIGH = Math.max(...rows.values()) * HIGHER;
  const x = k => 2 + layer[k] * apart, y = k => 4 + row[k] * HIGHER;
  const svg = s("svg", { viewBox: `0 0 ${W} ${HIGH}`, width: W, height: HIGH, style: "max-width:none" });
  const styles = { flow: [INK, "", "reads what the other wrote"], anti: ["#cc79a7", "5 4", "replaces what the other read"], output: ["#e69f00", "2 3", "replaces what the other wrote"] };
  const pairs = new Map();
  for (const [source, sink, array, , kind] of G.edges) {
    const id = `${source} ${sink} ${kind}`;
    pairs.set(id, { source, sink, kind, arrays: [...(pairs.get(id) || { arrays: [] }).arrays, array] });
  }
  const taken = new Map();  // places of labels, by the gap between two columns
  for (const { source, sink, kind, arrays } of pairs.values()) {
    const x0 = x(source) + wide, y0 = y(source) + 32, x1 = x(sink), y1 = y(sink) + 32, bend = layer[sink] - layer[source] > 1 ? 92 : 0, [stroke, dash] = styles[kind];
    svg.append(s("path", { d: `M${x0} ${y0}C${x0 + 48} ${y0 + bend},${x1 - 48} ${y1 + bend},${x1 - 3} ${y1}`, stroke, "stroke-dasharray": dash, "stroke-width": 1.5, fill: "none" }),
      s("path", { d: `M${x1} ${y1}l-8 -4v8z`, fill: stroke }),
      s("text", { x: (x0 + x1) / 2, y: free(taken, (x0 + x1) / 2, (y0 + y1) / 2 + bend * 0.75 - 6), "text-anchor": "middle", style: `fill:${stroke};font-size:11px;paint-order:stroke;stroke:var(--paper);stroke-width:3px` }, shorten(arrays.join(", "), 22)));
  }
  G.tasks.forEach((t, k) => svg.append(s("rect", { x: x(k), y: y(k), width: wide, height: 64, rx: 5, fill: "var(--task)", stroke: "#7fa8cc" }),
    ...text(t).map((line, j) => s("text", { x: x(k) + 9, y: y(k) + 20 + 17 * j, class: j ? "soft" : "", "font-weight": j ? 400 : 600 }, shorten(line, 34)))));
  put("graph", h("div", { class: "wide" }, svg), legend(Object.entries(styles).filter(([kind]) => G.edges.some(e => e[4] === kind)).map(([, [stroke, , name]]) => [name, stroke])));
}
// The nearest place above for a label where none is yet in its column.
function free(taken, x, y) {
  const column = taken.get(Math.round(x / 60)) || [];
  while (column.some(other => Math.abs(other - y) < 13)) y -= 13;
  taken.set(Math.round(x / 60), [...column, y]);
  return y;
}

function drawFoot(data) {
  const H = data.head;
  put("foot", `run ${H.folder}, space ${H.space_key}, machine ${H.machine}. Made by explore report; the data of the run are inside this file, and nothing is loaded from elsewhere.`);
}
