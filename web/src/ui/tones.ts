/** How phases, states and severities are coloured; a word says the same, so colour is never alone. */
export type Tone = "good" | "warn" | "bad" | "busy" | "wait" | "dim";

const TONES: Record<string, Tone> = {
  queued: "wait",
  starting: "busy",
  running: "busy",
  stopping: "warn",
  succeeded: "good",
  failed: "bad",
  stopped: "dim",
  healthy: "good",
  suspect: "warn",
  quarantined: "bad",
  draining: "warn",
  complete: "good",
  paused: "wait",
  leaving: "warn",
  infeasible: "warn",
  diverged: "bad",
  lost: "bad",
  replaced: "dim",
  ended: "dim",
  firing: "bad",
  pending: "warn",
  resolved: "good",
  critical: "bad",
  warning: "warn",
  info: "busy",
  production: "good",
  staging: "busy",
  archived: "dim",
};

export function toneOf(word: string): Tone {
  return TONES[word] ?? "dim";
}
