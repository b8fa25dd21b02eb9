/** Draws the cells in view onto a canvas. */
import type { KeysOf, Key } from "./groups";
import { corner, TITLE, type Block, type Hit, type Layout } from "./layout";
import { inService } from "./figures";

/** The colours of the page, as the browser resolves them. */
export interface Colours {
  text: string;
  dim: string;
  focus: string;
  out: string;
  /** By the colour of a key: `use-0`, `heat-4`, `healthy`, `3`. */
  keys: Record<string, string>;
}

/** All cells, whatever is seen of them. */
export interface Ground {
  layout: Layout;
  keys: readonly Key[];
  keysOf: KeysOf;
  colours: Colours;
  /** Nodes that are not faint; null: all. */
  lit: ReadonlySet<string> | null;
  /** Whether nodes out of service have a frame: not where health is the colour. */
  frames: boolean;
}

/** What is seen of the map, in pixels of the page. */
export interface View {
  top: number;
  width: number;
  height: number;
}

type Context = CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;
const FAINT = 0.22;

/** Draws the groups that are in view, from its upper left corner on. */
export function paintGround(context: Context, ground: Ground, view: View): void {
  const { layout } = ground;
  const { top, height } = view;
  context.clearRect(0, 0, view.width, height);
  context.save();
  context.translate(0, -top);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const rects = new Map<string, number[]>(); // colour and whether it is faint → corners and widths
  const framed: number[] = [];
  for (const block of layout.blocks) {
    if (block.y > top + height || block.y + block.height < top) continue;
    paintTitle(context, ground, block);
    const first = Math.max(0, Math.floor((top - block.y - TITLE) / layout.pitch)) * block.columns;
    const last = Math.ceil((top + height - block.y - TITLE) / layout.pitch) * block.columns;
    for (let index = first; index < Math.min(last, block.nodes.length); index += 1)
      gather(rects, framed, ground, block, index);
  }
  fill(context, ground, rects);
  frame(context, ground, framed);
  context.restore();
}

export function paintHover(context: Context, ground: Ground, view: View, hit: Hit): void {
  const { x, y } = corner(ground.layout, hit.block, hit.index);
  context.strokeStyle = ground.colours.focus;
  context.lineWidth = 2;
  context.strokeRect(x - 2, y - view.top - 2, ground.layout.cell + 4, ground.layout.cell + 4);
}

function paintTitle(context: Context, ground: Ground, block: Block): void {
  const name = block.name || "without one";
  const count = `  ${block.nodes.length}`;
  const room = block.width - context.measureText(count).width;
  const shown = cut(context, name, room);
  context.fillStyle = ground.colours.text;
  context.fillText(shown, block.x, block.y + 8);
  context.fillStyle = ground.colours.dim;
  context.fillText(count, block.x + context.measureText(shown).width, block.y + 8);
}

function cut(context: Context, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let length = text.length - 1;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
  return `${text.slice(0, length)}…`;
}

/** Cells of one colour are drawn together: to change the colour costs more than to draw a cell. */
function gather(rects: Map<string, number[]>, framed: number[], ground: Ground, block: Block, index: number): void {
  const { layout, lit } = ground;
  const node = block.nodes[index]!;
  const { x, y } = corner(layout, block, index);
  const faint = lit !== null && !lit.has(node.name);
  const keys = ground.keysOf(node);
  const shown = Math.min(3, keys.length); // jobs of several owners share the cell
  const wide = layout.cell / shown;
  for (let at = 0; at < shown; at += 1) {
    const key = `${faint ? "-" : "+"}${keys[at]!}`;
    const known = rects.get(key);
    if (known) known.push(x + at * wide, y, wide);
    else rects.set(key, [x + at * wide, y, wide]);
  }
  if (ground.frames && !inService(node) && !faint) framed.push(x, y);
}

function fill(context: Context, ground: Ground, rects: Map<string, number[]>): void {
  const colours = new Map(ground.keys.map((key) => [key.name, ground.colours.keys[key.colour]]));
  for (const [key, corners] of rects) {
    context.globalAlpha = key.startsWith("-") ? FAINT : 1;
    context.fillStyle = colours.get(key.slice(1)) ?? ground.colours.dim;
    for (let at = 0; at < corners.length; at += 3)
      context.fillRect(corners[at]!, corners[at + 1]!, corners[at + 2]!, ground.layout.cell);
  }
  context.globalAlpha = 1;
}

function frame(context: Context, ground: Ground, framed: number[]): void {
  const { cell } = ground.layout;
  const line = cell >= 12 ? 2 : 1;
  context.strokeStyle = ground.colours.out;
  context.lineWidth = line;
  for (let at = 0; at < framed.length; at += 2)
    context.strokeRect(framed[at]! + line / 2, framed[at + 1]! + line / 2, cell - line, cell - line);
}
