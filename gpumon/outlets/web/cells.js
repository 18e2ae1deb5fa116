// What is known of each moment: the points of the last minutes, or cells of any span, in seconds of
// the clock on the wall.

const MOST_LIVE_S = [60, 120, 180, 300, 420, 600, 1800, 3600, 7200];

// The points that the daemon sends with each tick.
export class Points {
  #points = new Map(); // by uuid
  #sequence = 0;
  #offsetS = 0; // from the monotonic clock to that on the wall
  keptNs = Infinity;
  goneUntilNs = null;

  // Whether this tick follows on the one before it.
  follows({ sequence }) {
    return sequence === this.#sequence + 1;
  }

  replace(history) {
    this.#points = new Map(Object.entries(history.gpus));
    this.#extent(history);
  }

  add(history) {
    this.#extent(history);
    for (const uuid of this.#points.keys()) if (!(uuid in history.gpus)) this.#points.delete(uuid);
    for (const [uuid, fresh] of Object.entries(history.gpus)) {
      const kept = this.#points.get(uuid) ?? [];
      for (const point of fresh) {
        const at = kept.findIndex((one) => one.sequence >= point.sequence);
        if (at < 0) kept.push(point);
        else kept.splice(at, kept[at].sequence === point.sequence ? 1 : 0, point);
      }
      const oldestNs = kept.length > 0 ? kept.at(-1).end_ns - this.keptNs : 0;
      this.#points.set(uuid, kept.filter((point) => point.end_ns > oldestNs));
    }
  }

  setClock({ monotonic_seconds: monotonicS, wall_time_s: wallS }) {
    this.#offsetS = wallS - monotonicS;
  }

  // End of the newest sample; null: there is none.
  get newestS() {
    let newestNs = null;
    for (const points of this.#points.values()) {
      const end = points.findLast((point) => point.observed_ns > 0)?.end_ns ?? null;
      if (end !== null && (newestNs === null || end > newestNs)) newestNs = end;
    }
    return newestNs === null ? null : this.#seconds(newestNs);
  }

  // From here on all that was observed is here; null: nothing is.
  get fromS() {
    let oldestNs = this.goneUntilNs;
    if (oldestNs === null) {
      for (const [oldest] of this.#points.values()) {
        if (!oldest) continue;
        oldestNs = Math.min(oldestNs ?? Infinity, oldest.end_ns - oldest.observed_ns);
      }
    }
    return oldestNs === null ? null : this.#seconds(oldestNs);
  }

  // The smallest round stretch that holds all points, and no longer than they are kept.
  lengthS(nowS) {
    const spanS = this.fromS === null ? 0 : nowS - this.fromS;
    const roundS = MOST_LIVE_S.find((seconds) => seconds >= spanS - 1.5) ?? Infinity;
    return Math.max(1, Math.min(roundS, this.keptNs / 1e9));
  }

  cells(uuid) {
    return placed(this.#points.get(uuid) ?? []).map(({ point, start, end }) => ({
      startS: this.#seconds(start),
      endS: this.#seconds(end),
      observedS: point.observed_ns / 1e9,
      parts: partsOf(point),
    }));
  }

  #seconds(ns) {
    return this.#offsetS + ns / 1e9;
  }

  #extent({ sequence, kept_ns: keptNs, kept_from_ns: goneUntilNs }) {
    this.#sequence = sequence;
    Object.assign(this, { keptNs, goneUntilNs });
  }
}

// A point's seconds by part; the suspected part is taken out of "unknown".
function partsOf(point) {
  const parts = {};
  const add = (key, ns) => {
    if (ns > 0) parts[key] = ns / 1e9;
  };
  add("busy", point.busy_ns);
  add("pending", point.pending_ns);
  add("suspected", point.suspected_ns);
  for (const [cause, ns] of Object.entries(point.idle_ns)) {
    add(cause, cause === "unknown" ? ns - point.suspected_ns : ns);
  }
  return parts;
}

// Where each point lies. A tick may come before the last sample of its time, which the next one
// then brings: such a point ended where the next begins, and left no hole before it.
export function placed(points) {
  let next = Infinity;
  return [...points]
    .reverse()
    .map((point) => {
      const end = Math.min(point.end_ns, next);
      next = end - point.observed_ns;
      return { point, start: next, end };
    })
    .reverse();
}

