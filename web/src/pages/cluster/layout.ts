/** Where the cells of nodes lie: groups one after the other like words, each with its name above its cells. */
import type { Group } from "./groups";
import type { Node } from "./figures";

export interface Block {
  name: string;
  nodes: Node[];
  x: number;
  y: number; // of the name
  columns: number;
  width: number;
  height: number;
}

export interface Layout {
  blocks: Block[];
  cell: number;
  pitch: number;
  height: number;
}

export const TITLE = 20; // pixels of a group's name
const GAP = 14; // pixels between groups
const NAME = 92; // pixels that a name has at least

/** Smaller cells for more nodes, so that ten thousand fit on one screen. */
export function cellFor(nodes: number): number {
  return nodes <= 150 ? 26 : nodes <= 600 ? 18 : nodes <= 2500 ? 12 : nodes <= 6000 ? 9 : 7;
}

export function layOut(groups: readonly Group[], width: number): Layout {
  const count = groups.reduce((sum, group) => sum + group.nodes.length, 0);
  const cell = cellFor(count);
  const pitch = cell + (cell >= 12 ? 3 : cell >= 9 ? 2 : 1);
  const most = Math.max(1, Math.floor(width / pitch));
  const blocks: Block[] = [];
  let [x, y, tall] = [0, 0, 0];
  for (const group of groups) {
    const columns = groups.length === 1 ? most : Math.min(most, columnsFor(group.nodes.length));
    const wide = Math.min(width, Math.max(columns * pitch, NAME));
    const height = TITLE + Math.ceil(group.nodes.length / columns) * pitch;
    if (x > 0 && x + wide > width) {
      x = 0;
      y += tall + GAP;
      tall = 0;
    }
    blocks.push({ name: group.name, nodes: group.nodes, x, y, columns, width: wide, height });
    x += wide + GAP;
    tall = Math.max(tall, height);
  }
  return { blocks, cell, pitch, height: y + tall };
}

/** A block about twice as wide as tall, in whole eights where it has many. */
function columnsFor(nodes: number): number {
  const wide = Math.ceil(Math.sqrt(nodes * 2.5));
  return wide <= 8 ? Math.max(1, Math.min(nodes, 8)) : Math.ceil(wide / 8) * 8;
}

/** The top left corner of a cell. */
export function corner(layout: Layout, block: Block, index: number): { x: number; y: number } {
  return {
    x: block.x + (index % block.columns) * layout.pitch,
    y: block.y + TITLE + Math.floor(index / block.columns) * layout.pitch,
  };
}

export interface Hit {
  block: Block;
  index: number;
  node: Node;
}

/** The cell at a place; the gap after a cell belongs to it. */
export function cellAt(layout: Layout, x: number, y: number): Hit | null {
  for (const block of layout.blocks) {
    if (x < block.x || x >= block.x + block.columns * layout.pitch || y < block.y + TITLE) continue;
    if (y >= block.y + block.height) continue;
    const column = Math.floor((x - block.x) / layout.pitch);
    const index = Math.floor((y - block.y - TITLE) / layout.pitch) * block.columns + column;
    const node = block.nodes[index];
    if (node) return { block, index, node };
  }
  return null;
}

/** The cell that an arrow key leads to: along the row, else the nearest one above or below. */
export function neighbour(layout: Layout, from: Hit | null, key: string): Hit | null {
  const first = layout.blocks.find((block) => block.nodes.length);
  if (!from) return first ? { block: first, index: 0, node: first.nodes[0]! } : null;
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const step = key === "ArrowRight" ? 1 : -1;
    const at = layout.blocks.indexOf(from.block);
    const next = from.block.nodes[from.index + step];
    if (next) return { block: from.block, index: from.index + step, node: next };
    const block = layout.blocks[at + step];
    const index = block ? (step > 0 ? 0 : block.nodes.length - 1) : 0;
    return block ? { block, index, node: block.nodes[index]! } : from;
  }
  const { x, y } = corner(layout, from.block, from.index);
  const down = key === "ArrowDown";
  for (let to = y + (down ? layout.pitch : -1); to >= 0 && to <= layout.height; to += down ? 4 : -4) {
    const found = cellAt(layout, x + 1, to);
    if (found && found.node !== from.node) return found;
  }
  return from;
}
