// Draw the flow: operators by kind, coloured by busy time, rows a second on edges, back-pressure at its cause.

import { attribute, byId, roomOf, s, text } from "./dom.js";
import { heat, percent, short } from "./format.js";
import { HEIGHT, WIDTH, layout } from "./layout.js";

const ICONS = {
  source: "M2 7h8M7 3.5 10.5 7 7 10.5M1 2v10",
  stateless: "M2 4h4l2 6h4M2 10h3M9 4h3",
  partitioned: "M2 3h10M2 7h10M2 11h10M5 3v8M9 3v8",
  stateful: "M2 3.5C2 2 12 2 12 3.5S2 5 2 3.5v7C2 12 12 12 12 10.5v-7",
  sink: "M2 7h7M6 3.5 9.5 7 6 10.5M13 2v10",
};
const LETTERS = 21;

export class GraphView {
  constructor(select) {
    this.select = select;
    this.svg = byId("graph");
    this.room = roomOf(this.svg.parentElement, () => this.fit());
    this.world = s("g");
    this.edgeLayer = s("g", { class: "edges" });
    this.nodeLayer = s("g", { class: "nodes" });
    this.labelLayer = s("g", { class: "labels", "aria-hidden": "true" });
    this.world.append(this.edgeLayer, this.labelLayer, this.nodeLayer);
    this.svg.append(this.world);
    this.version = null;
    this.zoom = 1;
    this.view = { x: 0, y: 0, k: 1 };
    this.listen();
  }

  draw(graph) {
    const plan = layout(graph);
    this.version = graph.version;
    this.plan = plan;
    this.nodes = new Map();
    this.edges = [];
    this.edgeLayer.replaceChildren();
    this.nodeLayer.replaceChildren();
    this.labelLayer.replaceChildren();
    for (const { edge, points } of plan.edges) this.addEdge(edge, points);
    graph.nodes.forEach((node, index) => this.addNode(node, plan.places.get(node.name), index === 0));
    this.fit();
  }

  addEdge(edge, points) {
    const path = s("path", { d: curve(points), class: "edge" });
    const middle = points[Math.floor((points.length - 1) / 2)];
    const after = points[Math.floor((points.length - 1) / 2) + 1];
    const x = (middle.x + WIDTH + after.x) / 2;
    const label = s("text", { x, y: (middle.y + after.y) / 2 - 5, class: "edge-label" });
    this.edgeLayer.append(path);
    this.labelLayer.append(label);
    this.edges.push({ edge, path, label });
  }

  addNode(node, place, first) {
    const name = s("text", { x: 31, y: 24, class: "node-name" });
    name.textContent = node.name.length > LETTERS ? `${node.name.slice(0, LETTERS - 1)}…` : node.name;
    const kind = s("text", { x: 12, y: 45, class: "node-kind" });
    kind.textContent = node.kind;
    const busy = s("text", { x: WIDTH - 12, y: 45, class: "node-busy" });
    const title = s("title");
    const badge = s("g", { class: "badge", transform: `translate(0 ${-11})` },
      s("rect", { x: 8, y: -10, width: 132, height: 20, rx: 10 }),
      Object.assign(s("text", { x: 74, y: 4 }), { textContent: "holds the flow back" }));
    const element = s("g", {
      class: `node kind-${node.kind}`,
      transform: `translate(${place.x} ${place.y})`,
      role: "button",
      tabindex: first ? 0 : -1,
      "data-operator": node.name,
    },
    node.kind === "partitioned" ? s("path", { class: "stack", d: `M8 ${HEIGHT + 4}H${WIDTH - 4}a8 8 0 0 0 8 -8V8` }) : null,
    s("rect", { class: "body", width: WIDTH, height: HEIGHT, rx: node.kind === "source" || node.kind === "sink" ? HEIGHT / 2 : 9 }),
    node.kind === "stateful" ? s("rect", { class: "inner", x: 4, y: 4, width: WIDTH - 8, height: HEIGHT - 8, rx: 6 }) : null,
    s("path", { class: "icon", d: ICONS[node.kind] ?? ICONS.stateless, transform: `translate(${node.kind === "source" || node.kind === "sink" ? 14 : 11} 12.5)` }),
    name, kind, busy, title, badge);
    if (node.kind === "source" || node.kind === "sink") {
      name.setAttribute("x", 34);
      kind.setAttribute("x", 22);
      busy.setAttribute("x", WIDTH - 22);
    }
    element.addEventListener("click", () => this.select(node.name));
    this.nodeLayer.append(element);
    this.nodes.set(node.name, { node, element, busy, title });
  }

