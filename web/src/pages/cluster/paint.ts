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
  /** By the colour of a key: `use-0`, `healthy`, `3`. */
  keys: Record<string, string>;
}

export interface Scene {
  layout: Layout;
  keys: readonly Key[];
  keysOf: KeysOf;
  colours: Colours;
  /** What is seen of the map. */
  top: number;
  width: number;
  height: number;
  hover: Hit | null;
  /** Nodes that are not faint; null: all. */
  lit: ReadonlySet<string> | null;
  /** Whether nodes out of service have a frame: not where health is the colour. */
  frames: boolean;
}

const FAINT = 0.22;

export function paint(context: CanvasRenderingContext2D, scene: Scene): void {
  const { layout, top, height, width } = scene;
  context.clearRect(0, 0, width, height);
  context.save();
  context.translate(0, -top);
  const colours = Object.fromEntries(scene.keys.map((key) => [key.name, scene.colours.keys[key.colour] ?? "#888"]));
  for (const block of layout.blocks) {
    if (block.y > top + height || block.y + block.height < top) continue;
    paintTitle(context, scene, block);
    const first = Math.max(0, Math.floor((top - block.y - TITLE) / layout.pitch)) * block.columns;
    const last = Math.ceil((top + height - block.y - TITLE) / layout.pitch) * block.columns;
    for (let index = first; index < Math.min(last, block.nodes.length); index += 1)
      paintCell(context, scene, block, index, colours);
  }
  if (scene.hover) paintHover(context, scene, scene.hover);
  context.restore();
}

function paintTitle(context: CanvasRenderingContext2D, scene: Scene, block: Block): void {
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const name = block.name || "without one";
  const count = `  ${block.nodes.length}`;
  const room = block.width - context.measureText(count).width;
  const shown = cut(context, name, room);
  context.fillStyle = scene.colours.text;
  context.fillText(shown, block.x, block.y + 8);
  context.fillStyle = scene.colours.dim;
  context.fillText(count, block.x + context.measureText(shown).width, block.y + 8);
}

function cut(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let length = text.length - 1;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
  return `${text.slice(0, length)}…`;
}

function paintCell(
  context: CanvasRenderingContext2D,
  scene: Scene,
  block: Block,
  index: number,
  colours: Record<string, string>,
): void {
  const { layout } = scene;
  const node = block.nodes[index]!;
  const { x, y } = corner(layout, block, index);
  const keys = scene.keysOf(node).slice(0, 3);
  context.globalAlpha = scene.lit && !scene.lit.has(node.name) ? FAINT : 1;
  const wide = layout.cell / keys.length; // jobs of several owners share the cell
  for (const [at, key] of keys.entries()) {
    context.fillStyle = colours[key] ?? scene.colours.dim;
    context.fillRect(x + at * wide, y, wide, layout.cell);
  }
  if (scene.frames && !inService(node)) {
    const line = layout.cell >= 12 ? 2 : 1;
    context.strokeStyle = scene.colours.out;
    context.lineWidth = line;
    context.strokeRect(x + line / 2, y + line / 2, layout.cell - line, layout.cell - line);
  }
  context.globalAlpha = 1;
}

function paintHover(context: CanvasRenderingContext2D, scene: Scene, hit: Hit): void {
  const { x, y } = corner(scene.layout, hit.block, hit.index);
  context.strokeStyle = scene.colours.focus;
  context.lineWidth = 2;
  context.strokeRect(x - 2, y - 2, scene.layout.cell + 4, scene.layout.cell + 4);
}
