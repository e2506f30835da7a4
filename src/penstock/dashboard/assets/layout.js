// Put the places that the server has found, in layers and heights, on the page: an operator stands right of all that it reads.

export const WIDTH = 196;
export const HEIGHT = 60;
const GAP_X = 92;
const GAP_Y = 30;

/** Return the place of each operator, the points that each edge goes through, and the size of the whole. */
export function layout(graph) {
  const at = ([layer, height]) => ({ x: layer * (WIDTH + GAP_X), y: height * (HEIGHT + GAP_Y) });
  const point = (place, passage) => ({ x: at(place).x, y: at(place).y + HEIGHT / 2, passage });
  const placeOf = new Map(graph.nodes.map((node) => [node.name, node.place]));
  const edges = graph.edges.map((edge) => ({
    edge,
    points: [point(placeOf.get(edge.from), false), ...edge.bends.map((place) => point(place, true)), point(placeOf.get(edge.to), false)],
  }));
  const all = [...placeOf.values(), ...graph.edges.flatMap((edge) => edge.bends)].map(at);
  return {
    places: new Map([...placeOf].map(([name, place]) => [name, at(place)])),
    edges,
    width: Math.max(0, ...all.map(({ x }) => x + WIDTH)),
    height: Math.max(0, ...all.map(({ y }) => y + HEIGHT)),
  };
}
