/** What is used and free on nodes, and how much of the free is of use: fragments, and the largest gang that fits now. */
import type { Schemas } from "../../api/client";

export type Node = Schemas["NodeView"];
export const HEALTHS = ["healthy", "suspect", "draining", "quarantined"] as const;

/** Whether work is started on it. */
export function inService(node: Node): boolean {
  return node.health === "healthy";
}

/** From 0 to 1: of its accelerators, or of its CPUs if it has none. */
export function useOf(node: Node): number {
  const [total, free] = node.total.accelerators
    ? [node.total.accelerators, node.free.accelerators]
    : [node.total.cpus, node.free.cpus];
  return total ? Math.min(1, Math.max(0, 1 - free / total)) : 0;
}

export interface Figures {
  pool: string;
  /** `CPUs` for nodes without accelerators. */
  kind: string;
  nodes: number;
  out: number;
  total: number;
  used: number;
  free: number;
  /** Of the free ones, those on nodes that are in use already. */
  scattered: number;
  /** For a need of so many on each node, the most nodes that a gang can have now. */
  gangs: { each: number; nodes: number }[];
}

/** By pool and kind of hardware; what is out of service counts in `nodes` and `out` alone. */
export function figuresOf(nodes: readonly Node[]): Figures[] {
  const found = new Map<string, { figures: Figures; free: number[]; each: number }>();
  for (const node of nodes) {
    const kind = node.total.accelerators ? node.total.accelerator : "CPUs";
    const key = `${node.pool}\n${kind}`;
    const known = found.get(key) ?? { figures: empty(node.pool, kind), free: [], each: 0 };
    found.set(key, known);
    const { figures } = known;
    figures.nodes += 1;
    if (!inService(node)) {
      figures.out += 1;
      continue;
    }
    const counts = node.total.accelerators > 0;
    const total = counts ? node.total.accelerators : node.total.cpus;
    const free = Math.min(total, Math.max(0, counts ? node.free.accelerators : node.free.cpus));
    figures.total += total;
    figures.free += free;
    figures.used += total - free;
    if (free < total) figures.scattered += free;
    known.free.push(free);
    known.each = Math.max(known.each, total);
  }
  for (const { figures, free, each } of found.values())
    figures.gangs = halves(each).map((need) => ({ each: need, nodes: free.filter((left) => left >= need).length }));
  return [...found.values()].map((one) => one.figures).sort((a, b) => b.nodes - a.nodes);
}

function empty(pool: string, kind: string): Figures {
  return { pool, kind, nodes: 0, out: 0, total: 0, used: 0, free: 0, scattered: 0, gangs: [] };
}

/** 8, 4, 2, 1 */
function halves(most: number): number[] {
  const found: number[] = [];
  for (let need = Math.floor(most); need >= 1 && found.length < 4; need = Math.floor(need / 2)) found.push(need);
  return found;
}
