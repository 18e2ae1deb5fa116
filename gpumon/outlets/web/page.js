// Keeps the page in step with the daemon: history once, then one event a tick.

import { Points, Spans } from "/cells.js";
import { Children, element, setAttribute, setText, showText } from "/dom.js";
import { Paint } from "/drawing.js";
import { NBSP, roughly } from "/figures.js";
import { Lanes, Openings, makeAdvice, updateAdvice } from "/lanes.js";
import { Runs } from "/runs.js";
import { Tiles } from "/tiles.js";
import { LIVE, choiceOf, clockText, fragmentOf, ticksOf, windowOf } from "/window.js";

const AGE_EVERY_MS = 500;
const LEAST_BETWEEN_MS = 250;
const RECONNECT_MS = 3_000;
const ASLEEP_MS = 30_000; // a clock that jumped by so much: the machine was asleep

const page = {
  view: null, // the newest
  choice: LIVE, // the time that the lanes show
  tickSeenAt: null, // performance.now() at which the newest tick was new
  lostSince: null, // Date.now() since when the daemon does not answer
  agedAt: Date.now(),
  stream: null,
};

const points = new Points();
const spans = new Spans(draw, refuse);
const paint = new Paint(element("legend"));
const openings = new Openings();
const tiles = new Tiles(element("tiles"), element("tile-template"), paint, (uuid) => {
  openings.toggle(uuid);
  draw();
});
const lanes = new Lanes(element("lanes"), element("lane-template"), paint, {
  close(uuid) {
    openings.toggle(uuid);
    draw();
    tiles.focus(uuid);
  },
  span: (fromS, toS) => choose({ kind: "span", fromS, toS }),
  live: () => choose(LIVE),
  showRun: (run) => runs.show(run),
  redraw: draw,
});
const runs = new Runs(element("run-table"), (uuid) => {
  openings.open(uuid);
  draw();
  lanes.focus(uuid);
});
const notes = new Children(element("notes"), (note) => note, makeNote, () => {});
const advice = new Children(element("advice"), ({ key }) => key, makeAdvice, updateAdvice);
const axis = new Children(element("axis"), ({ key }) => key, makeMark, updateMark);

// --- what comes in -------------------------------------------------------------------------------

async function loadHistory() {
  try {
    const response = await fetch("/api/v1/history");
    if (response.ok) points.replace(await response.json());
  } catch {
    // the stream says that the connection is lost, and the next tick asks again
  }
}

async function takeTick({ view, history }) {
  if (view === null) return;
  // Ticks were skipped, or the daemon is another one: ask for the whole picture.
  if (points.follows(history)) points.add(history);
  else await loadHistory();
  if (page.view === null) {
    page.view = view;
    for (const id of ["advice", "plain"]) element(id).replaceChildren(); // written by the daemon
    readAddress();
  }
  page.view = view;
  points.setClock(view);
  drawSoon();
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
  page.stream?.close();
  const stream = new EventSource("/api/v1/stream");
  page.stream = stream;
  stream.addEventListener("open", () => {
    spans.forget();
    onAlive();
  });
  stream.addEventListener("tick", onTick);
  stream.addEventListener("age", onAge);
  stream.addEventListener("error", () => {
    page.lostSince ??= Date.now();
    drawAge();
    // The browser tries again by itself, but gives up for good on an answer such as 503.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => stream === page.stream && connect(), RECONNECT_MS);
  });
}

// --- which time is shown -------------------------------------------------------------------------

const now = () => page.view.wall_time_s;

function choose(choice) {
  page.choice = choice;
  showText(element("refused"), "");
  history.replaceState(null, "", fragmentOf(choice));
  spans.forget();
  draw();
}

function refuse(sentence) {
  if (page.choice.kind === "live") history.replaceState(null, "", fragmentOf(LIVE));
  else choose(LIVE);
  showText(element("refused"), sentence);
}

function readAddress() {
  const choice = choiceOf(location.hash, now());
  if (choice.refused) refuse(choice.refused);
  else if (fragmentOf(choice) !== fragmentOf(page.choice)) choose(choice);
}

for (const button of element("choices").querySelectorAll("[data-choice]:not(#own-span)")) {
  button.addEventListener("click", () => choose(choiceOf(button.dataset.choice, now())));
}
element("own-span").addEventListener("click", () => choose(LIVE));

