// Draw the run over time: throughput, latency, lag and size, with every decision marked.

import { attribute, byId, each, h, pressable, roomOf, s, text } from "./dom.js";
import { clock, rate, seconds, short } from "./format.js";

const LEFT = 84;
const RIGHT = 12;
const LANE_GAP = 14;
const MARKS_HEIGHT = 26;
const MARK_ROOM = 11; // pixels: decisions that are nearer share a mark
const LANES = [
  { id: "rate", title: "Throughput", height: 92, lines: [["rate", "fill"], ["rate", "rate"]], unit: (value) => rate(value) },
  { id: "latency", title: "Latency", height: 80, lines: [["p99", "p99"], ["p50", "p50"]], unit: seconds },
  { id: "lag", title: "Lag", height: 56, lines: [["lag", "lag"]], unit: seconds },
  { id: "size", title: "Size", height: 44, lines: [["size", "step"]], unit: short, step: true },
];

export class TimelineView {
  constructor({ openDecisions, lookAt, redraw }) {
    this.openDecisions = openDecisions;
    this.lookAt = lookAt;
    this.svg = byId("timeline");
    this.room = roomOf(this.svg.parentElement, redraw);
    this.axis = s("g", { class: "axis" });
    this.svg.append(this.axis);
    this.lanes = new Map();
    let top = MARKS_HEIGHT + 8;
    for (const lane of LANES) {
      this.lanes.set(lane.id, this.addLane(lane, top));
      top += lane.height + LANE_GAP;
    }
    this.height = top + 14;
    attribute(this.svg, "height", this.height);
    this.marks = s("g", { class: "marks" });
    this.cross = s("line", { class: "cross", y1: MARKS_HEIGHT, y2: top - LANE_GAP, visibility: "hidden" });
    this.moment = s("line", { class: "moment", y1: MARKS_HEIGHT, y2: top - LANE_GAP, visibility: "hidden" });
    this.svg.append(this.moment, this.cross, this.marks);
    this.listen();
  }

  addLane(lane, top) {
    const group = s("g", { class: `lane lane-${lane.id}`, transform: `translate(0 ${top})` });
    const title = s("text", { x: 0, y: 11, class: "lane-title" });
    title.textContent = lane.title;
    const most = s("text", { x: LEFT - 8, y: 26, class: "lane-most" });
    const base = s("line", { x1: LEFT, y1: lane.height, y2: lane.height, class: "base" });
    const lines = lane.lines.map(([, style]) => s("path", { class: `line line-${style}` }));
    group.append(base, title, most, ...lines);
    this.svg.append(group);
    return { lane, title, most, base, lines, top };
  }

  update(store) {
    this.store = store;
    const width = this.room.width || 800;
    attribute(this.svg, "width", width);
    const points = store.points;
    if (!points.length) return;
    const first = store.points[0].t;
    const last = Math.max(first + 10, points[points.length - 1].t);
    this.scale = { first, last, width, x: (t) => LEFT + ((t - first) / (last - first)) * (width - LEFT - RIGHT) };
    text(this.lanes.get("size").title, (store.sample?.totals.size_name ?? "size").replace(/^./, (letter) => letter.toUpperCase()));
    for (const { lane, most, base, lines } of this.lanes.values()) {
      attribute(base, "x2", width - RIGHT);
      const top = nice(Math.max(0, ...lane.lines.flatMap(([field]) => points.map((point) => point[field] ?? 0))));
      text(most, lane.unit(top));
      lane.lines.forEach(([field, style], index) => {
        attribute(lines[index], "d", path(points, field, this.scale.x, top, lane.height, style));
      });
    }
    this.drawAxis();
    this.drawMarks(store.decisions);
    const at = store.past?.at ?? null;
    attribute(this.moment, "visibility", at === null ? "hidden" : "visible");
    if (at !== null) for (const end of ["x1", "x2"]) attribute(this.moment, end, this.scale.x(at).toFixed(1));
  }

  drawAxis() {
    const { first, last, x, width } = this.scale;
    const step = tickStep((last - first) / Math.max(2, Math.floor(width / 130)));
    const ticks = [];
    for (let t = Math.ceil(first / step) * step; t <= last; t += step) {
      if (x(t) < width - 28) ticks.push(t); // a time that is cut off helps nobody
    }
    each(this.axis, ticks,
      () => s("g", {}, s("line", { y1: MARKS_HEIGHT, y2: this.height - 26 }), s("text", { y: this.height - 10 })),
      (element, t) => {
        attribute(element, "transform", `translate(${x(t).toFixed(1)} 0)`);
        text(element.lastChild, clock(t));
      });
  }

