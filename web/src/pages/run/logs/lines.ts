/** Lines of output, made of the chunks that the server keeps: a line is of one rank, whatever chunks it came in. */
import type { Schemas } from "../../../api/client";

export type Chunk = Schemas["LogChunkView"];

export interface LogLine {
  /** The same whenever the chunk in which it begins is there. */
  key: string;
  chunk: number;
  attempt: number;
  rank: number;
  time: number | null;
  text: string;
  /** It tells something of the output, and is no part of it. */
  note?: boolean;
}

const LONGEST = 4000; // characters of a line that are shown
// Colours and other sequences of terminals, and control characters.
// eslint-disable-next-line no-control-regex
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]/g;

/** The lines of adjacent chunks, in the order in which they begin. */
export function linesOf(chunks: Chunk[]): LogLine[] {
  const lines: LogLine[] = [];
  const open = new Map<string, LogLine>();
  let attempt = chunks[0]?.attempt ?? 0;
  for (const chunk of chunks) {
    if (chunk.attempt !== attempt) {
      attempt = chunk.attempt;
      lines.push({ key: `a${attempt}`, chunk: chunk.id, attempt, rank: -1, time: null, text: `attempt ${attempt}`, note: true }); // prettier-ignore
    }
    const stream = `${chunk.attempt}.${chunk.rank}`;
    if (chunk.dropped !== undefined) open.delete(stream);
    const parts = chunk.text.split("\n");
    const ends = parts.at(-1) === "";
    if (ends) parts.pop();
    for (const [at, part] of parts.entries()) {
      const begun = at === 0 ? open.get(stream) : undefined;
      if (begun) begun.text += part;
      else {
        const line: LogLine = {
          key: `${chunk.id}.${at}${chunk.dropped === undefined ? "" : "x"}`,
          chunk: chunk.id,
          attempt: chunk.attempt,
          rank: chunk.rank,
          time: timeOf(chunk, at),
          text: part,
        };
        if (chunk.dropped !== undefined) line.note = true;
        lines.push(line);
        if (at === parts.length - 1 && !ends) open.set(stream, line);
      }
      if (begun && (parts.length > 1 || ends)) open.delete(stream);
    }
  }
  for (const line of lines) line.text = shown(line.text);
  return lines;
}

/** A line as a terminal leaves it: what was written over is gone, and so are colours. */
export function shown(text: string): string {
  const over = text.replace(/\r+$/, "").lastIndexOf("\r");
  const left = (over < 0 ? text : text.slice(over + 1)).replace(ESCAPES, "");
  return left.length > LONGEST ? `${left.slice(0, LONGEST)} … (${left.length - LONGEST} more characters)` : left;
}

function timeOf(chunk: Chunk, line: number): number | null {
  return chunk.times?.findLast(([from]) => from <= line)?.[1] ?? null;
}

/** Which line of a chunk begins at a byte of the rank's output. */
export function lineAt(chunk: Chunk, offset: number): number {
  const bytes = new TextEncoder().encode(chunk.text).subarray(0, Math.max(0, offset - (chunk.offset ?? 0)));
  let found = 0;
  for (const byte of bytes) if (byte === 10) found += 1;
  return found;
}

const NEAR = 15; // seconds around a moment within which a line that names its step is looked for

/** The index of the line of a moment: the nearest that names the step, else the last that was not written later.
 *
 * Times are those of chunks, which may have many lines.
 */
export function lineOfTime(lines: LogLine[], time: number, step: number | null = null): number {
  const last = lines.findLastIndex((line) => line.time !== null && line.time <= time);
  const found = last < 0 ? lines.findIndex((line) => line.time !== null) : last;
  if (step === null) return found;
  const named = new RegExp(`(step|iter|iteration|it)\\D{0,12}${step}(?!\\d)`, "i");
  let best = -1;
  for (const [at, line] of lines.entries()) {
    if (line.time === null || Math.abs(line.time - time) > NEAR || !named.test(line.text)) continue;
    if (best < 0 || Math.abs(at - found) < Math.abs(best - found)) best = at;
  }
  return best < 0 ? found : best;
}
