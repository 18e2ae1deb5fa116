// The training runs, and the GPUs that each is on.

import { Children, copyOf, element, setAttribute, setText, showText } from "/dom.js";
import { roughly } from "/figures.js";

export class Runs {
  constructor(target, onChoose) {
    this.target = target;
    this.list = new Children(target, (run) => `${run.run} ${run.pid}`, () => this.#make(), (row, run) => this.#update(row, run));
    this.onChoose = onChoose;
  }

  draw(view) {
    this.labels = new Map(view.gpus.map((gpu) => [gpu.label, gpu.uuid]));
    this.list.draw([...view.runs].sort((a, b) => b.alive - a.alive));
    element("run-table").hidden = view.runs.length === 0;
    element("no-runs").hidden = view.runs.length > 0;
  }

  show(run) {
    for (const { whole, name } of this.list.values()) {
      if (name.textContent !== run) continue;
      whole.scrollIntoView({ block: "nearest" });
      name.focus();
      return;
    }
  }

  #make() {
    const { whole, part } = copyOf(element("run-template"));
    const names = ["name", "phase", "epoch", "steps", "wall", "framework", "pid", "why"];
    const row = { whole, ...Object.fromEntries(names.map((name) => [name, part(name)])) };
    row.gpus = new Children(part("gpus"), (label) => label, () => this.#makeLink(), ({ whole: link }, label) => {
      setText(link, `GPU ${label}`);
      link.disabled = !this.labels.has(label);
    });
    return row;
  }

  #makeLink() {
    const whole = document.createElement("button");
    whole.type = "button";
    whole.className = "link";
    whole.addEventListener("click", () => this.onChoose(this.labels.get(whole.textContent.slice(4))));
    return { whole };
  }

  #update(row, run) {
    row.whole.classList.toggle("ended", !run.alive);
    setText(row.name, run.run);
    setText(row.phase, run.phase_text ?? run.phase ?? "");
    row.gpus.draw(run.gpus);
    setText(row.epoch, run.epoch === null ? "–" : String(run.epoch + 1));
    setText(row.steps, String(run.steps));
    setText(row.wall, roughly(1e9 * run.wall_seconds));
    setText(row.framework, run.framework ?? "");
    setText(row.pid, String(run.pid));
    showText(row.why, run.held_up_text ?? "");
    setAttribute(row.whole, "data-run", run.run);
  }
}
