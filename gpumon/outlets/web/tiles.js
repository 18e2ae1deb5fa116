// The grid of all GPUs: a tile each, in the order of their numbers, which never changes.

import { cellsOfParts } from "/cells.js";
import { Children, copyOf, setAttribute, setText, showText } from "/dom.js";
import { drawCells } from "/drawing.js";
import { share } from "/figures.js";

const MOST_WITH_SPARKS = 24; // the tiles of more have one line
const byNumber = new Intl.Collator("en", { numeric: true });

export class Tiles {
  constructor(target, template, paint, onChoose) {
    this.paint = paint;
    this.list = new Children(target, (gpu) => gpu.uuid, () => this.#make(template, onChoose), update);
    target.addEventListener("keydown", (event) => moveFocus(target, event));
  }

  draw(view) {
    const gpus = [...view.gpus].sort((a, b) => byNumber.compare(a.label, b.label));
    this.list.draw(gpus);
    const isDense = gpus.length > MOST_WITH_SPARKS;
    this.list.target.classList.toggle("dense", isDense);
    if (!isDense) for (const gpu of gpus) this.#drawSpark(this.list.get(gpu.uuid), gpu);
  }

  mark(isOpen) {
    for (const { button, uuid } of this.list.values()) setAttribute(button, "aria-expanded", isOpen(uuid));
  }

  focus(uuid) {
    this.list.get(uuid)?.button.focus();
  }

  #make(template, onChoose) {
    const { whole, part } = copyOf(template);
    const names = ["gpu", "shape", "word", "busy", "spark", "who"];
    const tile = { whole, button: part("tile"), ...Object.fromEntries(names.map((name) => [name, part(name)])) };
    tile.button.addEventListener("click", () => onChoose(tile.uuid));
    return tile;
  }

  #drawSpark(tile, { cells }) {
    const { start_seconds: startS, cell_seconds: cellS, parts } = cells;
    const count = Math.max(0, ...Object.values(parts).map((seconds) => seconds.length));
    const window = { fromS: startS, toS: startS + count * cellS };
    drawCells(tile.spark, cellsOfParts(parts, window.fromS, cellS), window, [], this.paint, 0);
  }
}

function update(tile, gpu) {
  tile.uuid = gpu.uuid;
  setAttribute(tile.whole, "data-tone", gpu.status.tone);
  setText(tile.gpu, `GPU ${gpu.label}`);
  setText(tile.shape, gpu.status.shape);
  setText(tile.word, gpu.status.word);
  setText(tile.busy, gpu.utilization_ratio === null ? "–" : share(gpu.utilization_ratio, 1));
  showText(tile.who, gpu.held_by?.user ?? gpu.user ?? "");
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// Arrow keys go from tile to tile, as far as the grid goes.
function moveFocus(target, event) {
  const step = STEPS[event.key];
  const buttons = [...target.querySelectorAll(".tile")];
  const at = buttons.indexOf(document.activeElement);
  if (!step || at < 0) return;
  const columns = getComputedStyle(target).gridTemplateColumns.split(" ").length;
  buttons[at + step[0] + step[1] * columns]?.focus();
  event.preventDefault();
}
