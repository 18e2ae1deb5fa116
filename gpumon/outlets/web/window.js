// Which time the lanes show, and how that is written: in the address of the page, and on the axis.

const LONGEST_S = 366 * 86_400;
const SHORTEST_S = 1;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

export const LIVE = { kind: "live" };

// The choice that an address names, or the sentence that refuses it.
export function choiceOf(fragment, nowS) {
  const text = decodeURIComponentOrNot(fragment.replace(/^#/, ""));
  if (text === "" || text === "live") return LIVE;
  if (text === "start") return { kind: "start" };
  const last = /^last=(\d{1,15})$/.exec(text);
  if (last) return checked({ kind: "last", seconds: Number(last[1]) }, nowS);
  const span = /^from=(-?[\d.]{1,20})&to=(-?[\d.]{1,20})$/.exec(text);
  if (span) return checked({ kind: "span", fromS: Number(span[1]), toS: Number(span[2]) }, nowS);
  return { refused: "The address names no span: write #last=3600, or #from= and &to= in seconds since 1970." };
}

function decodeURIComponentOrNot(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function checked(choice, nowS) {
  const [fromS, toS] = choice.kind === "span" ? [choice.fromS, choice.toS] : [nowS - choice.seconds, nowS];
  const lengthS = toS - fromS;
  if (!Number.isFinite(lengthS)) return { refused: "The span in the address is no number of seconds since 1970." };
  if (lengthS < 0) return { refused: "The span in the address ends before it begins." };
  if (lengthS < SHORTEST_S) return { refused: "The span in the address is shorter than a second." };
  if (fromS > nowS + 60) return { refused: "The span in the address is in the future." };
  if (toS > nowS + 60) return { refused: "The span in the address ends in the future." };
  if (lengthS > LONGEST_S) return { refused: "The span in the address is longer than a year." };
  return choice;
}

export function fragmentOf(choice) {
  if (choice.kind === "last") return `#last=${choice.seconds}`;
  if (choice.kind === "start") return "#start";
  if (choice.kind === "span") return `#from=${choice.fromS.toFixed(3)}&to=${choice.toS.toFixed(3)}`;
  return "#live";
}

// The stretch that a choice shows now.
export function windowOf(choice, { nowS, startedS, liveS }) {
  if (choice.kind === "span") return { fromS: choice.fromS, toS: choice.toS, follows: false };
  const lengthS = { live: liveS, last: choice.seconds, start: Math.max(60, nowS - startedS) }[choice.kind];
  return { fromS: nowS - lengthS, toS: nowS, follows: true };
}

const two = (number) => String(number).padStart(2, "0");

// "14:03:20", with the day where that is another one than today.
export function clockText(atS, { nowS = atS, withSeconds = true } = {}) {
  const at = new Date(1000 * atS);
  const time = [two(at.getUTCHours()), two(at.getUTCMinutes()), ...(withSeconds ? [two(at.getUTCSeconds())] : [])].join(":");
  const day = at.toISOString().slice(0, 10);
  return day === new Date(1000 * nowS).toISOString().slice(0, 10) ? time : `${day} ${time}`;
}

// Where the axis has a mark, and what is written there.
export function ticksOf({ fromS, toS }, nowS, most) {
  const stepS = STEPS_S.find((step) => (toS - fromS) / step <= most) ?? (toS - fromS) / most;
  const ticks = [];
  for (let atS = Math.ceil(fromS / stepS) * stepS; atS <= toS; atS += stepS) {
    ticks.push({ atS, text: clockText(atS, { nowS, withSeconds: stepS < 60 }) });
  }
  return ticks;
}
