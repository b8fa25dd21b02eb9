/** Completion of a query while it is typed: what may stand at the caret, after what is before it. */
import type { Schemas } from "../../api/client";
import { tokens, type Token } from "./tokens";

export type FieldView = Schemas["FieldView"];
export interface Option {
  text: string;
  note: string;
}
export interface Completion {
  /** The part of the text that an option replaces. */
  from: number;
  to: number;
  options: Option[];
}

export const PHASES = ["queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"];
const PARTS = ["min", "max", "last", "step", "time", "points", "nans"];
const COMPARED = ["=", "!=", "<", "<=", ">", ">=", "in", "not in", "exists"];
const WORDS = ["=", "!=", "~", "!~", "in", "not in", "like", "ilike", "exists"];
const NOTES: Record<string, string> = {
  column: "text", commit: "how it begins", number: "number", duration: "time span", time: "time", flag: "yes or no",
  metric: "metric", param: "parameter", tag: "tag", data: "data set", note: "logbook", env: "environment",
}; // prettier-ignore
const MEANS: Record<string, string> = {
  "=": "equal", "!=": "another value", "~": "contains", "!~": "does not contain", in: "one of (a, b)",
  "not in": "none of (a, b)", like: "% is any text", ilike: "in either case", exists: "has it at all",
}; // prettier-ignore
const MOST = 50;

type Expected = "field" | "has" | "operator" | "value" | "open" | "joiner";

/** What is typed of a field's name at the caret; null where no field can stand. */
export function fieldAt(text: string, caret: number): string | null {
  const { expected, partial } = read(text, caret, []);
  return expected === "field" || expected === "has" ? (partial?.text.replaceAll("`", "") ?? "") : null;
}

/** `seen`: values that runs were seen to have in a field. */
export function complete(
  text: string,
  caret: number,
  fields: FieldView[],
  seen: (field: string) => string[] = () => [],
): Completion {
  const { expected, partial, field } = read(text, caret, fields);
  const typed = partial?.text ?? "";
  const [from, to] = partial ? [partial.start, Math.max(partial.end, wordEnd(text, caret, partial))] : [caret, caret];
  const options = offered(expected, typed, field, fields, seen);
  const exact = options.length === 1 && options[0]!.text === typed;
  return { from, to, options: exact ? [] : options.slice(0, MOST) };
}

/** The text with the option in its place, and where the caret is then. */
export function accepted(text: string, found: Completion, option: Option): { text: string; caret: number } {
  const before = text.slice(0, found.from) + option.text;
  const rest = text.slice(found.to);
  const space = rest.startsWith(" ") || option.text.endsWith("(") ? "" : " ";
  return { text: before + space + rest, caret: before.length + (option.text.endsWith("(") ? 0 : 1) };
}

function offered(
  expected: Expected,
  typed: string,
  field: FieldView | null,
  fields: FieldView[],
  seen: (field: string) => string[],
): Option[] {
  const like = (words: string[], note: (word: string) => string): Option[] =>
    matching(words, typed).map((text) => ({ text, note: note(text) }));
  if (expected === "field" || expected === "has") {
    const named = like(
      fields.map((one) => one.field),
      (word) => NOTES[fields.find((one) => one.field === word)!.kind] ?? "",
    );
    const parts = partsOf(typed, fields);
    if (expected === "has") return [...parts, ...named];
    const words = typed ? [...PHASES, "not", "has"] : ["not", "has"];
    return [...parts, ...named, ...like(words, (word) => (PHASES.includes(word) ? "phase" : ""))];
  }
  if (expected === "operator") {
    const textual = !["metric", "number", "duration", "time", "flag"].includes(field?.kind ?? "");
    const usual = textual && !["param", "tag", "version"].includes(field?.kind ?? "") ? WORDS : COMPARED;
    const all = ["param", "tag", "version"].includes(field?.kind ?? "") ? [...COMPARED, "~", "like"] : usual;
    return like(field?.kind === "flag" ? ["=", "and", "or"] : all, (word) => MEANS[word] ?? "");
  }
  if (expected === "open") return like(["("], () => "");
  if (expected === "joiner") return like(["and", "or"], () => "");
  return like(valuesOf(field, seen), () => "");
}

