// From numbers to what people read. Pure functions: no page, no clock.

import { NBSP, duration, gpuTime, share } from "/figures.js";
import { claim, hasTrouble, isBroken, troubles } from "/troubles.js";

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
  { key: "pending", label: "not decided yet" },
  { key: "not_in_use", label: "not in use" },
];

export const LABELS = new Map(PARTS.map((part) => [part.key, part.label]));

// How each reason reads after "held up by", and after "of it for".
export const REASONS = new Map(Object.entries({
  cpu_bound: "preprocessing",
  gil_bound: "Python's lock",
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
  healthy: "healthy",
  starved: "starved",
  stalled: "stalled",
  starvation_suspected: "starvation suspected",
  partial: "partly busy",
};

const NEXT = {
  starved:
    "Prepare batches while the GPU works: prefetch, more loader workers, or cheaper preprocessing.",
  stalled: "Shorten the main cause below, or do it less often or in the background.",
  starvation_suspected:
    "Tag the training, PhaseTagger() for Keras or timed(loader) and phase(\"train_step\") in a loop: then the cause is proved instead of suspected.",
  partial:
    "Tag the training, PhaseTagger() for Keras or timed(loader) and phase(\"train_step\") in a loop: utilisation alone cannot tell why the GPU is only partly busy.",
  healthy: "Nothing to change.",
  too_short_to_judge: "Let it run on: the page follows by itself.",
  not_in_use: "Start a training; the page follows by itself.",
};

export const verdictWord = (gpu) => VERDICTS[gpu.verdict] ?? gpu.verdict;

// "0", and "0:1" for MIG instance 1 of GPU 0.
export const gpuLabel = (gpu) => gpu.label ?? String(gpu.index);
// One that has vanished is known by its UUID: another has its number by now.
const formerly = (gpu) => (gpu.listed === false && gpu.parent_uuid == null ? ` (${gpu.uuid.slice(0, 12)}…)` : "");
export const gpuName = (gpu) => `GPU ${gpuLabel(gpu)}${formerly(gpu)}`;
export const gpuTitle = (gpu) => (gpu.name ? `${gpuName(gpu)} ${gpu.name}` : gpuName(gpu));

// Cut by MIG, its instances work; and an instance that does not tell how busy it is, is not idle.
const isCut = (gpu) => gpu.present && gpu.mig_enabled === true;
const isMute = (gpu) => gpu.present && gpu.parent_uuid != null && gpu.observed_ns === 0;
// Out of the machine, or an instance that a scheduler has destroyed: nothing fails.
export const isTakenAway = (gpu) => gpu.listed === false;
const isJudged = (gpu) => !isCut(gpu) && !isMute(gpu);

// What is to be said of such a GPU instead of figures; null: figures are to be shown.
export function migSentence(gpu, gpus) {
  if (isMute(gpu)) {
    return "how busy it is is not known: a board tells that of a MIG instance by GPM, which comes with Hopper";
  }
  if (!isCut(gpu)) return null;
  return gpus.some((other) => other.parent_uuid === gpu.uuid)
    ? "MIG is on: its instances are below"
    : "MIG is on, and no instance is made: nothing can run on it";
}

// Whether a GPU has time to show: one that was cut by MIG a while ago has.
export const hasTime = (gpu) => isJudged(gpu) || gpu.observed_ns > 0;

// "GPUs 4 and 5 cannot be read. GPU 6 reported XID 79 (...)."
function brokenInWords(gpus, severity) {
  const said = new Map();
  for (const gpu of gpus) {
    const worst = troubles(gpu).filter((one) => one.severity === severity);
    if (worst.length === 0 || troubles(gpu)[0].severity !== severity) continue;
    const claims = worst.map(claim).join(", and ");
    said.set(claims, [...(said.get(claims) ?? []), gpu]);
  }
  return [...said].map(([claims, which]) => `${listed(which)} ${claims}.`).join(" ");
}

function troubleInWords(gpu) {
  const told = troubles(gpu).map(({ text, count }) => (count > 1 ? `${text} ${count} times` : text));
  return { why: `${gpuName(gpu)} ${told.join(", and ")}.`, next: `${gpuName(gpu)}: ${troubles(gpu)[0].advice}.` };
}

export const isUnderFilled = (gpu) => gpu.fill?.under_filled === true;

function filling(gpu) {
  const { evidence, sm_active_ratio: active, power_watts: power, power_limit_watts: limit } = gpu.fill;
  if (evidence === "gpm") return `on average ${share(active, 1)} of its multiprocessors have work`;
  const watts = `${Math.round(power)} of ${Math.round(limit)}${NBSP}W`;
  return `power ${watts} suggests that little of it works`;
}

function underFilledInWords(gpu) {
  const busy = share(Math.min(gpu.busy_ns, gpu.in_use_ns), gpu.in_use_ns);
  return `${gpuName(gpu)} is busy ${busy}, but ${filling(gpu)}`;
}

// What its order is by: the sentences never add up what is proved and what is only suspected.
const waited = (gpu) => gpu.starved_ns + gpu.suspected_ns;

function listed(gpus) {
  if (gpus.length === 1) return gpuName(gpus[0]);
  const spans = inSpans(gpus.map(gpuLabel));
  if (spans.length > 4) return `${gpus.length} GPUs`;
  return `GPUs ${inList(spans)}`;
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

const are = (gpus) => (gpus.length === 1 ? "is" : "are");

const sumOver = (gpus, key) => gpus.reduce((sum, gpu) => sum + gpu[key], 0);

function ofTimeInUse(gpus, key) {
  const [part, inUse] = [sumOver(gpus, key), sumOver(gpus, "in_use_ns")];
  return `${summed(part, gpus, inUse)} (${share(part, inUse)}) of the ${summed(inUse, gpus)} in use`;
}

// Time that is summed over GPUs is no time by the clock, and is said so.
const summed = (ns, gpus, wholeNs = null) => (gpus.length === 1 ? duration(ns, wholeNs) : gpuTime(ns));

// Only what tags prove is said to wait for input.
function waitInWords(gpus) {
  const suspected = sumOver(gpus, "suspected_ns");
  const more = suspected > 0 ? `, and ${summed(suspected, gpus)} more is suspected` : "";
  return `waiting for input cost ${ofTimeInUse(gpus, "starved_ns")}${more}`;
}

function whyPartly(gpus) {
  const likely = likelyInWords(gpus);
  return likely ? `. ${likely}` : ", and utilisation alone cannot tell why.";
}

function hungryInWords(starved, suspected) {
  const sentences = [];
  if (starved.length > 0) {
    sentences.push(`${listed(starved)} ${are(starved)} starved: ${waitInWords(starved)}.`);
  }
  if (suspected.length > 0) {
    const pause = suspected.length === 1 ? "pauses" : "pause";
    const cost = `${ofTimeInUse(suspected, "suspected_ns")}, suspected, not proved`;
    sentences.push(`${listed(suspected)} ${pause} as behind a late input pipeline: ${cost}.`);
    sentences.push(likelyInWords(suspected));
  }
  return sentences.filter(Boolean).join(" ");
}

// What pauses that no tag explains look like, in the report's words.
function likelyInWords(gpus) {
  const worst = worstFirst(gpus)[0];
  if (!worst.likely_text) return "";
  return gpus.length > 1 ? `${gpuName(worst)}: ${worst.likely_text}` : worst.likely_text;
}

// The worst first: the order in which a person should care.
const ORDER = ["hanging", "starved", "starvation_suspected", "stalled", "partial", "healthy", "too_short_to_judge", "not_in_use"];

export function worstFirst(gpus) {
  return [...gpus].sort(
    (a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict) || blamed(b) - blamed(a),
  );
}

// What its verdict is about.
function blamed(gpu) {
  return gpu.verdict === "stalled" ? (mainCause(gpu)?.[1] ?? 0) : waited(gpu);
}

// Start-up comes before the time in use: it is no part of what was lost of it.
const OUT_OF_USE = new Set(["not_in_use", "start_up"]);

// The wait for the very first batch is paid once, and stands apart: no verdict rests on it.
function lost(gpu) {
  const { input_wait: waited, ...others } = gpu.idle_ns;
  const parts = { ...others, input_wait: gpu.starved_ns, first_input_wait: (waited ?? 0) - gpu.starved_ns };
  return Object.entries(parts).filter(([cause, ns]) => ns > 0 && !OUT_OF_USE.has(cause));
}

export const lostNs = (gpu) => lost(gpu).reduce((sum, [, ns]) => sum + ns, 0);

// What a verdict on proved time names, however much is unknown: that can be changed today.
export function mainCause(gpu) {
  const isProved = gpu.verdict === "starved" || gpu.verdict === "stalled";
  const named = lost(gpu).filter(([cause]) => cause !== "first_input_wait" && !(isProved && cause === "unknown"));
  return named.sort((a, b) => b[1] - a[1])[0] ?? null;
}

const TITLES = new Map([
  ["input_wait", "starved"], ["first_input_wait", "waiting for the very first batch"],
]);
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

// The sentence of the whole machine, with a tone for its colour. What is broken comes first: no
// other loss is as large. "unknown" are GPUs that were lost before the daemon began.
export function verdictSentence(gpus, runs, unknown = []) {
  const { tone, text: sentence } = sentenceOfPresent(gpus);
  // The figures are of all the daemon's life: they stay when the trainings are over.
  const over = runs.length > 0 && runs.every((run) => !run.alive);
  const text = over ? `${sentence} No tagged training runs now.` : sentence;
  const told = gpus.some((gpu) => gpu.present) ? gpus : []; // else the sentence is of them
  const grave = brokenInWords([...told, ...unknown], "high");
  const lesser = brokenInWords(told, "moderate");
  const calm = tone === "good" || tone === "quiet"; // then nobody is to read that first
  const said = calm ? [grave, lesser, text] : [grave, text, lesser];
  return { tone: grave ? "bad" : lesser && calm ? "warn" : tone, text: said.filter(Boolean).join(" ") };
}

function sentenceOfPresent(gpus) {
  const answering = gpus.filter((gpu) => gpu.present);
  const present = answering.filter(isJudged);
  if (gpus.length === 0) return { tone: "quiet", text: "No GPU has been found yet." };
  if (answering.length === 0) {
    return { tone: "bad", text: `${listed(gpus)} cannot be read now: what follows is the last known.` };
  }
  if (present.length === 0) {
    const mute = answering.filter(isMute);
    const text = mute.length > 0
      ? `${listed(mute)} ${mute.length === 1 ? "does not tell how busy it is" : "do not tell how busy they are"}.`
      : "MIG is on, and no instance is made: nothing can run.";
    return { tone: "quiet", text };
  }
  const having = (name) => present.filter((gpu) => gpu.verdict === name);
  const starved = having("starved");
  const suspected = having("starvation_suspected");
  if (starved.length + suspected.length > 0) {
    return {
      tone: starved.length > 0 ? "bad" : "warn",
      text: hungryInWords(starved, suspected),
    };
  }
  const stalled = having("stalled");
  if (stalled.length > 0) {
    const worst = worstFirst(stalled)[0];
    const unknown = worst.idle_ns.unknown ?? 0;
    const [cause, ns] = mainCause(worst);
    const most = ns >= unknown ? "mainly" : "in part";
    const more = ns >= unknown ? "" : `; no tag explains ${duration(unknown)} more`;
    const text = `${listed(stalled)} ${are(stalled)} stalled, ${most} ${LABELS.get(cause)} (${duration(ns)})${more}.`;
    return { tone: "warn", text };
  }
  const partial = having("partial");
  if (partial.length > 0) {
    return {
      tone: "warn",
      text: `${listed(partial)} ${are(partial)} only partly busy${whyPartly(partial)}`,
    };
  }
  const healthy = having("healthy");
  const empty = healthy.filter(isUnderFilled).sort((a, b) => emptiness(b) - emptiness(a));
  if (empty.length > 0) {
    const more = empty.length > 1 ? `; ${empty.length - 1} more ${empty.length === 2 ? "is" : "are"} under-filled, too` : "";
    return { tone: "warn", text: `${underFilledInWords(empty[0])}${more}.` };
  }
  if (healthy.length > 0) {
    return {
      tone: "good",
      text: `${listed(healthy)} ${are(healthy)} kept busy: ${waitInWords(healthy)}.`,
    };
  }
  const short = having("too_short_to_judge");
  if (short.length) return { tone: "quiet", text: `Too short to judge: ${listed(short)} in use for less than 10${NBSP}s.` };
  return { tone: "quiet", text: `${listed(present)} ${are(present)} not in use: nothing is lost.` };
}

function heldInWords({ fill }) {
  const by = fill.held_mostly_by ? `: ${fill.held_mostly_by.replaceAll("_", " ")}` : "";
  return `clocks held down ${share(fill.held_ratio, 1)} of its busy time${by}`;
}

const emptiness = ({ fill }) => 1 - (fill.sm_active_ratio ?? fill.power_watts / fill.power_limit_watts);

// What is wrong with the driver as a whole, and what to do, as its source says: "what: what to do".
function driverTrouble(gpus, collectors) {
  const source = collectors[0];
  if (!source || source.success || !source.message || gpus.some((gpu) => gpu.present)) return null;
  const [, what, todo] = /^(.+?): (.+)$/s.exec(source.message) ?? [];
  if (!todo || /^GPU [\d:]+$/.test(what)) return null; // that one says it itself
  return { why: `${what[0].toUpperCase()}${what.slice(1)}.`, next: `${todo[0].toUpperCase()}${todo.slice(1)}.` };
}

// What there is to gain on a GPU that loses nothing.
const BESIDE_CAUSES = new Set(["under_filled", "unseen_imbalance", "first_input_wait"]);

// The daemon's own advice knows more, but a GPU that is broken goes before it.
export function whyAndNext(gpus, allAdvice, collectors = [], unknown = []) {
  const trouble = driverTrouble(gpus, collectors);
  if (trouble) return trouble;
  const broken = [...gpus, ...unknown].filter(isBroken);
  if (broken.length > 0) {
    return troubleInWords(broken.find((gpu) => troubles(gpu)[0].kind === "lost") ?? broken[0]);
  }
  const worst = worstFirst(gpus.filter(isJudged))[0];
  const troubled = gpus.find(hasTrouble);
  const isCalm = ["healthy", "too_short_to_judge", "not_in_use"].includes(worst?.verdict) && !gpus.some(isUnderFilled);
  if (troubled && isCalm) return troubleInWords(troubled);
  const cause = worst ? mainCause(worst) : null;
  // The greatest loss comes first, but the sentence above is of this GPU and its main cause.
  const advice = worst?.verdict === "healthy"
    ? allAdvice.find((one) => BESIDE_CAUSES.has(one.cause))
    : (allAdvice.find((one) => one.cause === cause?.[0]) ?? allAdvice[0]);
  if (advice?.evidence && advice.text) return { why: advice.evidence, next: advice.text, advice };
  if (!worst && gpus.length > 0) {
    const why = gpus.map((gpu) => migSentence(gpu, gpus)).find((said) => said) ?? "";
    return { why: `${why}.`, next: "Run `gpumon doctor`: it says what this machine can read." };
  }
  if (!worst) return { why: "no GPU answers", next: "Run `gpumon doctor`." };
  const why = cause
    ? `${gpuName(worst)} was idle ${duration(cause[1])} (${share(cause[1], worst.in_use_ns)} of its time in use), ${LABELS.get(cause[0])}.`
    : `${gpuName(worst)} lost no time.`;
  return { why, next: NEXT[worst.verdict] ?? "" };
}

// How much faster at most; nothing where nothing is promised.
export function boundInWords({ speedup_upper_bound: bound }) {
  return bound > 1.005 ? `at most ${bound.toFixed(bound < 10 ? 2 : 0)} times as fast` : "";
}

// What held a run up most, in the daemon's own words; empty where nobody saw it.
export function heldUpInWords({ reasons = [] }) {
  const [{ cause, seen } = {}] = reasons.filter((reason) => reason.seen);
  if (!seen) return "";
  const where = LABELS.get(cause) ?? cause;
  return `${where[0].toUpperCase()}${where.slice(1)}, held up by ${seen}.`;
}

// Whom an advice is for; empty where it does not say.
export function whomInWords({ gpus: labels = [] }) {
  const spans = inSpans(labels);
  return labels.length === 0 ? "" : `GPU${labels.length > 1 ? "s" : ""} ${inList(inSpans(labels))}`;
}

// What a GPU's title says after its name.
export function gpuLine(gpu) {
  const told = troubles(gpu);
  if (isTakenAway(gpu)) return told[0]?.text ?? "no longer there";
  const errors = told.filter((one) => one.kind !== "lost").map((one) => one.text);
  if (!gpu.present) {
    const why = gpu.error ?? told.find((one) => one.kind === "lost")?.text;
    return [why ? `not answering: ${why}` : "not answering", ...errors].join(" · ");
  }
  const losses = lossesInWords(gpu);
  // "starved · starved 33 %" says it twice.
  const ofLoss = { starved: "starved", starvation_suspected: LABELS.get("suspected") }[gpu.verdict];
  const isSaid = losses.some((loss) => ofLoss && loss.startsWith(ofLoss));
  const words = isSaid ? losses : [verdictWord(gpu), ...losses];
  if (isUnderFilled(gpu)) words.push(`under-filled: ${filling(gpu)}`);
  if (gpu.fill?.held_down) words.push(heldInWords(gpu));
  const said = gpu.fill?.held_down ? told.filter((one) => one.kind !== "throttled") : told;
  return [...said.map((one) => one.text), ...words].join(" · ");
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