  update(sample, selected) {
    const causes = new Map(sample.pressure.causes.map((cause) => [cause.operator, cause.why]));
    for (const [name, { node, element, busy, title }] of this.nodes) {
      const found = sample.operators[name];
      const part = found?.busy ?? 0;
      attribute(element, "data-heat", heat(part));
      attribute(element, "data-pressure", causes.has(name) ? "cause" : name in sample.pressure.held ? "held" : null);
      attribute(element, "aria-pressed", name === selected ? "true" : "false");
      text(busy, node.kind === "source" ? `${short(found?.rate_out ?? 0)} rows/s` : percent(part));
      const why = causes.get(name) ?? (sample.pressure.held[name] ? `waits for ${sample.pressure.held[name]}` : "");
      text(title, `${name} (${node.kind}): busy ${percent(part)}${why ? `; ${why}` : ""}`);
      attribute(element, "aria-label", `${name}, ${node.kind}, busy ${percent(part)}${causes.has(name) ? ", holds the flow back" : ""}`);
    }
    for (const { edge, path, label } of this.edges) {
      const rows = edgeRate(sample, edge);
      attribute(path, "stroke-width", (1.2 + Math.min(5, Math.log10(1 + Math.max(0, rows ?? 0)))).toFixed(1));
      attribute(path, "data-idle", !rows);
      attribute(path, "data-pressure", edge.to in sample.pressure.held || causes.has(edge.to) ? "held" : null);
      text(label, rows === null ? "" : `${short(rows)}/s`);
    }
    const banner = byId("pressure");
    const cause = sample.pressure.causes[0];
    attribute(banner, "hidden", !cause);
    if (cause) text(banner, `Back-pressure: ${cause.operator} holds the flow back: ${cause.why}.`);
  }

  // Moving about ---------------------------------------------------------------------------------------------------

  listen() {
    byId("zoom-in").addEventListener("click", () => this.scale(1.3));
    byId("zoom-out").addEventListener("click", () => this.scale(1 / 1.3));
    byId("zoom-fit").addEventListener("click", () => this.fit());
    this.nodeLayer.addEventListener("keydown", (event) => this.key(event));
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.target.closest(".node")) return;
      from = { x: event.clientX - this.view.x, y: event.clientY - this.view.y };
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!from) return;
      this.view = { ...this.view, x: event.clientX - from.x, y: event.clientY - from.y };
      this.place();
    });
    this.svg.addEventListener("pointerup", () => { from = null; });
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls, as pages do
      event.preventDefault();
      this.scale(event.deltaY < 0 ? 1.12 : 1 / 1.12);
    }, { passive: false });
  }

  key(event) {
    const node = event.target.closest(".node");
    if (!node) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.select(node.dataset.operator);
      return;
    }
    const next = this.neighbour(node.dataset.operator, event.key);
    if (!next) return;
    event.preventDefault();
    const target = this.nodes.get(next).element;
    attribute(node, "tabindex", -1);
    attribute(target, "tabindex", 0);
    target.focus();
  }

  /** The nearest operator in the direction of an arrow key. */
  neighbour(name, key) {
    const directions = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (!(key in directions)) return null;
    const [dx, dy] = directions[key];
    const here = this.plan.places.get(name);
    let best = null;
    let least = Infinity;
    for (const [other, place] of this.plan.places) {
      const along = dx * (place.x - here.x) + dy * (place.y - here.y);
      const aside = Math.abs(dy * (place.x - here.x)) + Math.abs(dx * (place.y - here.y));
      if (along <= 0 || other === name || (dy && aside > 0)) continue;
      if (along + 2 * aside < least) [best, least] = [other, along + 2 * aside];
    }
    return best;
  }

  fit() {
    if (!this.plan) return;
    const { room } = this;
    const [wide, high] = [this.plan.width + 40, this.plan.height + 56];
    const k = Math.min(1.15, room.width / wide, room.height / high);
    this.view = { k, x: (room.width - this.plan.width * k) / 2, y: (room.height - this.plan.height * k) / 2 + 6 * k };
    this.place();
  }

  scale(by) {
    const { room } = this;
    const k = Math.max(0.05, Math.min(2.5, this.view.k * by));
    const [cx, cy] = [room.width / 2, room.height / 2];
    const ratio = k / this.view.k;
    this.view = { k, x: cx - (cx - this.view.x) * ratio, y: cy - (cy - this.view.y) * ratio };
    this.place();
  }

  place() {
    const { x, y, k } = this.view;
    this.world.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${k.toFixed(4)})`);
    attribute(this.svg, "data-far", k < 0.45); // labels would be specks
  }
}

/** Rows a second on an edge: what the writer gives and the reader takes, either of which may have other edges. */
function edgeRate(sample, edge) {
  const from = sample.operators[edge.from];
  const to = sample.operators[edge.to];
  if (!from || !to) return null;
  return Math.min(from.rate_out, to.rate_in);
}

function curve(points) {
  let d = "";
  points.forEach((point, index) => {
    const enter = point.x - (index ? 3 : 0);
    const leave = point.x + WIDTH;
    if (index === 0) {
      d = `M${leave} ${point.y}`;
      return;
    }
    const before = points[index - 1].x + WIDTH;
    const bend = Math.max(30, (enter - before) / 2);
    d += `C${before + bend} ${points[index - 1].y} ${enter - bend} ${point.y} ${enter} ${point.y}`;
    if (point.passage) d += `H${leave}`;
  });
  return d;
}
