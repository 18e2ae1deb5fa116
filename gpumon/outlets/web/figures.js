// Seconds and shares as the daemon writes them in its own sentences (core/wording.py): one figure
// has one form, wherever it stands.

export const NBSP = "\u00a0"; // a figure and its unit stay on one line

const TENTHS = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 1, maximumFractionDigits: 1, roundingMode: "halfEven",
});

// An amount of time.
export function duration(ns) {
  const seconds = ns / 1e9;
  const isShort = seconds > 0 && seconds < 0.095;
  return `${isShort ? Number(seconds.toPrecision(2)) : TENTHS.format(seconds)}${NBSP}s`;
}

// How long ago, or for how long by now: nobody adds these up.
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
