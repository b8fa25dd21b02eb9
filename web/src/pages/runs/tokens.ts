/** Splits a query into its words, as the server does; what is not finished is a token, too. */
export interface Token {
  kind: "word" | "text" | "operator" | "(" | ")" | ",";
  text: string;
  start: number;
  end: number;
}

const OPERATORS = ["==", "!=", "<=", ">=", "!~", "<>", "=", "<", ">", "~"];
const WORD = /[^\s()<>=!~,'"`]+/y;

export function tokens(text: string): Token[] {
  const found: Token[] = [];
  let at = 0;
  while (at < text.length) {
    const letter = text[at]!;
    if (/\s/.test(letter)) {
      at += 1;
      continue;
    }
    const token = next(text, at, letter);
    found.push(token);
    at = token.end;
  }
  return found;
}

function next(text: string, at: number, letter: string): Token {
  if (letter === "(" || letter === ")" || letter === ",") return { kind: letter, text: letter, start: at, end: at + 1 };
  if (letter === '"' || letter === "'") {
    const end = closed(text, at);
    return { kind: "text", text: text.slice(at, end), start: at, end };
  }
  const sign = OPERATORS.find((one) => text.startsWith(one, at));
  if (sign) return { kind: "operator", text: sign, start: at, end: at + sign.length };
  const end = wordEnd(text, at);
  return { kind: "word", text: text.slice(at, end), start: at, end };
}

/** A word may have names in backquotes, and quoted ones after a dot. */
function wordEnd(text: string, start: number): number {
  let at = start;
  while (at < text.length) {
    const letter = text[at]!;
    if (letter === "`" || ((letter === '"' || letter === "'") && text[at - 1] === "." && at > start)) {
      at = closed(text, at);
      continue;
    }
    WORD.lastIndex = at;
    const found = WORD.exec(text);
    if (!found) break;
    at = WORD.lastIndex;
  }
  return Math.max(at, start + 1);
}

/** Where the quoted text ends that begins at `start`. */
function closed(text: string, start: number): number {
  const quote = text[start]!;
  let at = start + 1;
  while (at < text.length && text[at] !== quote) at += text[at] === "\\" && quote !== "`" ? 2 : 1;
  return Math.min(at + 1, text.length);
}
