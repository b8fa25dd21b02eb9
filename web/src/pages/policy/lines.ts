/** The lines that differ between two texts: what stays, what goes, and what is new, in order. */
export interface Line {
  mark: " " | "-" | "+";
  text: string;
}
const MOST = 4000; // lines of the two texts together that are compared one by one

export function difference(before: string, after: string): Line[] {
  const [old, made] = [split(before), split(after)];
  let head = 0;
  while (head < old.length && head < made.length && old[head] === made[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < made.length - head && old.at(-1 - tail) === made.at(-1 - tail)) tail += 1;
  const middle = between(old.slice(head, old.length - tail), made.slice(head, made.length - tail));
  return [...same(old.slice(0, head)), ...middle, ...same(old.slice(old.length - tail))];
}

/** Only lines near a difference, with the number of those that are left out in between. */
export function near(lines: readonly Line[], context = 3): (Line | number)[] {
  const kept = lines.map((_, at) =>
    lines.slice(Math.max(0, at - context), at + context + 1).some((one) => one.mark !== " "),
  );
  const found: (Line | number)[] = [];
  let left = 0;
  for (const [at, line] of lines.entries()) {
    if (kept[at]) {
      if (left) found.push(left);
      left = 0;
      found.push(line);
    } else left += 1;
  }
  if (left) found.push(left);
  return found;
}

function split(text: string): string[] {
  return text === "" ? [] : text.replace(/\n$/, "").split("\n");
}

function same(texts: readonly string[]): Line[] {
  return texts.map((text) => ({ mark: " ", text }));
}

/** By the longest common subsequence; texts that are too long for that are replaced as a whole. */
function between(old: readonly string[], made: readonly string[]): Line[] {
  const whole: Line[] = [
    ...old.map((text): Line => ({ mark: "-", text })),
    ...made.map((text): Line => ({ mark: "+", text })),
  ];
  if (old.length === 0 || made.length === 0 || old.length + made.length > MOST) return whole;
  const width = made.length + 1;
  const common = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = made.length - 1; j >= 0; j -= 1) {
      common[i * width + j] =
        old[i] === made[j]
          ? common[(i + 1) * width + j + 1]! + 1
          : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
    }
  }
  const found: Line[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < made.length) {
    if (i < old.length && j < made.length && old[i] === made[j]) {
      found.push({ mark: " ", text: old[i]! });
      i += 1;
      j += 1;
    } else if (j >= made.length || (i < old.length && common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) {
      found.push({ mark: "-", text: old[i]! });
      i += 1;
    } else {
      found.push({ mark: "+", text: made[j]! });
      j += 1;
    }
  }
  return found;
}
