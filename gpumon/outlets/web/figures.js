// Times and shares as the daemon writes them in its own sentences (core/wording.py): one figure
// has one form, wherever it stands.

export const NBSP = "\u00a0"; // a figure and its unit stay on one line

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0, roundingMode: "halfEven" });

// The unit of a column: seconds up to two minutes, minutes up to two hours, hours.
function unitOf(ns) {
  const about = Number((ns / 1e9).toPrecision(3));
  if (about < 119.5) return [1e9, "s"];
  return about / 60 < 119.5 ? [60e9, "min"] : [3600e9, "h"];
}

const secondsText = (value) =>
  String(value < 1 ? Number((Number(value.toFixed(2)) || value).toPrecision(2)) : Number(value.toPrecision(3)));

// A duration as people say it: "59.8 s", "5 min 22 s", "2 h 17 min".
export function duration(ns) {
  const value = ns / 1e9;
  if (value < 90) return `${secondsText(value)}${NBSP}s`;
  const [count, first, second] =
    value < 5399.5 ? [Math.round(value), "min", "s"] : [Math.round(value / 60), "h", "min"];
  const rest = count % 60 && value < 360000 ? [count % 60, second] : [];
  return [WHOLE.format(Math.floor(count / 60)), first, ...rest].join(NBSP);
}

// An amount for a column, whose cells have one unit and as many decimals.
export function inUnitOf(wholeNs, ns) {
  const [unitNs, unit] = unitOf(wholeNs);
  return `${(ns / unitNs).toFixed(wholeNs / unitNs < 10 ? 2 : 1)}${NBSP}${unit}`;
}

// All parts of an amount for a column, rounded so that they add up to it as it stands there; null
// for a part too short to be seen there.
export function partsInUnitOf(wholeNs, partsNs) {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const [figure, unit] = inUnitOf(wholeNs, sum(partsNs)).split(NBSP);
  const scale = 10 ** figure.split(".")[1].length;
  const grainNs = unitOf(wholeNs)[0] / scale;
  const grains = partsNs.map((ns) => Math.floor(ns / grainNs));
  const byRemainder = [...partsNs.keys()].sort((a, b) => (partsNs[b] % grainNs) - (partsNs[a] % grainNs));
  const missing = Math.round(Number(figure) * scale) - sum(grains);
  for (const at of byRemainder.slice(0, missing)) grains[at] += 1;
  return grains.map((count) => (count > 0 ? `${(count / scale).toFixed(Math.log10(scale))}${NBSP}${unit}` : null));
}

// How long ago, or for how long by now: these are never added up.
export function roughly(ns) {
  const seconds = ns / 1e9;
  if (seconds < 99.95) return `${seconds.toFixed(1)}${NBSP}s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return [Math.floor(whole / 60), "min", whole % 60, "s"].join(NBSP);
  const minutes = Math.round(seconds / 60);
  return [Math.floor(minutes / 60), "h", minutes % 60, "min"].join(NBSP);
}

export function share(part, whole) {
  if (!(whole > 0)) return "–";
  const percent = (100 * part) / whole;
  // Never rounded to a whole that was not reached.
  if (percent >= 99.5 && percent < 100) return `${Math.min(percent, 99.99).toFixed(2)}${NBSP}%`;
  return `${percent.toFixed(percent > 0 && percent < 9.95 ? 1 : 0)}${NBSP}%`;
}

// Memory: "20.0 GiB", or "20 of 141 GiB".
export function gib(bytes, whole = null) {
  const size = (value) => (value / 2 ** 30).toFixed(value < 10 * 2 ** 30 ? 1 : 0);
  return `${size(bytes)}${whole === null ? "" : ` of ${size(whole)}`}${NBSP}GiB`;
}
