// The heat map of shards: one cell a shard, grouped by the task that holds it, coloured by its part of the load.

import { attribute, byId, each, h, roomOf, s, text } from "./dom.js";
import { clock, count, percent, times } from "./format.js";

/** Few shards get large cells; a thousand must fit. */
const cellSize = (shards) => (shards <= 32 ? 30 : shards <= 128 ? 19 : 13);
const LABEL = 116;
const GROUP_GAP = 7;

export class ShardsView {
  constructor(redraw) {
    this.svg = byId("shards");
    this.room = roomOf(this.svg.parentElement, redraw);
    this.choice = byId("shard-operator");
    this.cells = s("g");
    this.labels = s("g");
    this.svg.append(this.labels, this.cells);
    this.operator = null;
    this.active = 0;
    this.choice.addEventListener("change", () => {
      this.operator = this.choice.value;
      this.layoutKey = null;
      this.update(this.store);
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (event.target.dataset.shard !== undefined) this.read(Number(event.target.dataset.shard));
    });
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("focus", () => this.read(this.active));
  }

  update(store) {
    this.store = store;
    const sample = store.sample;
    const names = Object.keys(sample.shards);
    const card = byId("shards-card");
    attribute(card, "data-empty", names.length === 0);
    if (!names.length) {
      text(byId("shard-facts"), "This flow has no operator whose keys are spread over shards.");
      return;
    }
    if (!names.includes(this.operator)) this.operator = names[0];
    each(this.choice, names, () => h("option"), (option, name) => {
      text(option, name);
      option.value = name;
    });
    this.choice.value = this.operator;
    this.draw(sample.shards[this.operator], sample);
  }

  draw(shards, sample) {
    this.shards = shards;
    this.owner = sample.engine === "threads" ? "replica" : "task";
    const width = this.room.width || 600;
    const key = `${this.operator}/${shards.share.length}/${width}/${shards.table ? shards.table.join(",") : ""}`;
    if (key !== this.layoutKey) {
      this.layoutKey = key;
      this.place(shards, width);
    }
    const moved = new Set(shards.moves.filter((move) => sample.at - move.at < 30).map((move) => move.shard));
    const mean = 1 / shards.share.length;
    shards.share.forEach((share, shard) => {
      const cell = this.byShard[shard];
      attribute(cell, "data-heat", step(share / mean));
      attribute(cell, "data-moved", moved.has(shard));
    });
    this.groups.forEach(({ label, members }, index) => {
      const part = members.reduce((sum, shard) => sum + shards.share[shard], 0) * this.groups.length;
      text(label, shards.table ? `${this.owner} ${index}  ·  ${times(part)}` : "parts");
    });
    this.facts(shards);
  }

  place(shards, width) {
    const size = cellSize(shards.share.length);
    const across = Math.max(8, Math.floor((width - LABEL) / size));
    const groups = shards.table
      ? Array.from({ length: shards.tasks }, (_, task) => shards.table.flatMap((owner, shard) => (owner === task ? [shard] : [])))
      : [shards.share.map((_, shard) => shard)];
    this.byShard = [];
    this.order = groups.flat();
    this.across = across;
    this.labels.replaceChildren();
    this.cells.replaceChildren();
    let top = 0;
    this.groups = groups.map((members) => {
      const label = s("text", { x: 0, y: top + (size - 2) / 2 + 4, class: "shard-label" });
      this.labels.append(label);
      members.forEach((shard, index) => {
        const cell = s("rect", {
          class: "cell", "data-shard": shard, width: size - 2, height: size - 2, rx: size > 20 ? 5 : 2,
          x: LABEL + (index % across) * size, y: top + Math.floor(index / across) * size,
        });
        this.byShard[shard] = cell;
        this.cells.append(cell);
      });
      top += Math.max(1, Math.ceil(members.length / across)) * size + GROUP_GAP;
      return { label, members };
    });
    attribute(this.svg, "height", Math.max(size, top - GROUP_GAP));
    attribute(this.svg, "width", width);
  }

  facts(shards) {
    const used = shards.share.some((share) => share > 0);
    const unbalanced = shards.table !== null && shards.imbalance > 1.2;
    const parts = [];
    if (!used) parts.push(shards.table ? "No rows lately." : "One worker takes batches whole; parts are used once there are more workers.");
    else parts.push(`${shards.share.length} ${shards.table ? "shards" : "parts"}`);
    const facts = byId("shard-facts");
    text(facts, parts.join(" "));
    const imbalance = byId("shard-imbalance");
    text(imbalance, used ? times(shards.imbalance) : "–");
    attribute(imbalance, "data-warn", used && unbalanced);
    const last = shards.moves[shards.moves.length - 1];
    text(byId("shard-moves"), last
      ? `${count(shards.moved)}, the last at ${clock(last.at)}: shard ${last.shard} from task ${last.from} to ${last.to}`
      : shards.table ? "none" : "any worker takes any part");
    const hot = shards.hot.map((each) => `shard ${each.shard} (${percent(each.share)})`).join(", ");
    text(byId("shard-hot"), hot || "none");
    const keys = (shards.hot_keys ?? []).map((each) => `${each.key ?? "a key"} of shard ${each.shard} (${percent(each.share)} of it)`);
    text(byId("shard-keys"), keys.join(", ") || "not measured");
    attribute(byId("shard-keys").parentElement, "hidden", !keys.length);
  }

  read(shard) {
    this.active = shard;
    if (!this.shards || !(shard in this.byShard)) return;
    for (const cell of this.cells.querySelectorAll("[data-active]")) cell.removeAttribute("data-active");
    attribute(this.byShard[shard], "data-active", true);
    const where = this.shards.table ? `, on ${this.owner} ${this.shards.table[shard]}` : "";
    const mean = this.shards.share[shard] * this.shards.share.length;
    text(byId("shard-reading"), `shard ${shard}${where}: ${percent(this.shards.share[shard])} of the load, ${times(mean)} the mean, ${count(this.shards.rows[shard])} rows lately`);
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.across, ArrowUp: -this.across };
    if (!(event.key in steps) || !this.order) return;
    event.preventDefault();
    const at = this.order.indexOf(this.active);
    const next = Math.max(0, Math.min(this.order.length - 1, at + steps[event.key]));
    this.read(this.order[next]);
  }
}

/** The step of the scale: the mean is in the middle, because both idle and hot shards matter. */
function step(ofMean) {
  return [0, 0.25, 0.5, 1, 1.5, 2, 3, 5].filter((bound) => ofMean > bound).length;
}
