// Draws cells: time from left to right, each cell stacked by what its seconds were for.

const hatches = {
  slanted: [6, 2, (pen) => [-6, 0, 6].forEach((shift) => line(pen, shift - 1, 7, shift + 7, -1))],
  dotted: [7, 2, (pen) => line(pen, 3, 3, 5, 3)],
  upright: [6, 2, (pen) => line(pen, 3, -1, 3, 7)],
};

function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function pattern([size, width, strokes], colour, ground) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  strokes(pen);
  return pen.createPattern(tile, "repeat");
}

// The parts of time with their words, as the legend has them from the daemon, and their colours.
export class Paint {
  constructor(legend) {
    const words = (name) =>
      new Map([...legend.querySelectorAll(`[data-${name}]`)].map((item) => [item.dataset[name], item.textContent.trim()]));
    this.legend = legend;
    this.words = words("part");
    this.parts = [...this.words.keys()];
    this.reasons = words("reason");
    this.gaps = words("gap");
    this.renew();
  }

  // Shows in the legend what can be seen in the lanes.
  show(parts, gaps) {
    for (const item of this.legend.children) {
      const { part, gap } = item.dataset;
      item.hidden = !(parts.has(part) || gaps.has(gap));
    }
  }

  // The colours of the scheme that is on now.
  renew() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const ground = colour("paper");
    const unobserved = colour("unobserved");
    this.ground = ground;
    this.line = colour("text");
    this.fills = new Map(this.parts.map((part) => [part, colour(`part-${part.replaceAll("_", "-")}`)]));
    for (const part of ["suspected", "pending"]) {
      this.fills.set(part, pattern(hatches.slanted, this.fills.get(part), ground));
    }
    this.unseen = new Map([
      ["not_watched", pattern(hatches.slanted, unobserved, ground)],
      ["not_kept", pattern(hatches.dotted, unobserved, ground)],
      ["not_running", pattern(hatches.upright, unobserved, ground)],
    ]);
  }
}

// Fits a canvas to its place on the screen; null where it has none.
function penOf(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * scale);
  const height = Math.round(canvas.clientHeight * scale);
  if (width === 0 || height === 0) return null;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, width, height);
  return { pen, width, height, scale };
}

const FULL = 0.9; // so much of a cell counts as all of it: samples come a little unevenly

// full: a cell observed to this ratio is drawn as if it were whole.
export function drawCells(canvas, cells, window, gaps, paint, full = FULL) {
  const fitted = penOf(canvas);
  if (fitted === null) return;
  const { pen, width, height } = fitted;
  const { fromS, toS } = window;
  const x = (atS) => Math.round((width * (atS - fromS)) / (toS - fromS));
  for (const { kind, startS, endS } of gaps) {
    const left = Math.max(0, x(startS));
    pen.fillStyle = paint.unseen.get(kind);
    pen.fillRect(left, 0, Math.min(width, x(endS)) - left, height);
  }
  for (const cell of cells) {
    if (cell.endS <= fromS || cell.startS >= toS || !(cell.observedS > 0)) continue;
    const left = Math.max(0, x(cell.startS));
    const right = Math.min(width, Math.max(x(cell.endS), left + 1));
    drawCell(pen, cell, { left, right, height, full }, paint);
  }
}

function drawCell(pen, { parts, startS, endS, observedS }, { left, right, height, full }, paint) {
  const length = endS - startS;
  const whole = observedS >= full * length ? observedS : length;
  let bottom = height;
  let drawn = 0;
  for (const part of paint.parts) {
    if (!parts[part]) continue;
    drawn += parts[part];
    const top = Math.max(0, Math.round(height * (1 - drawn / whole)));
    pen.fillStyle = paint.fills.get(part);
    pen.fillRect(left, top, right - left, bottom - top);
    bottom = top;
  }
}

// A line of values; a hole where there is none.
export function drawLevels(canvas, levels, window, top, paint) {
  const fitted = penOf(canvas);
  if (fitted === null) return;
  const { pen, width, height, scale } = fitted;
  pen.strokeStyle = paint.line;
  pen.lineWidth = scale;
  pen.beginPath();
  let isDown = false;
  levels.values.forEach((value, at) => {
    const atS = levels.fromS + (at + 0.5) * levels.cellS;
    const x = (width * (atS - window.fromS)) / (window.toS - window.fromS);
    if (value === null || x < 0 || x > width) {
      isDown = false;
      return;
    }
    const y = height - scale - ((height - 2 * scale) * value) / top;
    if (isDown) pen.lineTo(x, y);
    else pen.moveTo(x, y);
    isDown = true;
  });
  pen.stroke();
}
