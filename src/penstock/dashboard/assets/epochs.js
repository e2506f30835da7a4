// Where the time of each epoch went: one bar an epoch, stacked.

import { attribute, byId, each, h, roomOf, s, text } from "./dom.js";
import { clock, count, percent, seconds } from "./format.js";

const HEIGHT = 132;
const NAMES = {
  fixed: "Spark's fixed cost",
  read: "reading",
  shuffle: "shuffle",
  user: "user code",
  state: "state",
  sink: "sink",
  idle: "idle",
};

export class EpochsView {
  constructor(redraw) {
    this.svg = byId("epochs");
    this.room = roomOf(this.svg.parentElement, redraw);
    attribute(this.svg, "height", HEIGHT);
    this.legend = byId("epoch-legend");
    this.svg.addEventListener("pointermove", (event) => {
      const bar = event.target.closest("[data-index]");
      if (bar) this.read(Number(bar.dataset.index));
    });
    this.svg.addEventListener("pointerleave", () => this.read(this.epochs.length - 1));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.read(Math.max(0, Math.min(this.epochs.length - 1, (this.at ?? this.epochs.length) + step)));
    });
  }

  update(sample) {
    const epochs = sample.epochs;
    this.epochs = epochs;
    const threads = sample.engine === "threads";
    text(byId("epochs-title"), threads ? "Time" : "Epochs");
    const width = this.room.width || 400;
    attribute(this.svg, "width", width);
    // A first epoch takes long, and must not make all others small: what is above the top is cut off.
    const sorted = epochs.map((epoch) => epoch.seconds).sort((a, b) => a - b);
    const most = Math.max(1e-6, Math.min(sorted[sorted.length - 1] ?? 0, 3 * (sorted[Math.floor(sorted.length / 2)] ?? 0)));
    const parts = Object.keys(NAMES).filter((part) => epochs.some((epoch) => epoch.split[part] !== undefined));
    const step = width / Math.max(24, epochs.length);
    each(this.svg, epochs, () => s("g", { class: "epoch" }), (group, epoch, index) => {
      attribute(group, "data-index", index);
      let top = HEIGHT;
      each(group, parts, () => s("rect"), (bar, part) => {
        const size = ((epoch.split[part] ?? 0) / most) * (HEIGHT - 2);
        top -= size;
        attribute(bar, "class", `part part-${part}`);
        attribute(bar, "x", (index * step).toFixed(1));
        attribute(bar, "y", top.toFixed(1));
        attribute(bar, "width", Math.max(1, step - 1.5).toFixed(1));
        attribute(bar, "height", Math.max(0, size).toFixed(1));
      });
    });
    const total = epochs.reduce((sum, epoch) => sum + Object.values(epoch.split).reduce((a, b) => a + b, 0), 0);
    each(this.legend, parts, () => h("li", {}, h("i"), h("span")), (item, part) => {
      attribute(item.firstChild, "class", `swatch part-${part}`);
      const spent = epochs.reduce((sum, epoch) => sum + (epoch.split[part] ?? 0), 0);
      text(item.lastChild, `${NAMES[part]} ${total ? percent(spent / total) : ""}`);
    });
    if (!this.svg.matches(":hover, :focus")) this.read(epochs.length - 1);
  }

  read(index) {
    this.at = index;
    const epoch = this.epochs?.[index];
    if (!epoch) {
      text(byId("epoch-reading"), "No epoch yet.");
      return;
    }
    const again = epoch.attempts > 1 ? `, attempt ${epoch.attempts}` : "";
    const split = Object.keys(NAMES).filter((part) => epoch.split[part] !== undefined).map((part) => `${NAMES[part]} ${seconds(epoch.split[part])}`);
    text(byId("epoch-reading"), `${clock(epoch.at)} · ${count(epoch.rows)} rows in ${seconds(epoch.seconds)}${again}: ${split.join(", ")}`);
  }
}
