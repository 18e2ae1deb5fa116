// One GPU on demand: its levels over the window, where its time went, and its processes.

import { Children, copyOf, element, setAttribute, setText, showText } from "/dom.js";
import { drawLevels } from "/drawing.js";
import { NBSP, gib, inUnitOf, partsInUnitOf, share } from "/figures.js";

const WATTS = (value) => `${Math.round(value)}${NBSP}W`;
const MEGAHERTZ = (value) => `${Math.round(value / 1e6)}${NBSP}MHz`;
const LEVELS = [
  { key: "busy", title: "busy", most: () => 1, text: (value) => share(value, 1), now: (gpu) => gpu.utilization_ratio },
  { key: "memory_used_bytes", title: "memory", most: (gpu) => gpu.memory_capacity_bytes, text: (value) => gib(value), now: (gpu) => gpu.memory_used_bytes },
  { key: "power_watts", title: "power", most: (gpu) => gpu.power_limit_watts, text: WATTS, now: (gpu) => gpu.power_watts },
  { key: "sm_clock_hertz", title: "SM clock", most: () => null, text: MEGAHERTZ, now: (gpu) => gpu.sm_clock_hertz },
  { key: "temperature_celsius", title: "temperature", most: () => 100, text: (value) => `${Math.round(value)}${NBSP}°C`, now: (gpu) => gpu.temperature_celsius },
];

export class Details {
  constructor(whole, button, paint, onToggle) {
    Object.assign(this, { whole, paint });
    button.addEventListener("click", () => {
      whole.hidden = !whole.hidden;
      setAttribute(button, "aria-expanded", !whole.hidden);
      onToggle();
    });
    this.levels = new Children(whole.querySelector(".levels"), ({ key }) => key, () => makeLevel(), () => {});
    this.times = new Children(whole.querySelector(".times tbody"), ({ key }) => key, (row) => makeTime(row), updateTime);
    this.processes = new Children(whole.querySelector(".processes tbody"), ({ pid }) => pid, makeProcess, updateProcess);
    this.note = whole.querySelector(".no-levels");
  }

  draw(gpu, { window, levelsOf }) {
    if (this.whole.hidden) return;
    this.levels.draw(LEVELS);
    let found = false;
    for (const { key, title, most, text, now } of LEVELS) {
      const chart = this.levels.get(key);
      const levels = levelsOf(gpu.uuid, key);
      found ||= levels !== null;
      setText(chart.title, title);
      const value = now(gpu);
      showText(chart.now, value === null || value === undefined ? "–" : text(value));
      chart.canvas.hidden = levels === null;
      if (levels === null) continue;
      const top = most(gpu) ?? Math.max(...levels.values.map((one) => one ?? 0));
      drawLevels(chart.canvas, levels, window, top || 1, this.paint);
    }
    this.note.hidden = found;
    this.times.draw(timesOf(gpu, this.paint));
    this.processes.draw(gpu.processes ?? []);
    this.whole.querySelector(".processes").hidden = !gpu.processes?.length;
  }
}

function makeLevel() {
  const { whole, part } = copyOf(element("level-template"));
  return { whole, title: part("title"), now: part("now"), canvas: part("level") };
}

// Where its time went since the start: what it lost most first, and the reasons below a cause.
function timesOf(gpu, paint) {
  const { observed_seconds: observed, busy_seconds: busy, pending_seconds: pending } = gpu;
  if (!(observed > 0)) return [];
  const row = (key, amount) => ({ key, part: key, word: paint.words.get(key) ?? key, time: inUnitOf(1e9 * observed, 1e9 * amount), share: share(amount, observed) });
  const rows = [["busy", busy], ...largestFirst(gpu.idle_by_cause), ["pending", pending]]
    .filter(([key, amount]) => key === "busy" || amount >= LEAST_SHOWN * observed)
    .flatMap(([key, amount]) => [row(key, amount), ...(key === "input_wait" ? reasonsOf(gpu, amount, paint) : [])]);
  return [...rows, { ...row("observed", observed), part: null }];
}

const LEAST_SHOWN = 0.0005; // of the time observed: less says nothing
const largestFirst = (amounts) => Object.entries(amounts).sort((a, b) => b[1] - a[1]);

// Rounded so that they add up to their cause as it stands there.
function reasonsOf({ observed_seconds: observed, input_wait_by_reason: byReason }, amount, paint) {
  const known = largestFirst(byReason).filter(([name]) => name !== "unknown");
  if (known.length === 0) return [];
  const left = Math.max(0, amount - known.reduce((sum, [, part]) => sum + part, 0));
  const parts = [...known, ["unknown", left]];
  const times = partsInUnitOf(1e9 * observed, parts.map(([, part]) => Math.round(1e9 * part)));
  return parts.flatMap(([name, part], at) =>
    times[at] === null ? [] : [{ key: `reason ${name}`, part: null, word: paint.reasons.get(name) ?? name, time: times[at], share: share(part, observed) }]);
}

function makeRow(columns) {
  const whole = document.createElement("tr");
  const cells = columns.map((tag) => document.createElement(tag));
  cells[0].scope = "row";
  whole.append(...cells);
  return { whole, cells };
}

function makeTime({ part }) {
  const row = makeRow(["th", "td", "td"]);
  const word = document.createElement("span");
  if (part === null) row.whole.className = "reason";
  else {
    const swatch = document.createElement("span");
    swatch.className = `swatch part-${part.replaceAll("_", "-")}`;
    row.cells[0].append(swatch);
  }
  row.cells[0].append(word);
  return { ...row, word };
}

function updateTime({ word, cells }, row) {
  setText(word, row.word);
  setText(cells[1], row.time);
  setText(cells[2], row.share);
}

function makeProcess() {
  return makeRow(["th", "td", "td", "td", "td"]);
}

function updateProcess({ cells }, { pid, user, command, memory_used_bytes: memory, sm_ratio: ratio }) {
  const texts = [String(pid), user ?? "–", command ?? "–", memory === null ? "–" : gib(memory), ratio === null ? "–" : share(ratio, 1)];
  texts.forEach((text, at) => setText(cells[at], text));
}
