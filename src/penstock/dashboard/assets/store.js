// What the page knows: bounded, however long it is left open.

const MOST_POINTS = 1200;
const FRESH_POINTS = 240;
const MOST_DECISIONS = 2000;
const MOST_TRAIL = 240;

/** Drop every second of the older points: a long run keeps its beginning, and its last minutes in full. */
export function thin(points) {
  const older = points.length - FRESH_POINTS;
  return older <= 1 ? points : [...points.slice(0, older).filter((_, index) => index % 2 === 0), ...points.slice(older)];
}

export function pointOf(sample) {
  const totals = sample.totals;
  return {
    t: sample.at,
    rate: totals.rate,
    p50: totals.latency?.p50 ?? null,
    p99: totals.latency?.p99 ?? null,
    lag: totals.lag_seconds ?? null,
    lag_rows: totals.lag_rows ?? null,
    size: totals.size ?? null,
  };
}

export class Store {
  constructor() {
    this.graph = { nodes: [], edges: [], version: 0 };
    this.latest = null;
    this.past = null; // the sample of an earlier moment, while that is looked at
    this.points = [];
    this.decisions = [];
    this.trail = []; // of the selected operator: time, rows a second, busy
    this.selected = null;
    this.live = true;
  }

  get sample() {
    return this.past ?? this.latest;
  }

  begin(page) {
    this.graph = page.graph;
    this.latest = page.sample;
    this.points = page.points.slice(-MOST_POINTS);
    this.decisions = page.decisions.slice(-MOST_DECISIONS);
    this.live = page.live;
  }

  take(sample) {
    this.latest = sample;
    this.points.push(pointOf(sample));
    if (this.points.length > MOST_POINTS) this.points = thin(this.points);
    const operator = sample.operators[this.selected];
    if (operator) {
      this.trail.push({ t: sample.at, rate: operator.rate_in || operator.rate_out, busy: operator.busy });
      if (this.trail.length > MOST_TRAIL) this.trail.shift();
    }
  }

  decide(decisions) {
    const known = this.known;
    this.decisions.push(...decisions.filter((decision) => decision.number >= known));
    if (this.decisions.length > MOST_DECISIONS) this.decisions = this.decisions.slice(-MOST_DECISIONS);
  }

  /** The number of the next decision that is not known. */
  get known() {
    return this.decisions.length ? this.decisions[this.decisions.length - 1].number + 1 : 0;
  }

  select(operator) {
    this.selected = operator;
    this.trail = [];
  }
}