function partsOf(typed: string, fields: FieldView[]): Option[] {
  const at = typed.lastIndexOf(".");
  const metric = fields.find((one) => one.kind === "metric" && one.field === typed.slice(0, at));
  if (at < 0 || !metric) return [];
  return PARTS.filter((part) => part.startsWith(typed.slice(at + 1))).map((part) => ({
    text: `${metric.field}.${part}`,
    note: "of the metric",
  }));
}

function valuesOf(field: FieldView | null, seen: (field: string) => string[]): string[] {
  if (field?.kind === "phase") return PHASES;
  if (field?.kind === "flag") return ["true", "false"];
  if (field?.kind === "time") return ["today", "yesterday", "-1h", "-24h", "-7d", "-30d"];
  if (field?.kind === "duration") return ["1m", "10m", "1h", "6h", "1d"];
  return field ? [...new Set(seen(field.field))].map(quoted) : [];
}

/** A value as a query can contain it. */
export function quoted(value: string): string {
  return /^[\w.:/+-]+$/.test(value) && !/^(and|or|not|in|has|like|ilike|exists)$/i.test(value)
    ? value
    : `"${value.replace(/[\\"]/g, "\\$&")}"`;
}

/** Those that begin with what is typed, then those that have it; short ones first among equals. */
function matching(words: string[], typed: string): string[] {
  const wanted = typed.toLowerCase();
  const place = (word: string): number => {
    const at = word.toLowerCase().indexOf(wanted);
    return at < 0 ? 9 : at === 0 ? 0 : word[at - 1] === "." ? 1 : 2;
  };
  return words
    .map((word, order) => ({ word, order, place: place(word) }))
    .filter((one) => one.place < 9)
    .sort((a, b) => a.place - b.place || a.order - b.order)
    .map((one) => one.word);
}

interface Read {
  expected: Expected;
  partial: Token | null;
  field: FieldView | null;
}

/** Reads what is before the caret; a word that ends at the caret is still being typed. */
function read(text: string, caret: number, fields: FieldView[]): Read {
  const found = tokens(text.slice(0, caret));
  const last = found.at(-1);
  const typing = last && last.end === caret && ["word", "text"].includes(last.kind) ? last : null;
  let expected: Expected = "field";
  let field: FieldView | null = null;
  let list = false; // within the parentheses of `in`
  for (const token of typing ? found.slice(0, -1) : found) {
    const word = token.kind === "word" ? token.text.toLowerCase() : "";
    if (expected === "field") {
      if (word === "has") expected = "has";
      else if (PHASES.includes(word)) expected = "joiner";
      else if (word && word !== "not") {
        field = known(token.text, fields);
        expected = "operator";
      }
    } else if (expected === "has") expected = "joiner";
    else if (expected === "operator") {
      if (token.kind === "operator" || word === "like" || word === "ilike") expected = "value";
      else if (word === "in") expected = "open";
      else if (word === "exists") expected = "joiner";
      else if (word === "and" || word === "or") expected = "field";
      else if (token.kind === ")") expected = "joiner";
    } else if (expected === "open") {
      list = true;
      expected = "value";
    } else if (expected === "value") expected = "joiner";
    else if (token.kind === "," && list) expected = "value";
    else if (token.kind === ")") list = false;
    else if (word === "and" || word === "or") expected = "field";
  }
  return { expected, partial: typing, field };
}

function known(name: string, fields: FieldView[]): FieldView {
  const found = fields.find((one) => one.field === name || one.field === name.toLowerCase());
  if (found) return found;
  const space = name.split(".")[0]!.toLowerCase();
  const kinds: Record<string, FieldView["kind"]> = { metrics: "metric", params: "param", tags: "tag" };
  return { field: name, kind: kinds[space] ?? "column" };
}

/** Where the word at the caret ends: what is right of the caret belongs to it. */
function wordEnd(text: string, caret: number, partial: Token): number {
  if (partial.kind === "text") return caret;
  const rest = /^[^\s()<>=!~,'"`]*/.exec(text.slice(caret));
  return caret + (rest?.[0].length ?? 0);
}
