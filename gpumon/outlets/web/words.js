// From numbers to what people read. Pure functions: no page, no clock.

import { NBSP, duration, share } from "/figures.js";
import { isLost, lostInWords, troubles } from "/troubles.js";

// Stacked from the bottom of a lane to its top; "busy", "suspected" and "pending" are no causes
// of the daemon's closed set, but parts of a lane all the same.
export const PARTS = [
  { key: "busy", label: "busy" },
  { key: "within_step", label: "within the step" },
  { key: "imbalance", label: "waiting for a slower GPU" },
  { key: "host_to_device", label: "copying to the GPU" },
  { key: "callbacks", label: "in callbacks" },
  { key: "validation", label: "during validation" },
  { key: "checkpoint", label: "during checkpoints" },
  { key: "compile", label: "while compiling" },
  { key: "start_up", label: "during start-up" },
  { key: "between_epochs", label: "between epochs" },
  { key: "input_wait", label: "waiting for input" },
  { key: "suspected", label: "suspected starvation" },
  { key: "unknown", label: "cause unknown" },
  { key: "pending", label: "pending" },
  { key: "not_in_use", label: "not in use" },
];

export const LABELS = new Map(PARTS.map((part) => [part.key, part.label]));

// How each reason reads after "because of" and after "due to".
export const REASONS = new Map(Object.entries({
  cpu_bound: "preprocessing",
  gil_bound: "the GIL",
  disk_bound: "the disk",
  network_bound: "the network",
  memory_pressure: "too little memory",
  latency_bound: "latency",
  unknown: "reasons unknown",
}));

const VERDICTS = {
  hanging: "hanging",
  not_in_use: "not in use",
  too_short_to_judge: "too short to judge",
  too_few_samples: "too few samples",
  healthy: "healthy",
  starved: "starved",
  stalled: "stalled",
  starvation_suspected: "starvation suspected",
  partial: "partly busy",
};

// Its verdict at present, else that on all its time.
export const verdictNow = (gpu) => gpu.now?.verdict ?? gpu.verdict;
const UNUSED = new Set(["not_in_use", "too_short_to_judge", "too_few_samples"]);
const word = (gpu, verdict) => (gpu.held && UNUSED.has(verdict) ? "held" : (VERDICTS[verdict] ?? verdict));
export const verdictWord = (gpu) => word(gpu, gpu.verdict);

// "starved since 14:03 UTC"
function wordNow(gpu) {
  const now = gpu.now?.suspended ? "suspended" : word(gpu, verdictNow(gpu));
  const since = (now === "held" ? gpu.held : gpu.now)?.since?.slice(11, 16);
  return since ? `${now} since ${since} UTC` : now;
}

// "0", and "0:1" for MIG instance 1 of GPU 0.
export const gpuLabel = (gpu) => gpu.label ?? String(gpu.index);
// One that has vanished is known by its UUID: another has its number by now.
const formerly = (gpu) => (gpu.listed === false && gpu.parent_uuid == null ? ` (${gpu.uuid.slice(0, 12)}…)` : "");
export const gpuName = (gpu) => `GPU ${gpuLabel(gpu)}${formerly(gpu)}`;
export const gpuTitle = (gpu) => (gpu.name ? `${gpuName(gpu)} ${gpu.name}` : gpuName(gpu));

// A MIG-partitioned GPU: its instances work; an instance without utilisation data is not idle.
const isCut = (gpu) => gpu.present && gpu.mig_enabled === true;
const isMute = (gpu) => gpu.present && gpu.parent_uuid != null && gpu.observed_ns === 0;
// Out of the machine, or an instance that a scheduler has destroyed: nothing fails.
export const isTakenAway = (gpu) => gpu.listed === false;
const isDiagnosable = (gpu) => !isCut(gpu) && !isMute(gpu);

// The sentence on such a GPU instead of figures; null: it has figures.
export function migSentence(gpu, gpus) {
  if (isMute(gpu)) {
    return "no utilisation data: only Hopper and newer boards report it for a MIG instance";
  }
  if (!isCut(gpu)) return null;
  return gpus.some((other) => other.parent_uuid === gpu.uuid)
    ? "MIG is on: its instances are below"
    : "MIG is on, and no instance has been created: nothing can run on it";
}

// Whether a GPU has time to show: one that was cut by MIG a while ago has.
export const hasTime = (gpu) => isDiagnosable(gpu) || gpu.observed_ns > 0;

export const isUnderFilled = (gpu) => gpu.fill?.under_filled === true;

function filling(gpu) {
  const { evidence, sm_active_ratio: active, power_watts: power, power_limit_watts: limit } = gpu.fill;
  if (evidence === "gpm") return `on average only ${share(active, 1)} of its multiprocessors had work`;
  const watts = `${Math.round(power)} of ${Math.round(limit)}${NBSP}W`;
  return `it drew only ${watts}, which suggests that few multiprocessors were active`;
}

const inList = (words) => [words.slice(0, -1).join(", "), words.at(-1)].filter(Boolean).join(" and ");

