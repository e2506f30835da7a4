// The panel at the side: one operator, or one decision with what it saw.

import { attribute, byId, h, s, text } from "./dom.js";
import { NONE, bytes, clock, count, heat, percent, rate, seconds, short, value } from "./format.js";
import { summary } from "./timeline.js";

const MANY = 12; // numbers in a row from which on they are drawn, not written

export class Panel {
  constructor(closed) {
    this.element = byId("panel");
    this.body = byId("panel-body");
    this.closed = closed;
    this.operator = null;
    byId("panel-close").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  close() {
    if (this.element.hidden) return;
    this.element.hidden = true;
    this.operator = null;
    this.closed();
    this.before?.focus?.();
  }

  open(title, kind) {
    if (this.element.hidden) this.before = document.activeElement;
    this.element.hidden = false;
    text(byId("panel-title"), title);
    text(byId("panel-kind"), kind);
    this.body.replaceChildren();
  }

  // An operator ----------------------------------------------------------------------------------------------------

  showOperator(node) {
    this.operator = node.name;
    this.open(node.name, `${node.kind} · ${node.what}`);
    const facts = [];
    if (node.keys.length) facts.push(`keyed by ${node.keys.join("; ")}`);
    if (node.fields.length) facts.push(`fields ${node.fields.join(", ")}`);
    if (node.on_error !== "fail") facts.push(`rows that fail: ${node.on_error.replace("_", " ")}`);
    this.note = h("p", { class: "note", hidden: true });
    this.spark = s("svg", { class: "spark", height: 44, role: "img", "aria-label": "rows a second over the last minutes" }, s("path", { class: "line line-fill" }));
    this.share = h("div", { class: "share", role: "img" }, h("i", { class: "share-cpu" }));
    this.cells = new Map();
    const cell = (id, name, title) => {
      const found = h("dd", { "data-field": id });
      this.cells.set(id, found);
      return h("div", { title }, h("dt", {}, name), found);
    };
    this.body.append(
      facts.length ? h("p", { class: "facts" }, facts.join(" · ")) : "",
      this.note, this.spark,
      h("dl", { class: "figures" },
        cell("rate_in", "rows in"), cell("rate_out", "rows out"), cell("busy", "busy"), cell("cost", "cost a row"),
        cell("selectivity", "selectivity", "rows out for a row in"), cell("queue", "queue", "batches that wait for it"),
        cell("errors", "errors", "rows that failed and were passed over"), cell("retries", "tried again", "attempts of calls after the first"),
        cell("timeouts", "timeouts", "attempts that took too long"), cell("state_bytes", "state"), cell("keys", "keys"),
        cell("forgotten", "keys forgotten", "keys whose time to live (ttl, within) was over"),
        cell("key_bytes", "memory per key", "what a key and its state take in the memory of all workers, about"),
        cell("reorder_depth", "reorder depth", "batches that are done and wait for an earlier one"), cell("oldest_gap", "oldest gap"),
        cell("total_in", "rows in, all"), cell("total_out", "rows out, all")),
      h("div", { class: "cpu" }, h("span", { "data-field": "cpu" }), this.share));
    this.cells.set("cpu", this.body.querySelector("[data-field=cpu]"));
  }

  update(store) {
    if (this.operator === null || this.element.hidden) return;
    const found = store.sample.operators[this.operator];
    if (!found) {
      this.close();
      return;
    }
    const set = (id, words) => text(this.cells.get(id), words);
    set("rate_in", rate(found.rate_in));
    set("rate_out", rate(found.rate_out));
    set("busy", percent(found.busy));
    attribute(this.cells.get("busy"), "data-heat", heat(found.busy));
    set("cost", found.cost === null ? NONE : seconds(found.cost / 1e6));
    set("selectivity", found.selectivity === null ? NONE : short(found.selectivity));
    set("queue", found.queue === null ? "no queues" : count(found.queue));
    set("errors", count(found.errors));
    attribute(this.cells.get("errors"), "data-warn", found.errors > 0);
    set("retries", count(found.retries ?? 0));
    set("timeouts", count(found.timeouts ?? 0));
    set("state_bytes", found.state_bytes === null ? NONE : `${store.sample.engine === "threads" ? "≈ " : ""}${bytes(found.state_bytes)}`);
    set("keys", count(found.keys));
    set("forgotten", count(found.forgotten ?? 0));
    set("key_bytes", found.key_bytes ? `≈ ${bytes(found.key_bytes)}` : NONE);
    set("reorder_depth", count(found.reorder_depth));
    set("oldest_gap", seconds(found.oldest_gap));
    set("total_in", count(found.rows_in));
    set("total_out", count(found.rows_out));
    set("cpu", `CPU ${seconds(found.cpu)} of ${seconds(found.wall)} wall${found.cpu_share === null ? "" : `; lately ${percent(found.cpu_share)}`}`);
    const part = found.wall > 0 ? Math.min(1, found.cpu / found.wall) : 0;
    this.share.firstChild.style.width = `${(100 * part).toFixed(1)}%`;
    attribute(this.share, "aria-label", `${percent(part)} of the time on a processor, the rest waiting`);
    const cause = store.sample.pressure.causes.find((each) => each.operator === this.operator);
    const held = store.sample.pressure.held[this.operator];
    this.note.hidden = !cause && !held;
    attribute(this.note, "data-kind", cause ? "cause" : "held");
    text(this.note, cause ? `Holds the flow back: ${cause.why}.` : held ? `Waits for ${held}, which holds the flow back.` : "");
    this.drawSpark(store.trail);
  }

  drawSpark(trail) {
    const width = 300;
    const most = Math.max(1e-9, ...trail.map((point) => point.rate));
    const step = width / Math.max(1, trail.length - 1);
    const places = trail.map((point, index) => `${(index * step).toFixed(1)} ${(43 - (point.rate / most) * 40).toFixed(1)}`);
    attribute(this.spark, "width", width);
    attribute(this.spark.firstChild, "d", places.length > 1 ? `M0 44L${places.join("L")}L${width} 44Z` : "");
  }

  // Decisions ------------------------------------------------------------------------------------------------------

  async showDecisions(decisions) {
    this.operator = null;
    const one = decisions.length === 1;
    this.open(one ? summary(decisions[0]) : `${decisions.length} decisions`, one ? "decision" : "at nearly the same time");
    this.element.focus();
    for (const decision of decisions.slice(-40)) {
      const seen = h("div", { class: "seen" });
      const part = h("article", { class: "decision-detail" },
        one ? "" : h("h3", {}, summary(decision)),
        h("p", { class: "facts" }, `${clock(decision.at)} · controller ${decision.controller} · step ${decision.step}${decision.epoch === null ? "" : ` · epoch ${decision.epoch}`}`),
        h("p", { class: "why" }, decision.why || "no reason was given"),
        h("p", { class: "facts" }, numbers(decision)));
      if (one) {
        part.append(seen);
        this.showSeen(seen, decision.number);
      } else {
        part.append(h("button", { type: "button", onclick: () => this.showDecisions([decision]) }, "what it saw"));
      }
      this.body.append(part);
    }
  }

  async showSeen(element, number) {
    element.append(h("h3", {}, "Statistics that it saw"));
    const answer = await fetch(`/api/decisions/${Number(number)}`).catch(() => null);
    if (!answer?.ok) {
      element.append(h("p", { class: "facts" }, "They are not kept any more; the history on disk has them."));
      return;
    }
    element.append(tree((await answer.json()).seen));
  }
}

/** Show plain JSON: names and values as a table, long rows of numbers as bars. */
function tree(found) {
  if (Array.isArray(found)) {
    if (found.length >= MANY && found.every((each) => typeof each === "number")) return bars(found);
    if (found.every((each) => typeof each !== "object" || each === null)) return h("span", {}, found.map(value).join(", ") || "none");
    return h("ol", { class: "tree" }, found.slice(0, 50).map((each) => h("li", {}, tree(each))));
  }
  if (found !== null && typeof found === "object") {
    return h("table", { class: "tree" }, h("tbody", {}, Object.entries(found).map(([name, each]) =>
      h("tr", {}, h("th", { scope: "row" }, name.replaceAll("_", " ")), h("td", {}, tree(each))))));
  }
  return h("span", {}, value(found));
}

function bars(numbers) {
  const most = Math.max(...numbers);
  const width = 190;
  const step = width / numbers.length;
  const d = numbers.map((each, index) => `M${(index * step).toFixed(2)} 30V${(30 - (Math.max(0, each) / (most || 1)) * 28).toFixed(1)}`).join("");
  return h("figure", {}, s("svg", { class: "bars", width, height: 31, role: "img", "aria-label": `${numbers.length} values, the largest ${value(most)}` },
    s("path", { d, "stroke-width": Math.max(0.5, step - 0.4).toFixed(2) })),
  h("figcaption", {}, `${numbers.length} values, ${value(Math.min(...numbers))} to ${value(most)}`));
}

function numbers(decision) {
  const found = Object.entries(decision.numbers ?? {});
  return found.map(([name, value]) => `${name.replaceAll("_", " ")} ${Number(Number(value).toPrecision(4))}`).join(" · ");
}