  drawMarks(decisions) {
    const { first, last, x } = this.scale;
    const groups = [];
    for (const decision of decisions) {
      const at = Math.min(last, Math.max(first, decision.at));
      const place = x(at);
      const near = groups[groups.length - 1];
      if (near && place - near.place < MARK_ROOM) near.decisions.push(decision);
      else groups.push({ place, decisions: [decision] });
    }
    this.groups = groups;
    each(this.marks, groups, () => this.makeMark(), (element, group) => {
      attribute(element, "transform", `translate(${group.place.toFixed(1)} ${MARKS_HEIGHT - 10})`);
      const real = group.decisions.filter((decision) => !decision.start);
      attribute(element, "data-start", real.length === 0);
      attribute(element, "data-count", group.decisions.length);
      const [number, title, stem] = [element.querySelector("text"), element.querySelector("title"), element.querySelector("line")];
      text(number, real.length > 1 ? (real.length > 99 ? "99+" : real.length) : "");
      attribute(stem, "y2", this.height - 40);
      const newest = group.decisions[group.decisions.length - 1];
      const words = group.decisions.length > 1 ? `${group.decisions.length} decisions, the last: ${summary(newest)}` : summary(newest);
      text(title, `${clock(newest.at)}: ${words}`);
      attribute(element, "aria-label", `Decision at ${clock(newest.at)}: ${words}`);
    });
    const focusable = [...this.marks.children];
    if (focusable.length && !focusable.some((mark) => mark.getAttribute("tabindex") === "0")) {
      attribute(focusable[focusable.length - 1], "tabindex", 0);
    }
  }

  makeMark() {
    const element = s("g", { class: "mark", role: "button", tabindex: -1 },
      s("line", { class: "stem", y1: 8 }),
      s("path", { class: "diamond", d: "M0 -8 8 0 0 8 -8 0Z" }),
      s("text", { y: 3.5 }), s("title"));
    pressable(element, () => this.openDecisions(this.groups[[...this.marks.children].indexOf(element)].decisions));
    element.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" }[event.key];
      const next = step && element[step];
      if (!next) return;
      event.preventDefault();
      attribute(element, "tabindex", -1);
      attribute(next, "tabindex", 0);
      next.focus();
    });
    return element;
  }

  listen() {
    const nearest = (event) => {
      const { first, last, width } = this.scale;
      const part = (event.clientX - this.svg.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT);
      const t = first + part * (last - first);
      return this.store.points.reduce((best, point) => (Math.abs(point.t - t) < Math.abs(best.t - t) ? point : best));
    };
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.scale || !this.store.points.length) return;
      const point = nearest(event);
      attribute(this.cross, "visibility", "visible");
      for (const end of ["x1", "x2"]) attribute(this.cross, end, this.scale.x(point.t).toFixed(1));
      this.read(point);
    });
    this.svg.addEventListener("pointerleave", () => {
      attribute(this.cross, "visibility", "hidden");
      text(byId("timeline-reading"), "");
    });
    this.svg.addEventListener("click", (event) => {
      if (this.scale && !event.target.closest(".mark")) this.lookAt(nearest(event).t);
    });
  }

  read(point) {
    text(byId("timeline-reading"),
      `${clock(point.t)}  ·  ${short(point.rate)} rows/s  ·  p50 ${seconds(point.p50)}  ·  p99 ${seconds(point.p99)}  ·  lag ${seconds(point.lag)}${
        point.lag_rows === null || point.lag_rows === undefined ? "" : ` (${short(point.lag_rows)} rows)`}`);
  }
}

/** The decisions as a list, the newest first: what the marks show, for whoever reads rather than looks. */
export class DecisionList {
  constructor(open) {
    this.list = byId("decision-list");
    this.open = open;
    this.drawn = null;
  }

  update(store) {
    const held = store.sample?.held ?? 0;
    const real = store.decisions.filter((decision) => !decision.start).length;
    text(byId("decision-count"), `${real} ${real === 1 ? "change" : "changes"} · ${held} steps without`);
    const key = `${store.known}/${store.decisions.length}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const shown = store.decisions.slice(-200).reverse();
    each(this.list, shown, () => {
      const button = h("button", { type: "button", class: "decision" },
        h("span", { class: "decision-time" }), h("span", { class: "decision-what" }), h("span", { class: "decision-why" }));
      const item = h("li", {}, button);
      button.addEventListener("click", () => this.open([item.decision]));
      return item;
    }, (item, decision) => {
      item.decision = decision;
      const [time, what, why] = item.firstChild.children;
      text(time, clock(decision.at));
      text(what, summary(decision));
      text(why, decision.why);
      attribute(item, "data-start", decision.start);
    });
  }
}

export function summary(decision) {
  const target = decision.target ? ` ${decision.target}` : "";
  if (decision.before === null && decision.after === null) return `${decision.controller}: ${decision.what}${target}`;
  return `${decision.what.replaceAll("_", " ")}${target}: ${decision.before ?? "–"} → ${decision.after ?? "–"}`;
}

function path(points, field, x, top, height, style) {
  const y = (value) => (top > 0 ? height - (value / top) * (height - 4) : height);
  let d = "";
  let open = false;
  let begin = 0;
  let lastX = 0;
  for (const point of points) {
    const value = point[field];
    if (value === null || value === undefined) {
      open = false;
      continue;
    }
    const [px, py] = [x(point.t), y(value)];
    if (!open) {
      d += `M${px.toFixed(1)} ${py.toFixed(1)}`;
      begin = px;
    } else if (style === "step") d += `H${px.toFixed(1)}V${py.toFixed(1)}`;
    else d += `L${px.toFixed(1)} ${py.toFixed(1)}`;
    open = true;
    lastX = px;
  }
  if (style === "fill" && d) d += `L${lastX.toFixed(1)} ${height}L${begin.toFixed(1)} ${height}Z`;
  return d;
}

function nice(value) {
  if (value <= 0) return 0;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((step) => step * size).find((step) => step >= value * 0.999);
}

function tickStep(atLeast) {
  return [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400].find((step) => step >= atLeast) ?? 86400;
}
