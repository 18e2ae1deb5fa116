// In which order GPUs are shown: the worst first, and none that dances. No page, no clock.

import { hasTrouble, isBroken } from "/troubles.js";
import { isUnderFilled, isTakenAway, lostNs, verdictNow } from "/words.js";

const BROKEN = 0; // or gone
const LOSING = 1;
const NOTED = 2;
export const WELL = 3;
const QUIET = 4;

const RANK_OF_VERDICT = new Map([["healthy", WELL], ["not_in_use", QUIET], ["too_short_to_judge", QUIET], ["too_few_samples", QUIET]]);
const BETTER_FOR_NS = 10e9; // so long a GPU must do better before it gives up its place
const CLEARLY_MORE = 1.25; // a GPU that lost so much more than the one before it overtakes it

function rankOf(gpu) {
  if (isBroken(gpu)) return BROKEN;
  if (isTakenAway(gpu)) return QUIET;
  if (!gpu.present) return BROKEN;
  const rank = RANK_OF_VERDICT.get(verdictNow(gpu)) ?? LOSING;
  if (hasTrouble(gpu)) return Math.min(rank, NOTED);
  return rank === WELL && isUnderFilled(gpu) ? NOTED : rank;
}

export class Order {
  #held = new Map(); // uuid -> its rank, and since when it has done better than that
  #before = []; // families, as they stood

  // The GPUs of a tick in their order; a GPU and its MIG instances stay together.
  take(gpus, nowNs) {
    this.#held = new Map(gpus.map((gpu) => [gpu.uuid, this.#hold(gpu, nowNs)]));
    const families = new Map();
    for (const gpu of gpus) {
      const key = gpu.parent_uuid ?? gpu.uuid;
      families.set(key, [...(families.get(key) ?? []), gpu]);
    }
    const all = [...families].map(([key, members], place) => ({
      key, members, place, stood: this.#before.indexOf(key),
      rank: Math.min(...members.map((gpu) => this.rank(gpu.uuid))),
      lost: Math.max(...members.map(lostNs)),
    }));
    all.sort((a, b) => a.stood - b.stood || a.place - b.place);
    const ordered = [];
    for (const family of all) {
      let at = ordered.length;
      while (at > 0 && overtakes(family, ordered[at - 1])) at -= 1;
      ordered.splice(at, 0, family);
    }
    this.#before = ordered.map(({ key }) => key);
    return ordered.flatMap(({ members }) => members);
  }

  rank(uuid) {
    return this.#held.get(uuid).rank;
  }

  // Worse counts at once, better once it has lasted: at a threshold a verdict goes to and fro.
  #hold(gpu, nowNs) {
    const rank = rankOf(gpu);
    const held = this.#held.get(gpu.uuid);
    if (held === undefined || rank <= held.rank) return { rank, betterSinceNs: null };
    const betterSinceNs = held.betterSinceNs ?? nowNs;
    if (nowNs - betterSinceNs >= BETTER_FOR_NS) return { rank, betterSinceNs: null };
    return { rank: held.rank, betterSinceNs };
  }
}

function overtakes(later, earlier) {
  if (later.rank !== earlier.rank) return later.rank < earlier.rank;
  if (later.rank !== LOSING) return later.place < earlier.place;
  const bothStood = later.stood >= 0 && earlier.stood >= 0;
  return later.lost > (bothStood ? CLEARLY_MORE : 1) * earlier.lost;
}
