// What is wrong with a GPU beside its time, the worst first, in the daemon's words.

export const troubles = (gpu) => (gpu.troubles ?? []).filter((one) => one.severity !== "none");
export const hasTrouble = (gpu) => troubles(gpu).length > 0;
export const isBroken = (gpu) => troubles(gpu).some((one) => one.severity === "high");

// In a word or two; null: there is none.
export function troubleWord(gpu) {
  const [worst] = troubles(gpu);
  if (worst?.kind === "xid") return `XID ${worst.code}`;
  return worst?.kind.replace("ecc", "ECC") ?? null;
}
