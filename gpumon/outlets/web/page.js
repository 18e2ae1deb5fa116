// Keeps the page in step with the daemon: history once, then one event a tick.

import { Lane, Palette, partsOf, sumOf, windowNs } from "/lanes.js";
import { drawCauses, drawLegend, drawNotes, drawRuns } from "/tables.js";
import { hasTrouble, isBroken, troubleWord } from "/troubles.js";
import { duration, gpuFigures, gpuLine, gpuName, hasTime, migSentence, share, verdictSentence, whyAndNext } from "/words.js";

const MAX_POINTS = 600;
const REPORT_EVERY_MS = 10_000;
const AGE_EVERY_MS = 200;
const RECONNECT_MS = 3_000;

const element = (id) => document.getElementById(id);

const page = {
  state: null,
  advice: null,
  notes: [], // what a reader of the figures must know
  unknown: [], // GPUs that were lost before the daemon could ask who they are
  points: new Map(), // uuid -> points, oldest first
  sequence: 0,
  lanes: new Map(), // uuid -> its parts of the page
  palette: new Palette(document.documentElement),
  tickSeenAt: null, // performance.now() at which the newest tick was new
  lostSince: null,
};

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// --- what comes in -----------------------------------------------------------------------------

async function loadHistory() {
  try {
    const response = await fetch("/api/v1/history");
    if (!response.ok) return;
    const history = await response.json();
    page.points = new Map(Object.entries(history.gpus));
    page.sequence = history.sequence;
  } catch {
    // the stream says that the connection is lost, and the next tick asks again
  }
}

async function loadAdvice() {
  if (page.state === null) return;
  try {
    const response = await fetch("/api/v1/report");
    const report = response.ok ? await response.json() : {};
    page.advice = report.advice ?? null;
    page.notes = report.notes ?? [];
    page.unknown = (report.gpus ?? []).filter((gpu) => gpu.uuid === null);
  } catch {
    page.advice = null;
  }
  drawVerdict();
  drawNotes(element("notes"), page.notes);
}

function takePoints(history) {
  for (const [uuid, fresh] of Object.entries(history.gpus)) {
    const kept = page.points.get(uuid) ?? [];
    for (const point of fresh) {
      const at = kept.findIndex((one) => one.sequence >= point.sequence);
      if (at < 0) kept.push(point);
      else kept.splice(at, kept[at].sequence === point.sequence ? 1 : 0, point);
    }
    kept.splice(0, kept.length - MAX_POINTS);
    page.points.set(uuid, kept);
  }
  page.sequence = history.sequence;
}

async function takeTick(tick) {
  if (tick.state === null) return;
  // Ticks were skipped, or the daemon is another one: ask for the whole picture.
  if (tick.history.sequence === page.sequence + 1) takePoints(tick.history);
  else await loadHistory();
  const first = page.state === null;
  page.state = tick.state;
  draw();
  if (first) loadAdvice();
}

// One after the other: a tick must not overtake one that still waits for its history.
let ticksTaken = Promise.resolve();

function onTick(event) {
  ticksTaken = ticksTaken.then(() => takeTick(JSON.parse(event.data)));
}

// Follows every tick, and says alone that the daemon is still there while it has none.
function onAge(event) {
  page.tickSeenAt = performance.now() - 1000 * JSON.parse(event.data);
  onAlive();
}

function onAlive() {
  page.lostSince = null;
  drawAge();
}

function connect() {
  const stream = new EventSource("/api/v1/stream");
  stream.addEventListener("open", onAlive);
  stream.addEventListener("tick", onTick);
  stream.addEventListener("age", onAge);
  stream.addEventListener("error", () => {
    page.lostSince ??= performance.now();
    drawAge();
    // The browser tries again by itself, but gives up for good on an answer such as 503.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, RECONNECT_MS);
  });
}

// --- what is shown -----------------------------------------------------------------------------

function draw() {
  const { state } = page;
  element("simulated").hidden = !state.simulated;
  element("replayed").hidden = !state.replayed;
  setText(element("source"), `${state.source}, every ${duration(state.period_ns)}`);
  drawVerdict();
  drawLanes();
  drawLegend(element("legend"), page.points.values());
  drawCauses(element("causes"), state.gpus);
  drawRuns(element("runs"), state);
  drawAge();
}

function drawVerdict() {
  const { tone, text } = verdictSentence(page.state.gpus, page.state.runs, page.unknown);
  const { why, next, advice } = whyAndNext(page.state.gpus, page.advice ?? [], page.state.collectors, page.unknown);
  element("verdict").dataset.tone = tone;
  setText(element("sentence"), text);
  setText(element("why"), why);
  setText(element("next"), next);
  const gain = advice !== undefined && advice.speedup_upper_bound > 1.005;
  element("gain").hidden = !gain;
  if (gain) {
    const factor = advice.speedup_upper_bound.toFixed(2);
    setText(element("gain"), `Upper bound: at most ${factor} times as fast without this loss.`);
  }
  const inUse = page.state.gpus.reduce((sum, gpu) => sum + gpu.in_use_ns, 0);
  const lost = page.state.gpus.reduce((sum, gpu) => sum + gpu.starved_ns + gpu.suspected_ns, 0);
  const broken = [...page.state.gpus, ...page.unknown].find(isBroken);
  if (broken) document.title = `${gpuName(broken)}: ${troubleWord(broken)} · gpumon`;
  else document.title = inUse > 0 ? `${share(lost, inUse)} starved · gpumon` : "gpumon";
}