// The cells of an array for each part: of a span, or of a spark line.
export function cellsOfParts(parts, startS, cellS, observed = null, endS = Infinity) {
  const cells = [];
  for (const [key, seconds] of Object.entries(parts)) {
    seconds.forEach((part, at) => {
      cells[at] ??= { startS: startS + at * cellS, endS: Math.min(endS, startS + (at + 1) * cellS), parts: {} };
      if (part > 0) cells[at].parts[key] = part;
    });
  }
  cells.forEach((cell, at) => {
    cell.observedS = observed?.[at] ?? sumOf(cell.parts);
  });
  return cells;
}

// What is left of a cell outside a span, in which nothing was observed.
function outside(cell, [fromS, toS]) {
  if (toS <= cell.startS || fromS >= cell.endS) return [cell];
  const pieces = [{ ...cell, endS: fromS }, { ...cell, startS: toS }];
  return pieces.filter(({ startS, endS }) => endS > startS);
}

export const sumOf = (parts) => Object.values(parts).reduce((sum, seconds) => sum + seconds, 0);

const busyOf = (gpu) =>
  gpu?.observed.map((observed, at) => (observed > 0 ? (gpu.parts.busy?.[at] ?? 0) / observed : null));

const LEAST_STALE_MS = 10_000;

// The cells of any span, which the daemon gives on request; one span at a time.
export class Spans {
  #document = null;
  #cells = new Map();
  #askedMs = 0;
  #isAsking = false;
  #asked = "";
  isMissing = false; // the daemon keeps none, or did not answer

  constructor(onChange, onRefused) {
    Object.assign(this, { onChange, onRefused });
  }

  // Asks again for what is shown next.
  forget() {
    this.#asked = "";
  }

  // Asks for a window, unless what is here is of it and new enough.
  need({ fromS, toS, follows }) {
    const cellS = (toS - fromS) / 600;
    const asked = follows ? `${Math.round(toS - fromS)}` : `${fromS}-${toS}`;
    const ageMs = performance.now() - this.#askedMs;
    const lastsMs = this.isMissing || follows ? Math.max(LEAST_STALE_MS, 1000 * cellS) : Infinity;
    if (this.#isAsking || (this.#asked === asked && ageMs < lastsMs)) return;
    this.#asked = asked;
    this.#askedMs = performance.now();
    this.#isAsking = true;
    this.#ask(fromS, toS).finally(() => {
      this.#isAsking = false;
      this.onChange();
    });
  }

  async #ask(fromS, toS) {
    try {
      const answer = await fetch(`/api/v1/history?from=${fromS.toFixed(3)}&to=${toS.toFixed(3)}`);
      if (answer.status === 400) this.onRefused((await answer.text()).trim());
      const document = answer.ok ? await answer.json() : null;
      this.isMissing = document?.schema !== "gpumon.history/1";
      this.#document = this.isMissing ? null : document;
      this.#cells.clear();
    } catch {
      this.isMissing = true; // the stream says that the connection is lost
    }
  }

  cells(uuid) {
    const gpu = this.#document?.gpus[uuid];
    if (!gpu) return [];
    if (!this.#cells.has(uuid)) {
      const { from_s: fromS, to_s: toS, cell_seconds: cellS } = this.#document;
      const cells = cellsOfParts(gpu.parts, fromS, cellS, gpu.observed, toS);
      const unknown = [[-Infinity, this.keptFromS ?? -Infinity], ...this.notRunning];
      this.#cells.set(uuid, unknown.reduce((left, span) => left.flatMap((cell) => outside(cell, span)), cells));
    }
    return this.#cells.get(uuid);
  }

  // The values of a level over the span; null: there are none.
  levels(uuid, name) {
    const gpu = this.#document?.gpus[uuid];
    const values = name === "busy" ? busyOf(gpu) : gpu?.levels[name];
    if (!values?.some((value) => value !== null)) return null;
    const { from_s: fromS, cell_seconds: cellS } = this.#document;
    return { values, fromS, cellS };
  }

  runAt(uuid, atS) {
    const runs = this.#document?.gpus[uuid]?.runs ?? [];
    return runs.find(([fromS, toS]) => fromS <= atS && atS < toS)?.[2] ?? null;
  }

  // How far anything was observed; null: there are no cells.
  get untilS() {
    return this.#document?.observed_until_s ?? this.#document?.to_s ?? null;
  }

  get keptFromS() {
    return this.#document?.kept_from_s ?? null;
  }

  get notRunning() {
    return this.#document?.not_running ?? [];
  }
}
