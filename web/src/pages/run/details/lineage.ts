/** Places of a lineage's nodes: what the run was made from at its left, what was made from it at its right. */
import type { Schemas } from "../../../api/client";

type Tree = Schemas["LineageNode"];

export interface Box {
  ref: string;
  kind: string; // run, data, checkpoint, artifact, model
  name: string;
  role: string; // of the link that leads to it
  column: number; // 0 is the run itself; those before it are negative
  row: number;
  /** What is not shown behind it. */
  more: string;
  href: string | null;
  parent: Box | null;
}

/** All boxes, with the run's own first. Rows are shared by both sides. */
export function boxes(ref: string, up: Tree | undefined, down: Tree | undefined): Box[] {
  const root = boxOf({ ref, role: "", about: {}, nodes: [], left_out: 0, seen: false, cut: false }, 0, null);
  const sides = [laid(up, -1, root), laid(down, 1, root)];
  const middle = Math.max(...sides.map((side) => side.rows), 1);
  root.row = (middle - 1) / 2;
  for (const side of sides) for (const box of side.found) box.row += (middle - side.rows) / 2;
  return [root, ...sides.flatMap((side) => side.found)];
}

function laid(tree: Tree | undefined, way: 1 | -1, root: Box): { found: Box[]; rows: number } {
  const found: Box[] = [];
  let rows = 0;
  const walk = (node: Tree, column: number, parent: Box): number => {
    const box = boxOf(node, column, parent);
    found.push(box);
    const places = node.nodes.map((child) => walk(child, column + way, box));
    box.row = places.length ? (places[0]! + places.at(-1)!) / 2 : rows++;
    return box.row;
  };
  for (const node of tree?.nodes ?? []) walk(node, way, root);
  return { found, rows };
}

function boxOf(node: Tree, column: number, parent: Box | null): Box {
  const colon = node.ref.indexOf(":");
  const [kind, name] = colon < 0 ? ["hidden", node.ref] : [node.ref.slice(0, colon), node.ref.slice(colon + 1)];
  const more = [
    node.left_out ? `${node.left_out} older left out` : "",
    node.cut ? "goes on" : "",
    node.seen ? "shown elsewhere" : "",
  ];
  return { ref: node.ref, kind, name, role: node.role, column, row: 0, more: more.filter(Boolean).join(", "), href: hrefOf(kind, name), parent }; // prettier-ignore
}

function hrefOf(kind: string, name: string): string | null {
  if (kind === "run") return `/runs/${encodeURIComponent(name)}`;
  if (kind === "checkpoint" || kind === "artifact")
    return `/runs/${encodeURIComponent(name.slice(0, name.indexOf("/")))}?tab=details`;
  if (kind === "data") return `/data/${encodeURIComponent(name)}`;
  if (kind === "model") return `/models/${encodeURIComponent(name.slice(0, name.lastIndexOf("/")))}`;
  return null;
}
