/** The few forms of Markdown that runbooks and notes use, as data: nothing of a text ever becomes markup by itself. */
export type Inline = { kind: "text" | "code" | "strong"; text: string } | { kind: "link"; text: string; href: string };
export type Block =
  | { kind: "heading"; level: number; parts: Inline[] }
  | { kind: "paragraph"; parts: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "list"; ordered: boolean; items: Inline[][] };

const FENCE = /^(`{3,}|~{3,})\s*(\w*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^\s*(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;

export function blocks(text: string): Block[] {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const found: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at]!;
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    const item = ITEM.exec(line);
    if (line.trim() === "") at += 1;
    else if (fence) {
      const end = closing(lines, at + 1, fence[1]!);
      found.push({ kind: "code", language: fence[2] ?? "", text: lines.slice(at + 1, end).join("\n") });
      at = end + 1;
    } else if (heading) {
      found.push({ kind: "heading", level: heading[1]!.length, parts: inline(heading[2]!) });
      at += 1;
    } else if (item) {
      const [items, end] = itemsFrom(lines, at);
      found.push({ kind: "list", ordered: item[2] !== undefined, items: items.map(inline) });
      at = end;
    } else {
      const begin = at;
      while (at < lines.length && (at === begin || !begins(lines[at]!))) at += 1;
      found.push({ kind: "paragraph", parts: inline(lines.slice(begin, at).join(" ")) });
    }
  }
  return found;
}

/** Whether something other than the paragraph so far begins with this line. */
function begins(line: string): boolean {
  return line.trim() === "" || FENCE.test(line) || HEADING.test(line) || ITEM.test(line);
}

function closing(lines: string[], from: number, fence: string): number {
  const end = lines.findIndex((line, at) => at >= from && line.trimEnd().startsWith(fence));
  return end < 0 ? lines.length : end;
}

/** The items of a list, with the lines that go on, and the line behind it. */
function itemsFrom(lines: string[], from: number): [string[], number] {
  const items: string[] = [];
  let at = from;
  for (; at < lines.length; at += 1) {
    const line = lines[at]!;
    const item = ITEM.exec(line);
    if (item) items.push(item[3]!);
    else if (begins(line)) break;
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  return [items, at];
}

const INLINE = /(`+)(.+?)\1(?!`)|\*\*(.+?)\*\*|\[([^\]]+)\]\(([^()\s]+)\)/g;

export function inline(text: string): Inline[] {
  const found: Inline[] = [];
  let after = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > after) found.push({ kind: "text", text: text.slice(after, match.index) });
    after = match.index + match[0].length;
    if (match[2] !== undefined) found.push({ kind: "code", text: match[2].trim() });
    else if (match[3] !== undefined) found.push({ kind: "strong", text: match[3] });
    else found.push(link(match[4]!, match[5]!));
  }
  if (after < text.length) found.push({ kind: "text", text: text.slice(after) });
  return found;
}

/** Only addresses that can't run anything are links; those of files beside the text are not there in a browser. */
function link(text: string, href: string): Inline {
  const safe = /^https?:\/\/\S+$/i.test(href) || /^\/(?![/\\])/.test(href);
  return safe ? { kind: "link", text, href } : { kind: "text", text };
}
