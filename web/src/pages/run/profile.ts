/** The profiles of ranks as one tree: who called whom, and how often each was seen. */
import type { Schemas } from "../../api/client";

type Rank = Schemas["RankStacks"];
export interface Call {
  name: string;
  where: string;
  /** Samples in which it was on the stack here. */
  count: number;
  /** The most frequent first. */
  calls: Call[];
}

export function treeOf(ranks: Rank[]): Call {
  const root: Call = { name: "all", where: "", count: 0, calls: [] };
  for (const { profile } of ranks) {
    if (!profile) continue;
    for (const { at, count } of profile.stacks) {
      root.count += count;
      let here = root;
      for (const place of at) {
        const frame = profile.frames[place]!;
        const where = frame.file ? `${frame.file}:${frame.line}` : "";
        let next = here.calls.find((one) => one.name === frame.function && one.where === where);
        if (!next) here.calls.push((next = { name: frame.function, where, count: 0, calls: [] }));
        next.count += count;
        here = next;
      }
    }
  }
  sort(root);
  return root;
}

/** A stretch of calls as it is drawn: from 0 to 1 of the width, so deep. */
export interface Bar {
  call: Call;
  start: number;
  width: number;
  depth: number;
}

/** Those that are wide enough to be seen; a call is below who called it. */
export function barsOf(root: Call, least = 0.002): Bar[] {
  const found: Bar[] = [];
  const add = (call: Call, start: number, depth: number): void => {
    const width = root.count ? call.count / root.count : 0;
    if (width < least) return;
    if (depth >= 0) found.push({ call, start, width, depth });
    for (const one of call.calls) {
      add(one, start, depth + 1);
      start += root.count ? one.count / root.count : 0;
    }
  };
  add(root, 0, -1);
  return found;
}

export interface Hot {
  name: string;
  file: string;
  own: number;
}

/** The functions in which the time went, without what they called. */
export function hottest(ranks: Rank[], most: number): Hot[] {
  const found = new Map<string, Hot>();
  for (const { profile } of ranks) {
    for (const { at, count } of profile?.stacks ?? []) {
      const frame = profile!.frames[at.at(-1)!];
      if (!frame) continue;
      const key = `${frame.function}\n${frame.file}`;
      const one = found.get(key) ?? { name: frame.function, file: frame.file, own: 0 };
      one.own += count;
      found.set(key, one);
    }
  }
  return [...found.values()].sort((a, b) => b.own - a.own).slice(0, most);
}

function sort(call: Call): void {
  call.calls.sort((a, b) => b.count - a.count || a.name.localeCompare(b.name));
  for (const one of call.calls) sort(one);
}
