// The page: get what is known, follow what comes, draw at most once a frame.

import { attribute, byId, text } from "./dom.js";
import { EpochsView } from "./epochs.js";
import { GraphView } from "./graph.js";
import { Panel } from "./panel.js";
import { ShardsView } from "./shards.js";
import { Store } from "./store.js";
import { QueriesView, updateHead, updateOrder } from "./summary.js";
import { DecisionList, TimelineView } from "./timeline.js";

class Page {
  constructor() {
    this.store = new Store();
    this.panel = new Panel(() => this.select(null));
    this.graph = new GraphView((name) => this.select(name));
    this.timeline = new TimelineView({ openDecisions: (found) => this.open(found), lookAt: (at) => this.lookAt(at), redraw: () => this.draw() });
    this.list = new DecisionList((found) => this.open(found));
    this.shards = new ShardsView(() => this.draw());
    this.epochs = new EpochsView(() => this.draw());
    this.queries = new QueriesView(() => this.load());
    this.pending = false;
    this.loading = null;
    this.slowest = 0;
    this.draws = 0;
    byId("past-back").addEventListener("click", () => this.lookAt(null));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.store.past) this.lookAt(null);
    });
  }

  async load() {
    // One at a time: samples may come faster than an answer.
    this.loading ??= fetch("/api/page")
      .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(answer.statusText))))
      .then((page) => this.begin(page))
      .finally(() => { this.loading = null; });
    return this.loading;
  }

  begin(page) {
    this.store.begin(page);
    this.drawNow();
  }

  follow() {
    const events = new EventSource("/api/events");
    events.addEventListener("message", (event) => this.take(JSON.parse(event.data)));
    events.addEventListener("open", () => {
      attribute(byId("lost"), "hidden", true);
      this.load().catch(() => {}); // what was missed while nobody listened
    });
    events.addEventListener("error", () => {
      // A run that has ended takes its page with it: what was last seen stays.
      if (this.store.latest?.state === "running") attribute(byId("lost"), "hidden", false);
      else events.close();
    });
  }

  take(sample) {
    this.store.take(sample);
    if (sample.graph !== this.store.graph.version) this.load().catch(() => {});
    else if (sample.decisions > this.store.known) this.catchUp();
    this.draw();
  }

  async catchUp() {
    if (this.catching) return;
    this.catching = true;
    try {
      const answer = await fetch(`/api/decisions?after=${this.store.known}`);
      if (answer.ok) this.store.decide(await answer.json());
      this.draw();
    } catch {
      // The next sample asks again.
    } finally {
      this.catching = false;
    }
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.drawNow();
    });
  }

  drawNow() {
    const { store } = this;
    const sample = store.sample;
    if (!sample?.totals) return;
    const began = performance.now();
    if (this.graph.version !== store.graph.version) this.graph.draw(store.graph);
    updateHead(store);
    this.graph.update(sample, store.selected);
    this.timeline.update(store);
    this.list.update(store);
    this.shards.update(store);
    this.epochs.update(sample);
    updateOrder(sample);
    this.queries.update(sample);
    this.panel.update(store);
    attribute(document.body, "data-ready", true);
    this.slowest = Math.max(this.slowest, performance.now() - began); // for whoever measures
    this.draws += 1;
  }

  select(name) {
    const node = this.store.graph.nodes.find((each) => each.name === name);
    this.store.select(node ? name : null);
    if (node) this.panel.showOperator(node);
    this.draw();
  }

  open(decisions) {
    this.store.select(null);
    this.panel.showDecisions(decisions);
    this.draw();
  }

  /** Show the page as it was; with null as it is. */
  async lookAt(at) {
    if (at === null) this.store.past = null;
    else {
      const answer = await fetch(`/api/sample?at=${at}`).catch(() => null);
      if (answer?.ok) this.store.past = await answer.json();
      text(byId("past-time"), this.store.past ? new Date(this.store.past.at * 1000).toLocaleString("en-GB") : "");
    }
    this.draw();
  }
}

export const page = new Page();

await page.load();
if (page.store.live) page.follow();
