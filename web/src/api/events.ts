/** A reader of server-sent events by `fetch`, which also tells a refusal from a break; frames may be cut anywhere. */
import { request } from "./client";

export interface Frame {
  id: string | null;
  event: string;
  data: string;
}

export async function* frames(url: string, signal: AbortSignal, lastId: string | null = null): AsyncGenerator<Frame> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (lastId !== null) headers["Last-Event-ID"] = lastId;
  const response = await request("get", url, undefined, signal, headers);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const parse = parser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield* parse(value);
  }
}

/** Frames of the text so far; what is not complete is kept for the next call. */
export function parser(): (text: string) => Frame[] {
  let rest = "";
  return (text) => {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop()!;
    return blocks.flatMap((block) => {
      const found: Frame = { id: null, event: "message", data: "" };
      let seen = false;
      for (const line of block.split("\n")) {
        const [field, value] = split(line);
        if (field === "id") found.id = value;
        else if (field === "event") found.event = value;
        else if (field === "data") {
          found.data += seen ? `\n${value}` : value;
          seen = true;
        }
      }
      return seen ? [found] : [];
    });
  };
}

function split(line: string): [string, string] {
  const colon = line.indexOf(":");
  if (colon < 0) return [line, ""];
  return [line.slice(0, colon), line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1)];
}
