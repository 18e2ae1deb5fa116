// The cards of the GPUs, with a lane each: the worst first, and where there are many, those that
// are well folded to a line.

import { duration, share } from "/figures.js";
import { Lane, partsOf, sumOf, windowNs } from "/lanes.js";
import { Order, WELL } from "/order.js";
import { hasTrouble, isBroken, isLost } from "/troubles.js";
import { gpuFigures, gpuLine, gpuName, gpuTitle, hasTime, isUnderFilled, migSentence, verdictNow } from "/words.js";

const MOST_UNFOLDED = 4;
const MINUTE_NS = 60e9;

export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export class Cards {
  #order = new Order();
  #cards = new Map(); // uuid -> its parts of the page

  constructor(target, template, onToggle) {
    this.target = target;
    this.template = template;
    this.onToggle = onToggle;
  }

  // Gives the GPUs in the order in which they are shown.
  draw(state, history, palette) {
    const gpus = this.#order.take(state.gpus, state.monotonic_ns);
    const uuids = new Set(gpus.map((gpu) => gpu.uuid));
    for (const [uuid, card] of this.#cards) {
      if (uuids.has(uuid)) continue;
      card.whole.remove();
      this.#cards.delete(uuid);
    }
    for (const { uuid } of gpus) {
      if (!this.#cards.has(uuid)) this.#cards.set(uuid, this.#make());
    }
    this.#place(gpus);
    for (const gpu of gpus) {
      const card = this.#cards.get(gpu.uuid);
      fold(card, gpus.length > MOST_UNFOLDED && this.#order.rank(gpu.uuid) >= WELL);
      drawHead(card, gpu, state.gpus);
    }
    this.#drawLanes(state, history, palette);
    return gpus;
  }

  isOpen({ uuid }) {
    return this.#cards.get(uuid).whole.open;
  }

  #make() {
    const whole = this.template.content.firstElementChild.cloneNode(true);
    const part = (name) => whole.querySelector(`.${name}`);
    const canvas = part("lane");
    whole.addEventListener("toggle", this.onToggle);
    return {
      whole, canvas, name: part("gpu-name"), line: part("gpu-line"), figures: part("figures"),
      from: part("from"), lane: new Lane(canvas, part("readout")), seen: part("seen"),
      isFolded: null,
    };
  }

  // A card that is moved would lose the keyboard's focus.
  #place(gpus) {
    const focused = document.activeElement;
    gpus.forEach(({ uuid }, place) => {
      const { whole } = this.#cards.get(uuid);
      const there = this.target.children[place];
      if (there !== whole) this.target.insertBefore(whole, there ?? null);
    });
    if (focused !== document.activeElement) focused.focus({ preventScroll: true });
  }

  #drawLanes(state, history, palette) {
    const endNs = state.monotonic_ns;
    const pointsOf = (gpu) => history.points.get(gpu.uuid) ?? [];
    // One window for all lanes: what is above each other happened together.
    const widths = state.gpus.map((gpu) => windowNs(pointsOf(gpu), history.keptNs));
    const view = { endNs, widthNs: Math.max(...widths), goneUntilNs: history.goneUntilNs, palette };
    for (const gpu of state.gpus) {
      const card = this.#cards.get(gpu.uuid);
      if (card.whole.open) drawLane(card, gpu, pointsOf(gpu), view);
    }
  }
}

// Only when it begins to be right or wrong: what a user opened or closed stays so.
function fold(card, isFolded) {
  if (card.isFolded === isFolded) return;
  card.isFolded = isFolded;
  card.whole.open = !isFolded;
}

function drawHead(card, gpu, gpus) {
  const { whole } = card;
  whole.dataset.verdict = gpu.present && !isBroken(gpu) ? verdictNow(gpu) : "absent";
  setText(card.name, gpuTitle(gpu));
  setText(card.line, migSentence(gpu, gpus) ?? gpuLine(gpu));
  whole.classList.toggle("bare", !hasTime(gpu));
  whole.classList.toggle("empty", isUnderFilled(gpu) || hasTrouble(gpu));
  whole.classList.toggle("part", gpu.parent_uuid != null);
  setText(card.figures, gpu.present ? gpuFigures(gpu) : "");
  setText(card.seen, seenText(gpu));
  card.seen.hidden = !gpu.seen_text;
}

function seenText(gpu) {
  const files = gpu.seen_files?.length ? `Files: ${gpu.seen_files.join(", ")}.` : "";
  return `${gpu.seen_text ?? ""} ${files}`.trim();
}

function drawLane(card, gpu, points, view) {
  const { endNs, widthNs } = view;
  const stretch = widthNs % MINUTE_NS === 0 ? `${widthNs / MINUTE_NS} min` : duration(widthNs);
  setText(card.from, `${stretch} ago`);
  const shown = points.filter((point) => point.end_ns > endNs - widthNs);
  const whole = shown.reduce((sum, point) => sum + sumOf(partsOf(point)), 0);
  const busy = shown.reduce((sum, point) => sum + point.busy_ns, 0);
  const hungry = shown.reduce((sum, point) => sum + point.starved_ns + point.suspected_ns, 0);
  card.canvas.setAttribute(
    "aria-label",
    `${gpuName(gpu)}${isLost(gpu) ? ", lost now" : ""}, last ${stretch}: busy ${share(busy, whole)}, starved or suspected ${share(hungry, whole)}. The table below has the figures.`,
  );
  card.lane.draw(points, view);
}
