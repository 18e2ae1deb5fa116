// Draws one lane: time from left to right, each tick stacked by what its seconds were for.

import { roughly, share } from "/figures.js";
import { LABELS, PARTS } from "/words.js";

const MARK_HEIGHT = 5;
const WINDOWS_S = [60, 120, 180, 300, 420, 600, 1800, 3600, 7200];

// One tick's nanoseconds by part of the lane; the suspected part is taken out of "unknown".
export function partsOf(point) {
  const parts = { busy: point.busy_ns, pending: point.pending_ns, suspected: point.suspected_ns };
  for (const [cause, ns] of Object.entries(point.idle_ns)) parts[cause] = ns;
  if (parts.unknown) parts.unknown = Math.max(0, parts.unknown - point.suspected_ns);
  return parts;
}

export const sumOf = (parts) => Object.values(parts).reduce((sum, ns) => sum + ns, 0);

// The smallest round stretch that holds all points, and no longer than they are kept: the oldest
// may reach a little beyond that.
export function windowNs(points, keptNs) {
  const [oldest, newest] = [points[0], points.at(-1)];
  const spanS = points.length > 0 ? (newest.end_ns - oldest.end_ns + oldest.observed_ns) / 1e9 : 0;
  return Math.min(1e9 * (WINDOWS_S.find((seconds) => seconds >= spanS) ?? Infinity), keptNs);
}

// Where each point lies. A tick may come before the last sample of its time, which the next one
// then brings: such a point ended where the next begins, and left no hole before it.
export function placed(points) {
  let next = Infinity;
  return [...points]
    .reverse()
    .map((point) => {
      const end = Math.min(point.end_ns, next);
      next = end - point.observed_ns;
      return { point, start: next, end };
    })
    .reverse();
}

export class Palette {
  constructor(root) {
    const style = getComputedStyle(root);
    this.colours = new Map(
      PARTS.map(({ key }) => [key, style.getPropertyValue(`--part-${key.replaceAll("_", "-")}`).trim()]),
    );
    this.unobserved = style.getPropertyValue("--unobserved").trim();
    this.ground = style.getPropertyValue("--lane-ground").trim();
  }
}

function hatch(context, colour, ground) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  for (const shift of [-6, 0, 6]) {
    pen.beginPath();
    pen.moveTo(shift - 1, 7);
    pen.lineTo(shift + 7, -1);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

export class Lane {
  constructor(canvas, readout) {
    this.canvas = canvas;
    this.readout = readout;
    this.points = [];
    this.endNs = 0;
    this.widthNs = 1;
    this.goneUntilNs = null;
    canvas.addEventListener("pointermove", (event) => this.#describe(event.offsetX));
    canvas.addEventListener("pointerleave", () => (readout.textContent = ""));
  }

  // What was observed before goneUntilNs is no longer known; null: all is kept.
  draw(points, { endNs, widthNs, goneUntilNs, palette }) {
    Object.assign(this, { points: placed(points), endNs, widthNs, goneUntilNs });
    const scale = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    const width = Math.round(clientWidth * scale);
    const height = Math.round(clientHeight * scale);
    if (width === 0) return;
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = hatch(context, palette.unobserved, palette.ground);
    context.fillRect(0, 0, width, height);
    const patterns = {
      suspected: hatch(context, palette.colours.get("suspected"), palette.ground),
      pending: hatch(context, palette.colours.get("pending"), palette.ground),
    };
    const paint = (key) => patterns[key] ?? palette.colours.get(key);
    const x = (ns) => Math.round(width * (1 - (endNs - ns) / widthNs));
    if (goneUntilNs !== null) context.clearRect(0, 0, x(goneUntilNs), height);
    for (const { point, start, end } of this.points) {
      const left = Math.max(0, x(start));
      const right = Math.max(x(end), left + 1);
      if (right > 0 && point.observed_ns > 0) {
        this.#drawTick(context, point, { left, right, height, scale, paint });
      }
    }
  }

  #drawTick(context, point, { left, right, height, scale, paint }) {
    const mark = Math.round(MARK_HEIGHT * scale);
    const parts = partsOf(point);
    const whole = Math.max(point.observed_ns, sumOf(parts));
    const room = height - mark - scale;
    let bottom = height;
    let drawn = 0;
    for (const { key } of PARTS) {
      if (!parts[key]) continue;
      drawn += parts[key];
      const top = Math.round(height - (room * drawn) / whole);
      context.fillStyle = paint(key);
      context.fillRect(left, top, right - left, bottom - top);
      bottom = top;
    }
    // The strip above the lane: here the GPU went hungry.
    const hungry = point.starved_ns + point.suspected_ns;
    context.clearRect(left, 0, right - left, mark + scale);
    if (hungry >= 0.05 * whole) {
      context.fillStyle = paint(point.starved_ns >= point.suspected_ns ? "input_wait" : "suspected");
      context.fillRect(left, 0, right - left, mark);
    }
  }

  #describe(offsetX) {
    const atNs = this.endNs - this.widthNs * (1 - offsetX / this.canvas.clientWidth);
    const point = this.points.find(({ start, end }) => end >= atNs && start <= atNs)?.point;
    const ago = `${roughly(Math.max(0, this.endNs - atNs))} ago`;
    if (!point) {
      this.readout.textContent = `${ago}: ${this.#why(atNs)}`;
      return;
    }
    const parts = partsOf(point);
    const whole = sumOf(parts);
    const shares = PARTS.filter(({ key }) => parts[key] > 0.005 * whole)
      .sort((a, b) => parts[b.key] - parts[a.key])
      .map(({ key }) => `${LABELS.get(key)} ${share(parts[key], whole)}`);
    this.readout.textContent = `${ago}: ${shares.join(", ")}`;
  }

  // Why there is no data at a time.
  #why(atNs) {
    if (this.goneUntilNs !== null && atNs < this.goneUntilNs) return "no longer kept";
    return atNs > (this.points.at(-1)?.end ?? Infinity) ? "not observed yet" : "not observed";
  }
}