// Neighbours as a range: "0", "1" and "4–7".
function inSpans(labels) {
  const runs = [];
  for (const label of labels) {
    const run = runs.at(-1);
    if (run && /^\d+$/.test(label) && run.at(-1) === String(Number(label) - 1)) run.push(label);
    else runs.push([label]);
  }
  return runs.flatMap((run) => (run.length > 2 ? [`${run[0]}–${run.at(-1)}`] : run));
}

// Start-up comes before the time in use: it is no part of what was lost of it.
const OUT_OF_USE = new Set(["not_in_use", "start_up"]);

// The wait for the first batch is paid once, and is separate: no verdict rests on it.
function lost(gpu) {
  const { input_wait: waited = 0, ...others } = gpu.idle_ns;
  const { first_input_wait_ns: first = 0 } = gpu;
  const parts = { ...others, input_wait: waited - first, first_input_wait: first };
  return Object.entries(parts).filter(([cause, ns]) => ns > 0 && !OUT_OF_USE.has(cause));
}

export const lostNs = (gpu) => lost(gpu).reduce((sum, [, ns]) => sum + ns, 0);

const TITLES = new Map([["first_input_wait", "waiting for the first batch"]]);
const WORTH_A_WORD = 0.05;

// The greatest loss, and what else is worth a word: "checkpoint 14 % (9.0 s)".
function lossesInWords(gpu) {
  const parts = Object.fromEntries(lost(gpu));
  parts.suspected = gpu.suspected_ns;
  parts.unknown = (parts.unknown ?? 0) - gpu.suspected_ns;
  return Object.entries(parts)
    .filter(([, ns]) => ns > 0)
    .sort((a, b) => b[1] - a[1])
    .filter(([, ns], place) => place === 0 || ns >= WORTH_A_WORD * gpu.in_use_ns)
    .map(([key, ns]) => `${TITLES.get(key) ?? LABELS.get(key) ?? key} ${share(ns, gpu.in_use_ns)} (${duration(ns)})`);
}

function heldInWords({ fill }) {
  const by = fill.held_mostly_by ? `: ${fill.held_mostly_by.replaceAll("_", " ")}` : "";
  return `clocks reduced ${share(fill.held_ratio, 1)} of its busy time${by}`;
}

// How much faster at most; nothing where nothing is promised.
export function boundInWords({ speedup_upper_bound: bound, may_be_more: mayBeMore }) {
  if (!(bound > 1.005)) return "";
  const times = `${bound.toFixed(bound < 10 ? 2 : 0)} times as fast`;
  return mayBeMore ? `${times}, or more` : `at most ${times}`;
}

// What held a run up most, in the daemon's words; empty where that was not measured.
export function heldUpInWords({ reasons = [] }) {
  const [{ cause, seen } = {}] = reasons.filter((reason) => reason.seen);
  if (!seen) return "";
  const where = LABELS.get(cause) ?? cause;
  return `${where[0].toUpperCase()}${where.slice(1)}, because of ${seen}.`;
}

// Whom an advice is for; empty where it does not say.
export function whomInWords({ gpus: labels = [] }) {
  return labels.length === 0 ? "" : `GPU${labels.length > 1 ? "s" : ""} ${inList(inSpans(labels))}`;
}

// What a GPU's title says after its name.
export function gpuLine(gpu) {
  if (isLost(gpu)) return lostInWords(gpu);
  const found = troubles(gpu);
  if (isTakenAway(gpu)) return "no longer there";
  if (!gpu.present) return ["not answering", ...found.map((one) => one.text)].join(" · ");
  const words = [wordNow(gpu)];
  const losses = lossesInWords(gpu);
  if (losses.length > 0) words.push(`since the start: ${losses.join(", ")}`);
  if (isUnderFilled(gpu)) words.push(`low SM utilisation: ${filling(gpu)}`);
  if (gpu.fill?.held_down) words.push(heldInWords(gpu));
  const shown = gpu.fill?.held_down ? found.filter((one) => one.kind !== "throttled") : found;
  return [...shown.map((one) => one.text), ...words].join(" · ");
}

export function gpuFigures(gpu) {
  const figures = [];
  const gib = (bytes) => (bytes / 2 ** 30).toFixed(bytes < 10 * 2 ** 30 ? 1 : 0);
  if (gpu.utilization_ratio !== null) figures.push(`${Math.round(100 * gpu.utilization_ratio)} % busy now`);
  if (gpu.memory_used_bytes !== null) {
    const size = gpu.memory_capacity_bytes === null ? "" : ` of ${gib(gpu.memory_capacity_bytes)}`;
    figures.push(`${gib(gpu.memory_used_bytes)}${size} GiB`);
  }
  if (gpu.power_watts !== null) figures.push(`${Math.round(gpu.power_watts)} W`);
  if (gpu.temperature_celsius !== null) figures.push(`${Math.round(gpu.temperature_celsius)} °C`);
  return figures.join(" · ");
}
