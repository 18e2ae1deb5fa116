// The figures as tables: for eyes that want numbers, and for screen readers.

import { duration, gpuTime, inUnitOf, partsInUnitOf, roughly, share } from "/figures.js";
import { partsOf } from "/lanes.js";
import { isLost, troubleWord } from "/troubles.js";
import { LABELS, PARTS, REASONS, boundInWords, gpuLabel, gpuTitle, hasTime, heldUpInWords, verdictWord, whomInWords } from "/words.js";

function make(tag, { text, className, ...attributes } = {}, ...children) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const swatch = (key) => make("span", { className: `swatch part-${key.replaceAll("_", "-")}`, "aria-hidden": "true" });

export function drawLegend(target, allPoints) {
  const seen = new Set(["busy"]);
  for (const points of allPoints) {
    for (const point of points) {
      for (const [key, ns] of Object.entries(partsOf(point))) if (ns > 0) seen.add(key);
    }
  }
  const keys = PARTS.filter(({ key }) => seen.has(key)).map(({ key }) => key);
  if (target.dataset.keys === keys.join()) return;
  target.dataset.keys = keys.join();
  const items = keys.map((key) => make("li", {}, swatch(key), LABELS.get(key)));
  items.push(make("li", {}, make("span", { className: "swatch unobserved", "aria-hidden": "true" }), "not observed"));
  target.replaceChildren(...items);
}

const LEAST_SHOWN = 0.0005; // of the time observed: less says nothing

// Rows of one GPU: what was lost first, largest first; then the rest, and the sum.
function causeRows(gpu) {
  const { suspected_ns: suspected } = gpu;
  const idle = { ...gpu.idle_ns };
  if (suspected > 0) idle.unknown = (idle.unknown ?? 0) - suspected;
  const rows = Object.entries({ ...idle, suspected }).filter(([, ns]) => ns > 0);
  rows.sort((a, b) => (a[0] === "not_in_use") - (b[0] === "not_in_use") || b[1] - a[1]);
  if (gpu.pending_ns > 0) rows.push(["pending", gpu.pending_ns]);
  return [["busy", gpu.busy_ns], ...rows];
}

const KEPT = new Set(["busy", "pending", "not_in_use", "start_up"]);
const WORTH_A_MARK = 0.05;

function causeRow(key, ns, gpu, isMain) {
  const label = make("th", { scope: "row" }, swatch(key), LABELS.get(key) ?? key);
  if (isMain) label.append(make("span", { className: "main-mark", text: " ◀", role: "img", "aria-label": "main loss", title: "main loss" }));
  return make(
    "tr",
    { className: isMain ? "main" : "" },
    label,
    make("td", { text: inUnitOf(gpu.observed_ns, ns) }),
    make("td", { text: share(ns, gpu.observed_ns) }),
  );
}

// What is known of why that time was lost, the greatest reason first, and what is left of it. Within
// the step only the GIL is looked for.
function reasonRows(cause, causeNs, gpu) {
  const byReason = { input_wait: gpu.input_wait_by_reason_ns, within_step: gpu.within_step_by_reason_ns }[cause] ?? {};
  const parts = Object.entries(byReason).filter(([name]) => name !== "unknown").sort((a, b) => b[1] - a[1]);
  const leftNs = causeNs - parts.reduce((total, [, ns]) => total + ns, 0);
  parts.push(["unknown", Math.max(0, leftNs)]);
  const cells = partsInUnitOf(gpu.observed_ns, parts.map(([, ns]) => ns));
  if (!Object.keys(byReason).length || (cause === "within_step" && !cells.slice(0, -1).some(Boolean))) return [];
  return parts.flatMap(([name, ns], at) => (cells[at] === null ? [] : [make(
    "tr",
    { className: "reason" },
    make("th", { scope: "row", text: `for ${REASONS.get(name) ?? name}` }),
    make("td", { text: cells[at] }),
    make("td", { text: share(ns, gpu.observed_ns) }),
  )]));
}

function wordOf(gpu) {
  if (isLost(gpu)) return "lost";
  if (!gpu.present) return "not answering, last known";
  const trouble = troubleWord(gpu);
  return trouble ? `${trouble}, ${verdictWord(gpu)}` : verdictWord(gpu);
}

