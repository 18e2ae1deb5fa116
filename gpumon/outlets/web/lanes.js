// The open lanes: the GPUs that need something, as many as fit, and those that a reader chose.

import { sumOf } from "/cells.js";
import { Children, copyOf, setAttribute, setText, showText } from "/dom.js";
import { drawCells } from "/drawing.js";
import { NBSP, gib, share } from "/figures.js";
import { Details } from "/details.js";
import { clockText } from "/window.js";

const FEW = 4; // on so few GPUs, all lanes are open
const STAYS_MS = 10_000; // an open lane closes when its GPU has been well for so long
const MOST = 6; // as many lanes open by themselves
const NEEDY = new Set(["bad", "warn"]);

// Which lanes are open.
export class Openings {
  #chosen = new Map(); // uuid -> whether a reader wants it open
  #needyUntil = new Map(); // uuid -> until when it counts as in need, in ms
  #open = new Set();
  #needs = ""; // the sizes and statuses on which it depends how many fit
  #most = MOST;

  // As many as fit by themselves, until one more is too many: asked after each drawing.
  areTooMany(bottomOf) {
    const count = this.opened.length;
    if (this.isSmall || count < 2 || bottomOf(this.opened.at(-1)) <= innerHeight) return false;
    this.#most = count - 1;
    return true;
  }

  toggle(uuid) {
    this.#chosen.set(uuid, !this.#open.has(uuid));
  }

  open(uuid) {
    this.#chosen.set(uuid, true);
  }

  isOpen(uuid) {
    return this.#open.has(uuid);
  }

