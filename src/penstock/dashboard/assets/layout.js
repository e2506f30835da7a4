// Lay a graph out in layers, left to right: an operator stands right of all that it reads.

export const WIDTH = 196;
export const HEIGHT = 60;
const GAP_X = 92;
const GAP_Y = 30;
const THIN = 14; // the room that an edge takes where it passes a layer
const SWEEPS = 12;

/** Return the place of each operator, the points that each edge goes through, and the size of the whole. */
export function layout(graph) {
  const layerOf = layers(graph);
  const { rows, chains } = withPassages(graph, layerOf);
  order(rows, chains);
  const y = spread(rows, chains);
  const places = new Map();
  let bottom = 0;
  rows.forEach((row) => {
    for (const item of row) {
      if (!item.passage) places.set(item.name, { x: item.layer * (WIDTH + GAP_X), y: y.get(item) });
      bottom = Math.max(bottom, y.get(item) + item.height);
    }
  });
  const edges = chains.map((chain) => ({
    edge: chain.edge,
    points: chain.items.map((item) => ({ x: item.layer * (WIDTH + GAP_X), y: y.get(item) + item.height / 2, passage: item.passage })),
  }));
  return { places, edges, width: rows.length * (WIDTH + GAP_X) - GAP_X, height: bottom };
}

function layers(graph) {
  const found = new Map();
  const reads = new Map(graph.nodes.map((node) => [node.name, []]));
  for (const edge of graph.edges) reads.get(edge.to)?.push(edge.from);
  // Nodes come sorted: each stands behind those that it reads.
  for (const node of graph.nodes) {
    found.set(node.name, Math.max(-1, ...reads.get(node.name).map((name) => found.get(name) ?? -1)) + 1);
  }
  return found;
}

function withPassages(graph, layerOf) {
  const rows = [];
  const put = (item) => {
    while (rows.length <= item.layer) rows.push([]);
    rows[item.layer].push(item);
    return item;
  };
  const items = new Map();
  for (const node of graph.nodes) {
    items.set(node.name, put({ name: node.name, layer: layerOf.get(node.name), height: HEIGHT, passage: false, left: [], right: [] }));
  }
  const chains = graph.edges.map((edge) => {
    const chain = [items.get(edge.from)];
    for (let layer = layerOf.get(edge.from) + 1; layer < layerOf.get(edge.to); layer += 1) {
      chain.push(put({ layer, height: THIN, passage: true, left: [], right: [] }));
    }
    chain.push(items.get(edge.to));
    for (let i = 1; i < chain.length; i += 1) {
      chain[i - 1].right.push(chain[i]);
      chain[i].left.push(chain[i - 1]);
    }
    return { edge, items: chain };
  });
  return { rows, chains };
}

/** Sort each layer by the mean place of its neighbours, back and forth, so that few edges cross. */
function order(rows) {
  const place = new Map();
  const number = (row) => row.forEach((item, index) => place.set(item, index));
  rows.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forth = sweep % 2 === 0;
    for (const row of forth ? rows : [...rows].reverse()) {
      const key = new Map(row.map((item) => [item, mean((forth ? item.left : item.right).map((other) => place.get(other)), place.get(item))]));
      row.sort((a, b) => key.get(a) - key.get(b));
      number(row);
    }
  }
}

/** Give each item a height near its neighbours', without overlap. */
function spread(rows) {
  const y = new Map();
  for (const row of rows) {
    let top = 0;
    for (const item of row) {
      y.set(item, top);
      top += item.height + GAP_Y;
    }
  }
  const middle = (item) => y.get(item) + item.height / 2;
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const row of sweep % 2 === 0 ? rows : [...rows].reverse()) {
      const wanted = row.map((item) => mean([...item.left, ...item.right].map(middle), middle(item)) - item.height / 2);
      settle(row, wanted, y);
    }
  }
  const top = Math.min(...y.values());
  for (const [item, value] of y) y.set(item, value - top);
  return y;
}

/** Push items apart: down in one pass, up in another, and take the middle. */
function settle(row, wanted, y) {
  const down = [];
  row.forEach((item, i) => down.push(i ? Math.max(wanted[i], down[i - 1] + row[i - 1].height + GAP_Y) : wanted[i]));
  const up = new Array(row.length);
  for (let i = row.length - 1; i >= 0; i -= 1) {
    up[i] = i < row.length - 1 ? Math.min(wanted[i], up[i + 1] - row[i].height - GAP_Y) : wanted[i];
  }
  row.forEach((item, i) => y.set(item, (down[i] + up[i]) / 2));
}

function mean(values, otherwise) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : otherwise;
}