function causeTable(gpu) {
  const rows = causeRows(gpu);
  const sum = rows.reduce((total, [, ns]) => total + ns, 0);
  const shown = rows.filter(([key, ns]) => key === "busy" || ns >= LEAST_SHOWN * gpu.observed_ns);
  const lost = rows.find(([key, ns]) => !KEPT.has(key) && ns >= WORTH_A_MARK * gpu.in_use_ns);
  const head = make(
    "tr",
    {},
    make("th", { scope: "col", text: "time went to" }),
    make("th", { scope: "col", text: "time" }),
    make("th", { scope: "col", text: "of observed" }),
  );
  const closes = sum === gpu.observed_ns;
  const foot = make(
    "tr",
    { className: closes ? "sum" : "sum open" },
    make("th", { scope: "row", text: closes ? "sum = observed" : "sum, observed is another" }),
    make("td", { text: inUnitOf(gpu.observed_ns, gpu.observed_ns) }),
    make("td", { text: share(sum, gpu.observed_ns) }),
  );
  return make(
    "table",
    { className: "causes" },
    make("caption", { text: `${gpuTitle(gpu)}: ${wordOf(gpu)}` }),
    make("thead", {}, head),
    make("tbody", {}, ...shown.flatMap(([key, ns]) => [causeRow(key, ns, gpu, lost?.[0] === key), ...reasonRows(key, ns, gpu)])),
    make("tfoot", {}, foot),
  );
}

export function drawCauses(target, gpus) {
  target.replaceChildren(...gpus.filter(hasTime).map(causeTable));
}

const RUN_TITLES = ["run", "now", "GPU", "epoch", "steps", "running for", "framework", "pid"];

function runRows(run, gpus) {
  const heldUp = heldUpInWords(run);
  if (heldUp === "") return [runRow(run, gpus)];
  const why = make("td", { colspan: RUN_TITLES.length, text: heldUp });
  return [runRow(run, gpus), make("tr", { className: "why" }, why)];
}

function runRow(run, gpus) {
  const part = (uuid) => (uuid in run.shares ? ` (${share(run.shares[uuid], 1)} of each batch)` : "");
  const known = (uuid) => gpus.find((gpu) => gpu.uuid === uuid);
  const label = (uuid) => (known(uuid) ? gpuLabel(known(uuid)) : uuid);
  const indices = run.gpus.map((uuid) => `${label(uuid)}${part(uuid)}`);
  indices.push(...(run.refused_gpus ?? []).map((uuid) => `${label(uuid)} (not counted: no process there is known to be its user's)`));
  const phase = run.alive ? (run.phase ?? "unknown") : "ended";
  const now = make("td", { "data-label": "now" }, swatch(run.alive ? run.phase ?? "unknown" : "not_in_use"), phase);
  const cell = (label, text) => make("td", { "data-label": label, text });
  return make(
    "tr",
    { className: run.alive ? "" : "ended" },
    make("th", { scope: "row", text: run.run }),
    now,
    cell("GPU", indices.join(", ") || "none yet"),
    cell("epoch", run.epoch === null ? "–" : String(run.epoch + 1)),
    cell("steps", String(run.steps)),
    cell("running for", roughly(1e9 * run.wall_seconds)),
    cell("framework", run.framework),
    cell("pid", String(run.pid)),
  );
}

export function drawRuns(target, state) {
  if (state.runs.length === 0) {
    const text =
      "No run has reported what it does. Add callbacks=[PhaseTagger()] to model.fit or to the Trainer of Lightning or Hugging Face, or timed(loader) and phase(\"train_step\") to a loop: idle time then gets its cause.";
    target.replaceChildren(make("p", { className: "quiet", text }));
    return;
  }
  const head = make("tr", {}, ...RUN_TITLES.map((text) => make("th", { scope: "col", text })));
  const rows = [...state.runs].sort((a, b) => b.alive - a.alive).flatMap((run) => runRows(run, state.gpus));
  target.replaceChildren(
    make("table", { className: "runs" }, make("thead", {}, head), make("tbody", {}, ...rows)),
  );
}

const CAUSES = new Map([...LABELS, ["first_input_wait", "waiting for the first batch"], ["under_filled", "low SM utilisation"], ["unseen_imbalance", "busy, but probably waiting"]]);

function adviceItem(advice) {
  const cause = CAUSES.get(advice.cause) ?? advice.cause;
  const time = (advice.gpus ?? []).length > 1 ? gpuTime : duration;
  const lost = advice.lost_seconds > 0 ? `${time(1e9 * advice.lost_seconds)} lost` : "";
  const facts = [cause, lost, boundInWords(advice)].filter((fact) => fact !== "").join(" · ");
  return make(
    "li",
    {},
    make("p", {}, make("b", { text: [whomInWords(advice), facts].filter((text) => text !== "").join(": ") })),
    make("p", { text: advice.text }),
    make("p", { className: "quiet", text: advice.evidence }),
  );
}

// Other improvements, the largest loss first.
export function drawAdvice(whole, list, allAdvice) {
  whole.hidden = allAdvice.length === 0;
  list.replaceChildren(...allAdvice.map(adviceItem));
}

export function drawNotes(target, notes) {
  target.hidden = notes.length === 0;
  target.replaceChildren(...notes.map((note) => make("li", {}, note)));
}
