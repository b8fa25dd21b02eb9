/** By what nodes are grouped and coloured: fields of theirs, their labels, and who uses them. */
import type { Schemas } from "../../api/client";
import { HEALTHS, useOf, type Node } from "./figures";

const FIRST = ["rack", "switch", "link", "zone", "region"]; // labels that most people look for
const SHORTEST = 2; // nodes that share a value, on average, for a label to be worth a group
const COLOURED = 9; // owners or jobs with a colour of their own

/** Ways to group these nodes. */
export function waysToGroup(nodes: readonly Node[]): string[] {
  const values = new Map<string, Set<string>>();
  for (const node of nodes)
    for (const [label, value] of Object.entries(node.labels)) {
      const seen = values.get(label) ?? new Set();
      values.set(label, seen.add(value));
    }
  const labels = [...values]
    .filter(([label, seen]) => FIRST.includes(label) || nodes.length / seen.size >= SHORTEST)
    .map(([label]) => label)
    .sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  return ["pool", "engine", "health", ...labels];
}

function rank(label: string): number {
  const at = FIRST.indexOf(label);
  return at < 0 ? FIRST.length : at;
}

export interface Group {
  name: string;
  nodes: Node[];
}

const natural = new Intl.Collator("en", { numeric: true });

export function grouped(nodes: readonly Node[], by: string): Group[] {
  const found = new Map<string, Node[]>();
  for (const node of nodes) {
    const name = groupOf(node, by);
    const group = found.get(name);
    if (group) group.push(node);
    else found.set(name, [node]);
  }
  return [...found]
    .map(([name, of]) => ({ name, nodes: of }))
    .sort((a, b) => Number(a.name === "") - Number(b.name === "") || natural.compare(a.name, b.name));
}

function groupOf(node: Node, by: string): string {
  if (by === "pool" || by === "engine" || by === "health") return node[by];
  return node.labels[by] ?? "";
}

export function ordered(nodes: readonly Node[]): Node[] {
  return [...nodes].sort((a, b) => natural.compare(a.name, b.name));
}

export type By = "use" | "busy" | "temperature" | "health" | "owner" | "job";
export const WAYS: { by: By; name: string }[] = [
  { by: "use", name: "what is given out" },
  { by: "busy", name: "how busy it is" },
  { by: "temperature", name: "temperature" },
  { by: "health", name: "health" },
  { by: "owner", name: "owner" },
  { by: "job", name: "job" },
];
/** Node → what its launchers measured. */
export type Readings = Record<string, Schemas["NodeReading"]>;

/** A colour and what it stands for. */
export interface Key {
  name: string;
  /** `use-0` to `use-4`, a health, `other`, or a number of the palette. */
  colour: string;
  nodes: number;
}

/** The keys of a node, most often one; a node with jobs of several owners has several. */
export type KeysOf = (node: Node) => string[];

const USES = ["free", "up to a third", "up to two thirds", "more than two thirds", "all in use"];

/** The legend of a way to colour, and which keys of it a node has. */
export function legendOf(nodes: readonly Node[], by: By, readings: Readings = {}): { keys: Key[]; keysOf: KeysOf } {
  if (by === "busy" || by === "temperature") return measured(nodes, by, readings);
  if (by === "use") return counted(nodes, USES.map((name, at) => ({ name, colour: `use-${at}`, nodes: 0 })), (node) => [USES[level(useOf(node))]!]); // prettier-ignore
  if (by === "health") return counted(nodes, HEALTHS.map((name) => ({ name, colour: name, nodes: 0 })), (node) => [node.health]); // prettier-ignore
  const of = (node: Node): string[] => (by === "owner" ? node.users : node.jobs);
  const sums = new Map<string, number>();
  for (const node of nodes) for (const name of of(node)) sums.set(name, (sums.get(name) ?? 0) + 1);
  const most = [...sums].sort((a, b) => b[1] - a[1] || natural.compare(a[0], b[0])).slice(0, COLOURED);
  const named = new Set(most.map(([name]) => name));
  const keys: Key[] = most.map(([name], at) => ({ name, colour: String(at), nodes: 0 }));
  if (sums.size > COLOURED) keys.push({ name: OTHERS, colour: "other", nodes: 0 });
  keys.push({ name: FREE, colour: "use-0", nodes: 0 });
  return counted(nodes, keys, (node) => {
    const found = [...new Set(of(node).map((name) => (named.has(name) ? name : OTHERS)))];
    return found.length ? found : [useOf(node) > 0 && !node.jobs.length ? OTHERS : FREE];
  });
}

const NONE = "no reading";
const STEPS: Record<"busy" | "temperature", { below: number; name: string; colour: string }[]> = {
  busy: [
    { below: 0.1, name: "below 10 %", colour: "use-1" },
    { below: 0.5, name: "10 to 50 %", colour: "use-2" },
    { below: 0.8, name: "50 to 80 %", colour: "use-3" },
    { below: Infinity, name: "above 80 %", colour: "use-4" },
  ],
  temperature: [
    { below: 50, name: "below 50 °C", colour: "heat-0" },
    { below: 65, name: "50 to 65 °C", colour: "heat-1" },
    { below: 75, name: "65 to 75 °C", colour: "heat-2" },
    { below: 85, name: "75 to 85 °C", colour: "heat-3" },
    { below: Infinity, name: "85 °C or more", colour: "heat-4" },
  ],
};

/** Of nodes on which work runs; the others have no reading. */
function measured(
  nodes: readonly Node[],
  by: "busy" | "temperature",
  readings: Readings,
): { keys: Key[]; keysOf: KeysOf } {
  const keys = [...STEPS[by], { name: NONE, colour: "use-0" }].map(({ name, colour }) => ({ name, colour, nodes: 0 }));
  return counted(nodes, keys, (node) => {
    const value = by === "busy" ? readings[node.name]?.use : readings[node.name]?.temperature;
    return [value == null ? NONE : STEPS[by].find((step) => value < step.below)!.name];
  });
}

const OTHERS = "others";
const FREE = "free";

function counted(nodes: readonly Node[], keys: Key[], keysOf: KeysOf): { keys: Key[]; keysOf: KeysOf } {
  const sums = new Map<string, number>();
  for (const node of nodes) for (const name of keysOf(node)) sums.set(name, (sums.get(name) ?? 0) + 1);
  const seen = new Set(keys.map((key) => key.name));
  const missing = sums.has(OTHERS) && !seen.has(OTHERS) ? [{ name: OTHERS, colour: "other", nodes: 0 }] : [];
  const all = [...keys, ...missing].map((key) => ({ ...key, nodes: sums.get(key.name) ?? 0 }));
  return { keys: all.filter((key) => key.nodes > 0), keysOf };
}

/** 0 to 4. */
function level(use: number): number {
  return use === 0 ? 0 : use >= 0.999 ? 4 : use > 2 / 3 ? 3 : use > 1 / 3 ? 2 : 1;
}
