/** What is marked on curves: where attempts began, and where notes were written. */
import type { Schemas } from "../../../api/client";
import type { Mark, Stretch } from "../../../charts/chart";
import { place, type Axis } from "./axis";

type Attempt = Schemas["RunAttempt"];

export interface Named {
  mark: Mark;
  kind: "restart" | "note";
  text: string;
}

/** Restarts from the second attempt on, and notes that name a step; along time, notes stand where they were written. */
export function marksOf(attempts: Attempt[], notes: Schemas["NoteView"][], axis: Axis): Named[] {
  const timed = axis.kind === "time" || axis.kind === "since";
  const found: Named[] = [];
  for (const [at, one] of attempts.entries()) {
    const [step, time] = [one.first_step ?? one.from_step ?? null, began(one)];
    if (at === 0 || (timed ? time === null : step === null)) continue;
    const why = attempts[at - 1]?.reason?.message ?? "";
    const text = `attempt ${one.attempt}${step === null ? "" : ` from step ${step}`}${why ? `: ${why}` : ""}`;
    found.push({
      mark: { x: place(axis, step ?? 0, time ?? 0), name: text, colour: "var(--warn)" },
      kind: "restart",
      text,
    });
  }
  for (const note of notes) {
    const step = typeof note.doc["step"] === "number" ? note.doc["step"] : null;
    if (note.kind !== "note" || (step === null && !timed)) continue;
    const text = `${step === null ? "" : `step ${step}: `}${note.text.split("\n", 1)[0]!.slice(0, 80)}`;
    found.push({
      mark: { x: place(axis, step ?? 0, note.time), name: text, colour: "var(--accent)" },
      kind: "note",
      text,
    });
  }
  return found;
}

/** Every second attempt is shaded, up to where the next one begins. */
export function stretchesOf(attempts: Attempt[], axis: Axis): Stretch[] {
  const timed = axis.kind === "time" || axis.kind === "since";
  const starts = attempts.map((one, at) => {
    const step = at === 0 ? (one.first_step ?? 0) : (one.first_step ?? one.from_step);
    const time = began(one);
    return timed ? (time === null ? null : place(axis, 0, time)) : step == null ? null : place(axis, step, 0);
  });
  return starts.flatMap((start, at) => {
    if (at % 2 === 0 || start === null) return [];
    const next = starts.slice(at + 1).filter((one) => one !== null);
    return [{ start, stop: next.length ? Math.min(...next) : Number.MAX_VALUE, colour: "var(--shade)" }];
  });
}

function began(one: Attempt): number | null {
  return one.running_at ?? one.started_at ?? one.planned_at ?? null;
}