function makeLane(uuid) {
  const card = element("lane-template").content.firstElementChild.cloneNode(true);
  element("lanes").append(card);
  const part = (name) => card.querySelector(`.${name}`);
  const lane = {
    card, uuid, name: part("gpu-name"), line: part("gpu-line"), figures: part("figures"),
    canvas: part("lane"), from: part("from"),
  };
  lane.drawing = new Lane(lane.canvas, part("readout"));
  return lane;
}

function drawLanes() {
  const { gpus, monotonic_ns: endNs } = page.state;
  const uuids = new Set(gpus.map((gpu) => gpu.uuid));
  for (const [uuid, lane] of page.lanes) {
    if (!uuids.has(uuid)) {
      lane.card.remove();
      page.lanes.delete(uuid);
    }
  }
  // One window for all lanes: what is above each other happened together.
  const width = Math.max(...gpus.map((gpu) => windowNs(page.points.get(gpu.uuid) ?? [], endNs)));
  for (const gpu of gpus) {
    if (!page.lanes.has(gpu.uuid)) page.lanes.set(gpu.uuid, makeLane(gpu.uuid));
    drawLane(page.lanes.get(gpu.uuid), gpu, width);
  }
  // In the order of the GPUs, each before its MIG instances, whichever came first.
  gpus.forEach((gpu, place) => {
    const { card } = page.lanes.get(gpu.uuid);
    const lanes = element("lanes");
    if (lanes.children[place] !== card) lanes.insertBefore(card, lanes.children[place]);
  });
}

function drawLane(lane, gpu, width) {
  const points = page.points.get(gpu.uuid) ?? [];
  lane.card.dataset.verdict = gpu.present && !isBroken(gpu) ? gpu.verdict : "absent";
  setText(lane.name, gpu.name ? `${gpuName(gpu)} ${gpu.name}` : gpuName(gpu));
  setText(lane.line, migSentence(gpu, page.state.gpus) ?? gpuLine(gpu));
  lane.card.classList.toggle("bare", !hasTime(gpu));
  lane.card.classList.toggle("empty", gpu.fill?.under_filled === true || hasTrouble(gpu));
  lane.card.classList.toggle("part", gpu.parent_uuid != null);
  setText(lane.figures, gpu.present ? gpuFigures(gpu) : "");
  setText(lane.from, `${width / 60e9} min ago`);
  const shown = points.filter((point) => point.end_ns > page.state.monotonic_ns - width);
  const whole = shown.reduce((sum, point) => sum + sumOf(partsOf(point)), 0);
  const busy = shown.reduce((sum, point) => sum + point.busy_ns, 0);
  const hungry = shown.reduce((sum, point) => sum + point.starved_ns + point.suspected_ns, 0);
  lane.canvas.setAttribute(
    "aria-label",
    `${gpuName(gpu)}, last ${duration(width)}: busy ${share(busy, whole)}, starved or suspected ${share(hungry, whole)}. The table below has the figures.`,
  );
  lane.drawing.draw(points, page.state.monotonic_ns, width, page.palette);
}

function drawAge() {
  const { state, tickSeenAt, lostSince } = page;
  const sinceTickNs = tickSeenAt === null ? null : 1e6 * (performance.now() - tickSeenAt);
  const samples = (state?.gpus ?? []).map((gpu) => gpu.last_sample_ns).filter((ns) => ns !== null);
  if (sinceTickNs !== null && samples.length > 0) {
    const ageNs = sinceTickNs + state.monotonic_ns - Math.max(...samples);
    setText(element("age"), `last sample ${duration(Math.max(0, ageNs))} ago`);
  }
  const silent = state !== null && sinceTickNs > Math.max(3 * state.period_ns, 3e9);
  const banner = element("banner");
  banner.hidden = lostSince === null && !silent;
  document.body.classList.toggle("old", !banner.hidden);
  if (lostSince !== null) {
    const since = duration(1e6 * (performance.now() - lostSince));
    setText(
      banner,
      `Connection to the daemon lost ${since} ago. Is gpumon serve still running? ${state ? "What you see is old." : ""}`,
    );
  } else if (silent) {
    setText(
      banner,
      state.replayed
        ? "The recording is over, or has a gap here: what you see is the last of it."
        : `The daemon answers, but has not sampled for ${duration(sinceTickNs)}. What you see is old.`,
    );
  }
}

function redraw() {
  page.palette = new Palette(document.documentElement);
  if (page.state !== null) drawLanes();
}

window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
setInterval(drawAge, AGE_EVERY_MS);
setInterval(loadAdvice, REPORT_EVERY_MS);
connect();