  // The GPUs whose lanes are open, in their order.
  take(gpus, nowMs) {
    const here = new Set(gpus.map(({ uuid }) => uuid));
    for (const known of [this.#chosen, this.#needyUntil]) {
      for (const uuid of known.keys()) if (!here.has(uuid)) known.delete(uuid);
    }
    for (const { uuid, status } of gpus) {
      if (!NEEDY.has(status.tone)) continue;
      if (!this.#isNeedy(uuid, nowMs)) this.#chosen.delete(uuid); // a new need opens it again
      this.#needyUntil.set(uuid, nowMs + STAYS_MS);
    }
    this.isSmall = gpus.length <= FEW;
    const wanted = gpus.filter(({ uuid }) => this.isSmall || this.#isNeedy(uuid, nowMs));
    const needs = [innerWidth, innerHeight, document.body.className, ...wanted.map(({ uuid, status }) => `${uuid} ${status.key}`).sort()].join();
    if (needs !== this.#needs) [this.#needs, this.#most] = [needs, MOST];
    this.opened = wanted.slice(0, this.isSmall ? FEW : this.#most).map(({ uuid }) => uuid);
    this.#open = new Set(this.opened);
    for (const [uuid, isWanted] of this.#chosen) {
      if (isWanted) this.#open.add(uuid);
      else this.#open.delete(uuid);
    }
    return gpus.filter(({ uuid }) => this.#open.has(uuid));
  }

  #isNeedy(uuid, nowMs) {
    return this.#needyUntil.get(uuid) > nowMs;
  }
}

export class Lanes {
  #shown = null; // what was drawn last
  #cursorS = null;
  #markedS = null; // the other end of a marked span

  constructor(target, template, paint, actions) {
    Object.assign(this, { target, paint, actions });
    this.list = new Children(target, (gpu) => gpu.uuid, () => this.#make(template), (lane, gpu) => this.#update(lane, gpu));
  }

  // shown: the view, its open GPUs, the window, and cellsOf, gapsOf, runAt, levelsOf of a GPU.
  draw(shown) {
    this.#shown = { ...shown, advised: new Map() };
    this.list.draw(shown.gpus);
    for (const gpu of shown.gpus) this.#drawPlot(this.list.get(gpu.uuid), gpu);
    this.#drawCursor();
  }

  // Which advice is beside an open lane.
  get advised() {
    return this.#shown?.advised ?? new Map();
  }

  // Which parts of time and which gaps can be seen.
  get seen() {
    const { window } = this.#shown;
    const [parts, gaps] = [new Set(["busy"]), new Set()];
    for (const lane of this.list.values()) {
      for (const cell of lane.cells) {
        if (cell.endS > window.fromS && cell.startS < window.toS) Object.keys(cell.parts).forEach((part) => parts.add(part));
      }
      for (const { kind } of lane.gaps) gaps.add(kind);
    }
    return [parts, gaps];
  }

  bottomOf(uuid) {
    return (this.list.get(uuid)?.whole.getBoundingClientRect().bottom ?? 0) + scrollY;
  }

  focus(uuid) {
    const lane = this.list.get(uuid);
    lane?.plot.focus();
    lane?.whole.scrollIntoView({ block: "nearest" });
  }

  #make(template) {
    const { whole, part } = copyOf(template);
    const names = ["gpu", "name", "shape", "word", "since", "cause", "figures", "line", "user", "of-user", "command", "pid", "of-runs", "who", "plot", "cursor", "marked", "readout", "hint", "seen", "close"];
    const lane = { whole, ...Object.fromEntries(names.map((name) => [name, part(name)])) };
    lane.canvas = lane.plot.querySelector("canvas");
    lane.advice = new Children(part("advice"), (one) => one.key, makeAdvice, updateAdvice);
    lane.runs = new Children(part("runs-of"), (run) => run, () => makeRun(this.actions), updateRun);
    lane.details = new Details(part("details"), part("open-details"), this.paint, this.actions.redraw);
    lane.close.addEventListener("click", () => this.actions.close(lane.uuid));
    this.#listen(lane);
    return lane;
  }

  #update(lane, gpu) {
    const { advised } = this.#shown;
    lane.uuid = gpu.uuid;
    setAttribute(lane.whole, "data-tone", gpu.status.tone);
    setAttribute(lane.whole, "aria-label", `GPU ${gpu.label}`);
    setText(lane.gpu, `GPU ${gpu.label}`);
    setText(lane.name, gpu.name ?? "");
    setText(lane.shape, gpu.status.shape);
    setText(lane.word, gpu.status.word);
    showText(lane.since, gpu.since_text);
    showText(lane.cause, causeOf(gpu));
    setText(lane.figures, figuresOf(gpu));
    showText(lane.line, gpu.line);
    showText(lane.hint, gpu.line.includes(gpu.hint) ? "" : gpu.hint);
    const files = gpu.seen_files.length > 0 ? `Files: ${gpu.seen_files.join(", ")}.` : "";
    showText(lane.seen, `${gpu.seen_text} ${files}`.trim());
    updateWho(lane, gpu);
    lane.runs.draw(gpu.runs);
    lane.advice.draw(adviceOf(gpu, this.#shown.view, advised));
  }

  #drawPlot(lane, gpu) {
    const { window, cellsOf, gapsOf, nowS } = this.#shown;
    lane.cells = cellsOf(gpu.uuid);
    // A GPU without data of its own is watched all the same.
    const hasOwnData = !["partitioned", "no_data"].includes(gpu.status.key);
    lane.gaps = hasOwnData ? gapsOf(gpu.uuid) : [];
    drawCells(lane.canvas, lane.cells, window, lane.gaps, this.paint);
    setAttribute(lane.plot, "aria-label", `GPU ${gpu.label}`);
    setAttribute(lane.plot, "aria-valuemin", Math.round(window.fromS));
    setAttribute(lane.plot, "aria-valuemax", Math.round(window.fromS) + Math.round(window.toS - window.fromS));
    setAttribute(lane.plot, "aria-valuenow", Math.round(this.#cursorS ?? window.toS));
    setAttribute(lane.plot, "aria-valuetext", this.#textAt(lane, this.#cursorS ?? nowS));
    lane.details.draw(gpu, this.#shown);
  }

  // --- the cursor: one moment in all lanes -------------------------------------------------------

  #listen(lane) {
    const { plot } = lane;
    const atS = (event) => {
      const { fromS, toS } = this.#shown.window;
      const { left, width } = plot.getBoundingClientRect();
      return fromS + ((toS - fromS) * Math.min(width, Math.max(0, event.clientX - left))) / width;
    };
    plot.addEventListener("pointermove", (event) => this.#setCursor(atS(event)));
    plot.addEventListener("pointerleave", () => {
      if (this.#markedS === null) this.#setCursor(null);
    });
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      plot.setPointerCapture(event.pointerId);
      this.#markedS = atS(event);
      this.#setCursor(this.#markedS);
    });
    plot.addEventListener("pointerup", () => this.#choose(5 / plot.clientWidth));
    plot.addEventListener("pointercancel", () => this.#unmark());
    plot.addEventListener("keydown", (event) => this.#onKey(lane, event));
    plot.addEventListener("focus", () => plot.matches(":focus-visible") && this.#setCursor(this.#cursorS ?? this.#shown.window.toS));
  }

  #onKey(lane, event) {
    const { fromS, toS } = this.#shown.window;
    const stepS = (toS - fromS) / (event.key.startsWith("Page") ? 10 : 120);
    const nowS = this.#cursorS ?? toS;
    const target = {
      ArrowLeft: nowS - stepS, ArrowRight: nowS + stepS, ArrowDown: nowS - stepS, ArrowUp: nowS + stepS,
      PageDown: nowS - stepS, PageUp: nowS + stepS, Home: fromS, End: toS,
    }[event.key];
    if (target !== undefined) {
      if (event.shiftKey) this.#markedS ??= nowS;
      else this.#markedS = null;
      this.#setCursor(Math.min(toS, Math.max(fromS, target)));
    } else if (event.key === "Enter") this.#choose(0);
    else if (event.key === "Escape") {
      if (this.#markedS === null && this.#cursorS === null) this.actions.live();
      this.#unmark();
      this.#setCursor(null);
    } else return;
    event.preventDefault();
  }

  #unmark() {
    this.#markedS = null;
    this.#drawCursor();
  }

  // Shows the marked span, if it is more than a click.
  #choose(leastRatio) {
    const { fromS, toS } = this.#shown.window;
    const ends = [this.#markedS, this.#cursorS];
    this.#unmark();
    if (ends.includes(null)) return;
    const lengthS = Math.abs(ends[1] - ends[0]);
    if (lengthS > leastRatio * (toS - fromS) && lengthS >= 1) {
      this.actions.span(Math.min(...ends), Math.max(...ends));
    }
  }

  #setCursor(atS) {
    this.#cursorS = atS;
    this.#drawCursor();
  }

  #drawCursor() {
    if (this.#shown === null) return;
    const { fromS, toS } = this.#shown.window;
    const inWindow = this.#cursorS !== null && this.#cursorS >= fromS && this.#cursorS <= toS;
    const place = (atS) => `${(100 * (atS - fromS)) / (toS - fromS)}%`;
    for (const lane of this.list.values()) {
      lane.cursor.hidden = !inWindow;
      lane.marked.hidden = !inWindow || this.#markedS === null;
      if (!inWindow) {
        setText(lane.readout, "");
        continue;
      }
      lane.cursor.style.left = place(this.#cursorS);
      if (this.#markedS !== null) {
        const [first, last] = [this.#markedS, this.#cursorS].sort((a, b) => a - b);
        lane.marked.style.left = place(Math.max(fromS, first));
        lane.marked.style.width = `${(100 * (last - Math.max(fromS, first))) / (toS - fromS)}%`;
      }
      const text = this.#textAt(lane, this.#cursorS);
      setText(lane.readout, text);
      setAttribute(lane.plot, "aria-valuetext", text);
      setAttribute(lane.plot, "aria-valuenow", Math.round(this.#cursorS));
    }
  }

  // What was true there.
  #textAt(lane, atS) {
    const { nowS, runAt } = this.#shown;
    const time = `${clockText(atS, { nowS })}${NBSP}UTC`;
    const run = runAt(lane.uuid, atS);
    return [`${time}: ${this.#whatAt(lane, atS)}`, ...(run === null ? [] : [run])].join(" · ");
  }

  #whatAt({ cells, gaps }, atS) {
    const cell = cells.find(({ startS, endS, observedS }) => startS <= atS && atS <= endS && observedS > 0);
    if (cell === undefined) {
      const gap = gaps.findLast(({ startS, endS }) => startS <= atS && atS < endS);
      return this.paint.gaps.get(gap?.kind ?? "not_yet");
    }
    const whole = sumOf(cell.parts);
    return this.paint.parts
      .filter((part) => cell.parts[part] > 0.005 * whole)
      .sort((a, b) => cell.parts[b] - cell.parts[a])
      .map((part) => `${this.paint.words.get(part)} ${share(cell.parts[part], whole)}`)
      .join(", ");
  }
}

const causeOf = ({ cause_text: cause, reason_text: reason }) => (reason === "" ? cause : `${cause}: ${reason}`);

function figuresOf(gpu) {
  const figures = [];
  if (gpu.utilization_ratio !== null) figures.push(`${share(gpu.utilization_ratio, 1)} busy`);
  if (gpu.memory_used_bytes !== null) figures.push(gib(gpu.memory_used_bytes, gpu.memory_capacity_bytes));
  if (gpu.power_watts !== null) figures.push(`${Math.round(gpu.power_watts)}${NBSP}W`);
  if (gpu.temperature_celsius !== null) figures.push(`${Math.round(gpu.temperature_celsius)}${NBSP}°C`);
  return figures.join(" · ");
}

// Whose it is: its holder, else its process with the most memory, which comes first.
function updateWho(lane, gpu) {
  const known = gpu.user === null ? null : { user: gpu.user }; // of a lost GPU
  const who = gpu.held_by ?? gpu.processes?.[0] ?? known;
  lane.who.hidden = who === null && gpu.runs.length === 0;
  setText(lane.user, who?.user ?? "");
  lane["of-user"].hidden = !who?.user;
  showText(lane.command, who?.command ?? "");
  showText(lane.pid, who?.pid === undefined ? "" : `pid${NBSP}${who.pid}`);
  lane["of-runs"].hidden = gpu.runs.length === 0;
}

// What to do about a GPU: what the view names first, and what its troubles need. What an open lane
// above it shows is only named; the report's other advice is below the lanes.
function adviceOf(gpu, view, advised) {
  const first = gpu.first_advice;
  const shown = gpu.troubles
    .filter(({ severity, advice }) => severity !== "none" && advice !== "" && !begins(first, advice))
    .map(({ short_name: key, advice: text }) => ({ key, text }));
  if (first === "") return shown;
  const place = gpu.advice.find((at) => begins(first, view.advice[at].text));
  const above = advised.get(place) ?? gpu.label;
  if (place !== undefined) advised.set(place, above);
  return [{ key: "first", text: above === gpu.label ? first : `As for GPU ${above}.` }, ...shown];
}

const begins = (text, start) => text.toLowerCase().startsWith(start.toLowerCase());

export function makeAdvice() {
  const whole = document.createElement("li");
  const [heading, text, evidence] = ["b", "span", "small"].map((tag) => document.createElement(tag));
  whole.append(heading, " ", text, " ", evidence);
  return { whole, heading, text, evidence };
}

export function updateAdvice(item, { heading = "", text, evidence = "" }) {
  showText(item.heading, heading);
  setText(item.text, text);
  showText(item.evidence, evidence);
}

function makeRun(actions) {
  const whole = document.createElement("button");
  whole.type = "button";
  whole.className = "link";
  whole.addEventListener("click", () => actions.showRun(whole.textContent));
  return { whole };
}

function updateRun({ whole }, run) {
  setText(whole, run);
}
