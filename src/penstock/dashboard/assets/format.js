// Write numbers as people do.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const NONE = "–";

export function count(value) {
  return value === null || value === undefined ? NONE : whole.format(value);
}

/** 12,345 -> 12.3 k: three digits are all that a glance takes in. */
export function short(value) {
  if (value === null || value === undefined) return NONE;
  for (const [size, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (Math.abs(value) >= size) return digits(value / size) + unit;
  }
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (value === 0) return "0";
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2).replace(/\.?0+$/, (zeros) => (zeros.includes(".") ? "" : zeros));
}

export const rate = (value) => (value === null || value === undefined ? NONE : `${short(value)}/s`);

export function percent(value) {
  if (value === null || value === undefined) return NONE;
  return value > 0 && value < 0.01 ? "<1 %" : `${Math.round(100 * value)} %`;
}

export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.001) return `${digits(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  if (value < 120) return `${digits(value)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(value % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"]]) {
    if (value >= size) return `${digits(value / size)} ${unit}`;
  }
  return `${value} B`;
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export const times = (value) => (value === null || value === undefined ? NONE : `${digits(value)}×`);

export function value(found) {
  if (found === null || found === undefined) return NONE;
  if (typeof found === "number") return Number.isInteger(found) ? count(found) : String(Number(found.toPrecision(5)));
  return String(found);
}

/** The step of the heat scale, 0 to 8, for a part from 0 to 1. */
export const heat = (part) => Math.max(0, Math.min(8, Math.round(part * 8)));
