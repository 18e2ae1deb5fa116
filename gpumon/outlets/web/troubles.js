// What is wrong with a GPU beside its time, the worst first, in the daemon's words.

export const troubles = (gpu) => (gpu.troubles ?? []).filter((one) => one.severity !== "none");
export const hasTrouble = (gpu) => troubles(gpu).length > 0;
export const isBroken = (gpu) => troubles(gpu).some((one) => one.severity === "high");

const lostTrouble = (gpu) => troubles(gpu).find((one) => one.kind === "lost");
// There no longer, or without an answer: what it did is of before.
export const isLost = (gpu) => lostTrouble(gpu) !== undefined;

// What became of a GPU that is lost, and the one remedy.
export function lostInWords(gpu) {
  const { text, advice } = lostTrouble(gpu);
  const errors = troubles(gpu).filter((one) => one.kind !== "lost").map((one) => one.text);
  return ["lost", text, ...errors, `what to do: ${advice}`].join(" · ");
}

// In a word or two; null: there is none.
export function troubleWord(gpu) {
  if (isLost(gpu)) return "lost";
  const [worst] = troubles(gpu);
  if (worst?.kind === "xid") return `XID ${worst.code}`;
  return worst?.kind.replace("ecc", "ECC") ?? null;
}
