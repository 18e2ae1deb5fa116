// Keeps the page in step with the daemon: history once, then one event a tick.

import { NBSP, roughly } from "/figures.js";
import { Cards, setText } from "/gpus.js";
import { Palette } from "/lanes.js";
import { drawAdvice, drawCauses, drawLegend, drawNotes, drawRuns } from "/tables.js";
import { hasTime } from "/words.js";

const AGE_EVERY_MS = 200;
const RECONNECT_MS = 3_000;

const element = (id) => document.getElementById(id);

const page = {
  tick: null, // the newest: its state, and the words on that same state
  history: { points: new Map(), sequence: 0, keptNs: Infinity, goneUntilNs: null }, // points by uuid
  palette: new Palette(document.documentElement),
  tickSeenAt: null, // performance.now() at which the newest tick was new
  lostSince: null,
};

const cards = new Cards(element("lanes"), element("lane-template"), () => draw());

// --- what comes in -----------------------------------------------------------------------------

async function loadHistory() {
  try {
    const response = await fetch("/api/v1/history");
    if (!response.ok) return;
    const history = await response.json();
    page.history.points = new Map(Object.entries(history.gpus));
    takeExtent(history);
  } catch {
    // the stream says that the connection is lost, and the next tick asks again
  }
}

function takeExtent({ sequence, kept_ns: keptNs, kept_from_ns: goneUntilNs }) {
  Object.assign(page.history, { sequence, keptNs, goneUntilNs });
}

function takePoints(history) {
  takeExtent(history);
  const { points, keptNs } = page.history;
  for (const uuid of points.keys()) if (!(uuid in history.gpus)) points.delete(uuid);
  for (const [uuid, fresh] of Object.entries(history.gpus)) {
    const kept = points.get(uuid) ?? [];
    for (const point of fresh) {
      const at = kept.findIndex((one) => one.sequence >= point.sequence);
      if (at < 0) kept.push(point);
      else kept.splice(at, kept[at].sequence === point.sequence ? 1 : 0, point);
    }
    const oldestNs = kept.at(-1).end_ns - keptNs;
    points.set(uuid, kept.filter((point) => point.end_ns > oldestNs));
  }
}

async function takeTick(tick) {
  if (tick.state === null) return;
  // Ticks were skipped, or the daemon is another one: ask for the whole picture.
  if (tick.history.sequence === page.history.sequence + 1) takePoints(tick.history);
  else await loadHistory();
  page.tick = tick;
  draw();
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
  const { state, notes } = page.tick;
  element("simulated").hidden = !state.simulated;
  element("replayed").hidden = !state.replayed;
  setText(element("source"), `${state.source}, every ${roughly(state.period_ns)}`);
  drawVerdict(page.tick);
  const gpus = cards.draw(state, page.history, page.palette);
  drawLegend(element("legend"), page.history.points.values());
  drawCauses(element("causes"), gpus.filter((gpu) => cards.isOpen(gpu)));
  const folded = gpus.filter((gpu) => hasTime(gpu) && !cards.isOpen(gpu)).length;
  element("folded").hidden = folded === 0;
  setText(element("folded"), `${folded} more, folded above: each shows its seconds here when it is opened.`);
  drawNotes(element("notes"), notes);
  drawRuns(element("runs"), state);
  drawAge();
}

// The daemon's own words, all of one tick: a figure in one sentence is the same in the next.
function drawVerdict({ headline, advice }) {
  element("verdict").dataset.tone = headline.tone;
  // Large letters break early: a GPU keeps its number.
  setText(element("sentence"), headline.verdict.replace(/\b(GPUs?|rank) (?=\d)/g, `$1${NBSP}`));
  setText(element("why"), headline.why);
  setText(element("next"), headline.next);
  drawAdvice(element("more"), element("advice"), advice.filter((_, place) => place !== headline.advice));
  document.title = headline.title ? `${headline.title} · gpumon` : "gpumon";
}

function drawAge() {
  const { tickSeenAt, lostSince } = page;
  const state = page.tick?.state ?? null;
  const sinceTickNs = tickSeenAt === null ? null : 1e6 * (performance.now() - tickSeenAt);
  const samples = (state?.gpus ?? []).map((gpu) => gpu.last_sample_ns).filter((ns) => ns !== null);
  if (sinceTickNs !== null && samples.length > 0) {
    const ageNs = sinceTickNs + state.monotonic_ns - Math.max(...samples);
    setText(element("age"), `last sample ${roughly(Math.max(0, ageNs))} ago`);
  }
  const silent = state !== null && sinceTickNs > Math.max(3 * state.period_ns, 3e9);
  const banner = element("banner");
  banner.hidden = lostSince === null && !silent;
  document.body.classList.toggle("old", !banner.hidden);
  if (lostSince !== null) {
    const since = roughly(1e6 * (performance.now() - lostSince));
    setText(
      banner,
      `Connection to the daemon lost ${since} ago. Is gpumon serve still running? ${state ? "What you see is old." : ""}`,
    );
  } else if (silent) {
    setText(
      banner,
      state.replayed
        ? "The recording is over, or has a gap here: what you see is the last of it."
        : `The daemon answers, but has not sampled for ${roughly(sinceTickNs)}. What you see is old.`,
    );
  }
}

function redraw() {
  page.palette = new Palette(document.documentElement);
  if (page.tick !== null) draw();
}

window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
setInterval(drawAge, AGE_EVERY_MS);
connect();