function drawChoices(window) {
  const shown = fragmentOf(page.choice).slice(1);
  const [own, ...others] = [element("own-span"), ...element("choices").querySelectorAll(":not(#own-span)")];
  for (const button of others) setAttribute(button, "aria-pressed", button.dataset.choice === shown);
  own.hidden = others.some((button) => button.dataset.choice === shown);
  setAttribute(own, "aria-pressed", !own.hidden);
  if (own.hidden) return;
  const text = (atS) => clockText(atS, { nowS: now(), withSeconds: window.toS - window.fromS < 600 });
  setText(own, `${text(window.fromS)}–${text(window.toS)} ✕`);
  setAttribute(own, "title", "The lanes show this span; all texts describe now.");
  setAttribute(own, "aria-label", `${own.textContent.slice(0, -2)}: back to live`);
}

// --- what is known of that time ------------------------------------------------------------------

const isRecent = ({ fromS }) => points.fromS !== null && fromS >= points.fromS - 1;
// Of a longer time, points would be finer than the screen.
const hasPoints = (window) => isRecent(window) || spans.untilS === null || window.toS - window.fromS <= 1200;

function cellsOf(uuid, window) {
  if (isRecent(window)) return points.cells(uuid);
  const kept = spans.cells(uuid);
  if (!hasPoints(window) || points.fromS === null) return kept;
  const older = kept
    .filter(({ startS }) => startS < points.fromS)
    .map((cell) => ({ ...cell, endS: Math.min(cell.endS, points.fromS) }));
  return [...older, ...points.cells(uuid)];
}

// Why there may be nothing: on top of one another, the surest last.
function gapsOf(window) {
  const newestS = hasPoints(window) ? points.newestS : spans.untilS;
  const seenUntilS = Math.min(window.toS, newestS ?? window.toS);
  const keptFromS = Math.min(spans.keptFromS ?? Infinity, points.fromS ?? Infinity);
  return [
    { kind: "not_watched", startS: window.fromS, endS: seenUntilS },
    { kind: "not_kept", startS: window.fromS, endS: Math.min(keptFromS, window.toS) },
    ...spans.notRunning.map(([startS, endS]) => ({ kind: "not_running", startS, endS })),
  ].filter(({ startS, endS }) => endS > startS && endS > window.fromS && startS < window.toS);
}

// --- what is shown -------------------------------------------------------------------------------

// Ticks that come faster than eyes follow are drawn together.
let drawnAt = -Infinity;
let drawTimer = null;

function drawSoon() {
  const waitMs = drawnAt + LEAST_BETWEEN_MS - performance.now();
  if (waitMs <= 0) draw();
  else drawTimer ??= setTimeout(draw, waitMs);
}

function draw() {
  clearTimeout(drawTimer);
  [drawTimer, drawnAt] = [null, performance.now()];
  const { view } = page;
  if (view === null) return;
  if (document.hidden) {
    drawAge(); // title and icon: the rest, once it can be seen
    return;
  }
  for (const id of ["grid", "lanes-part", "runs-part"]) element(id).hidden = false;
  element("plain").hidden = true;
  element("simulated").hidden = !view.simulated;
  element("replayed").hidden = !view.replayed;
  setText(element("source"), `${view.source}, every ${roughly(1e9 * view.period_seconds)}`);
  drawVerdict(view);
  tiles.draw(view);
  do drawLanes(openings.take(view.gpus, performance.now()));
  while (openings.areTooMany((uuid) => lanes.bottomOf(uuid)));
  tiles.mark((uuid) => openings.isOpen(uuid));
  const beside = lanes.advised;
  const others = view.advice.map((one, place) => ({ ...one, key: `${one.cause} ${place}` }));
  advice.draw(others.filter((_, place) => !beside.has(place) && place !== view.headline.advice));
  element("more").hidden = element("advice").childElementCount === 0;
  runs.draw(view);
  notes.draw(view.notes);
  drawAge();
}

