// The head of the page, and the small cards: order, checkpoint, workers, queries.

import { attribute, byId, each, h, text } from "./dom.js";
import { bytes, clock, count, rate, seconds, short } from "./format.js";

const STATES = { running: "running", done: "done", stopped: "stopped", failed: "failed", ended: "ended" };

export function updateHead(store) {
  const sample = store.sample;
  const totals = sample.totals;
  document.title = `${sample.flow} · Penstock`;
  text(byId("flow"), sample.flow);
  text(byId("engine"), `${sample.engine} engine`);
  const state = store.past ? "past" : sample.state;
  text(byId("state"), store.past ? `as of ${clock(sample.at)}` : STATES[sample.state] ?? sample.state);
  attribute(byId("state"), "data-state", state);
  text(byId("elapsed"), seconds(Math.max(0, Math.round(sample.at - sample.started))));
  text(byId("kpi-rate"), short(totals.rate));
  text(byId("kpi-p50"), seconds(totals.latency?.p50));
  text(byId("kpi-p99"), seconds(totals.latency?.p99));
  text(byId("kpi-lag"), seconds(totals.lag_seconds));
  text(byId("kpi-lag-rows"), totals.lag_rows === null || totals.lag_rows === undefined ? "behind" : `${short(totals.lag_rows)} rows behind`);
  text(byId("kpi-size"), count(totals.size));
  text(byId("kpi-size-name"), totals.size_name ?? "");
  text(byId("kpi-rows"), short(totals.rows_in));
  text(byId("kpi-out"), `${short(totals.rows_out)} rows out`);
  attribute(byId("error"), "hidden", !sample.error);
  text(byId("error"), sample.error ? `The flow failed: ${sample.error}.` : "");
  attribute(byId("past"), "hidden", !store.past);
}

export function updateOrder(sample) {
  text(byId("order-depth"), count(sample.order.depth));
  text(byId("order-gap"), seconds(sample.order.gap));
  text(byId("order-note"), sample.order.operator
    ? `${sample.order.operator} waits for an earlier batch`
    : sample.engine === "threads" ? "nothing waits for an earlier batch" : "rows are merged inside each epoch, so nothing waits between them");
  const checkpoint = sample.checkpoint;
  text(byId("checkpoint-age"), checkpoint ? seconds(checkpoint.age) : "none");
  text(byId("checkpoint-note"), checkpoint ? `epoch ${count(checkpoint.epoch)} is committed` : `the ${sample.engine} engine keeps nothing`);
  text(byId("state-size"), `${sample.engine === "threads" ? "≈ " : ""}${bytes(sample.totals.state_bytes ?? 0)}`);
  text(byId("errors"), count(sample.totals.errors ?? 0));
  attribute(byId("errors"), "data-warn", (sample.totals.errors ?? 0) > 0);
  const workers = sample.workers ?? [];
  attribute(byId("workers"), "hidden", !workers.length);
  each(byId("workers"), workers, () => h("li"), (item, worker) => {
    attribute(item, "data-state", worker.state);
    text(item, worker.operator ?? worker.state);
    attribute(item, "title", `worker ${worker.number}: ${worker.state}${worker.operator ? ` in ${worker.operator} for ${seconds(worker.busy_for)}` : ""}`);
  });
}

export class QueriesView {
  constructor(changed) {
    this.body = byId("queries");
    this.changed = changed;
    this.busy = false;
  }

  update(sample) {
    const can = sample.can_change && !this.busy;
    const running = sample.queries.filter((query) => query.running).length;
    text(byId("queries-note"), sample.can_change ? "" : sample.state === "running" ? "This engine cannot add or cancel queries while it runs." : "");
    each(this.body, sample.queries, () => this.makeRow(), (row, query) => {
      row.query = query;
      const [name, perSecond, rows, p50, p99, act] = row.children;
      text(name, query.name);
      text(perSecond, query.running ? rate(query.rate) : "not running");
      text(rows, count(query.rows));
      text(p50, seconds(query.latency?.p50));
      text(p99, seconds(query.latency?.p99));
      const button = act.firstChild;
      text(button, query.running ? "Cancel" : "Add");
      attribute(button, "aria-label", `${query.running ? "Cancel" : "Add"} the query ${query.name}`);
      button.disabled = !can || (query.running && running === 1);
      attribute(button, "hidden", !sample.can_change);
    });
  }

  makeRow() {
    const button = h("button", { type: "button" });
    const row = h("tr", {}, h("th", { scope: "row" }), h("td"), h("td"), h("td"), h("td"), h("td", {}, button));
    button.addEventListener("click", () => this.change(row.query));
    return row;
  }

  async change(query) {
    const status = byId("queries-status");
    const token = document.querySelector("meta[name=penstock-token]").content;
    this.busy = true;
    text(status, `${query.running ? "Cancelling" : "Adding"} ${query.name} …`);
    try {
      const answer = await fetch("/api/queries", {
        method: "POST",
        headers: { "content-type": "application/json", "x-penstock-token": token },
        body: JSON.stringify({ action: query.running ? "cancel" : "add", query: query.name }),
      });
      text(status, answer.status === 200
        ? `${query.name} ${query.running ? "ended before" : "began with"} batch ${(await answer.json()).batch}.`
        : await answer.text());
    } catch {
      text(status, "The flow does not answer.");
    } finally {
      this.busy = false;
      this.changed();
    }
  }
}