function drawLanes(gpus) {
  const { view } = page;
  const startedS = Date.parse(view.started_at) / 1000;
  const window = windowOf(page.choice, { nowS: now(), startedS, liveS: points.lengthS(now()) });
  const hasLevels = gpus.length > 0 && document.querySelector(".details:not([hidden])") !== null;
  if (!isRecent(window) || hasLevels) spans.need(window);
  drawChoices(window);
  const needy = view.gpus.filter(({ status }) => status.tone === "bad" || status.tone === "warn");
  const closed = needy.filter(({ uuid }) => !openings.isOpen(uuid)).map(({ label }) => `GPU ${label}`);
  element("all-well").hidden = gpus.length > 0;
  element("not-open").hidden = closed.length === 0;
  setText(element("not-open").querySelector("span"), closed.join(", "));
  element("axis").hidden = gpus.length === 0;
  const gaps = gapsOf(window);
  lanes.draw({
    view,
    gpus,
    window,
    nowS: now(),
    cellsOf: (uuid) => cellsOf(uuid, window),
    gapsOf: () => gaps,
    runAt: (uuid, atS) => spans.runAt(uuid, atS),
    levelsOf: (uuid, name) => spans.levels(uuid, name),
  });
  paint.show(...lanes.seen);
  const drawn = document.querySelector(".plot");
  if (drawn === null) return;
  const { left, width } = drawn.getBoundingClientRect();
  const from = element("axis").getBoundingClientRect();
  const ticks = ticksOf(window, now(), Math.max(2, Math.floor(width / 90)));
  const place = (atS) => left - from.left + (width * (atS - window.fromS)) / (window.toS - window.fromS);
  const marks = ticks.map(({ atS, text }) => ({ key: atS, text, left: place(atS) }));
  axis.draw(marks.filter(({ left: at }) => at < from.width - 3.5 * ticks[0].text.length)); // none that is cut off
}

function makeMark() {
  return { whole: document.createElement("span") };
}

function updateMark({ whole }, { text, left }) {
  setText(whole, text);
  whole.style.left = `${left}px`;
}

function makeNote(note) {
  const whole = document.createElement("li");
  whole.textContent = note;
  return { whole };
}

// The daemon's own words, all of one tick: a figure in one sentence is the same in the next.
function drawVerdict({ headline }) {
  setAttribute(element("verdict"), "data-tone", headline.tone);
  // Large letters break early: a GPU keeps its number.
  setText(element("sentence"), headline.line.replace(/\b(GPUs?|rank) (?=\d)/g, `$1${NBSP}`));
  setText(element("why"), headline.why);
  setText(element("next"), headline.next);
}

function drawAge() {
  const { tickSeenAt, lostSince, view } = page;
  const sinceTickS = tickSeenAt === null ? null : (performance.now() - tickSeenAt) / 1000;
  if (sinceTickS !== null && view !== null && points.newestS !== null) {
    const ageS = sinceTickS + Math.max(0, view.wall_time_s - points.newestS);
    setText(element("age"), `last sample ${roughly(1e9 * ageS)} ago`);
  }
  const isSilent = view !== null && sinceTickS > Math.max(3 * view.period_seconds, 3);
  const isOld = lostSince !== null || isSilent;
  showText(element("banner"), isOld ? whyOld(isSilent ? sinceTickS : 0) : "");
  const wasOld = document.body.classList.contains("old");
  document.body.classList.toggle("old", isOld);
  const title = isOld ? "no connection" : (view?.headline.title ?? "");
  document.title = [lostSince !== null ? title : isSilent ? "no sample" : title, "gpumon"].filter(Boolean).join(" · ");
  setAttribute(element("icon"), "href", `/favicon-${isOld ? "gone" : (view?.headline.tone ?? "quiet")}.svg`);
  if (wasOld !== isOld) draw(); // the banner takes the room of a lane, or leaves it
}

function whyOld(silentS) {
  const { lostSince, view } = page;
  if (lostSince !== null) {
    const old = view === null ? "" : " What you see is old.";
    return `Connection to the daemon lost ${roughly(1e6 * (Date.now() - lostSince))} ago. Is gpumon serve still running?${old}`;
  }
  if (view.replayed) return "The recording is over, or has a gap here: what you see is the last of it.";
  return `The daemon answers, but has not sampled for ${roughly(1e9 * silentS)}. What you see is old.`;
}

// What was missed while this machine was asleep is asked for again.
function onAgeTimer() {
  const nowMs = Date.now();
  if (Math.abs(nowMs - page.agedAt - AGE_EVERY_MS) > ASLEEP_MS) {
    spans.forget();
    connect();
  }
  page.agedAt = nowMs;
  drawAge();
}

function redraw() {
  paint.renew();
  draw();
}

window.addEventListener("resize", redraw);
document.addEventListener("visibilitychange", draw);
window.addEventListener("hashchange", () => page.view !== null && readAddress());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new Image().src = "/favicon-gone.svg"; // kept: it cannot be asked for once it is needed
setInterval(onAgeTimer, AGE_EVERY_MS);
connect();
