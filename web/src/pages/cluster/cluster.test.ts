import { expect, test } from "vitest";
import { figuresOf, useOf, type Node } from "./figures";
import { grouped, legendOf, ordered, waysToGroup } from "./groups";
import { cellAt, corner, layOut, neighbour } from "./layout";

function node(name: string, free: number, more: Partial<Node> = {}): Node {
  const resources = {
    cpus: 64,
    memory: 1e12,
    accelerator: "H100",
    accelerators: 8,
    share: 1000,
    accelerator_memory: 0,
  };
  return {
    name, engine: "local", role: "node", pool: "main", health: "healthy", why: "", labels: {}, total: resources,
    free: { ...resources, accelerators: free }, used: null, jobs: [], users: [], failures: 0, spare: false, ...more,
  }; // prettier-ignore
}

test("free accelerators on nodes in use are fragments; a gang needs whole nodes", () => {
  const nodes = [node("a", 8), node("b", 3), node("c", 0), node("d", 8, { health: "draining" })];
  const [found] = figuresOf(nodes);
  expect(found).toMatchObject({ nodes: 4, out: 1, total: 24, used: 13, free: 11, scattered: 3 });
  expect(found!.gangs).toEqual([
    { each: 8, nodes: 1 },
    { each: 4, nodes: 1 },
    { each: 2, nodes: 2 },
    { each: 1, nodes: 2 },
  ]);
  expect(nodes.map(useOf)).toEqual([0, 0.625, 1, 0]);
});

test("labels that single nodes have are no groups; racks are, and nodes without one come last", () => {
  const nodes = ["n10", "n2", "n3"].map((name) => node(name, 8, { labels: { rack: "r1", host: name } }));
  const all = [...nodes, node("n4", 8)];
  expect(waysToGroup(all)).toEqual(["pool", "engine", "health", "rack"]);
  expect(grouped(ordered(all), "rack").map((one) => [one.name, one.nodes.map((at) => at.name)])).toEqual([
    ["r1", ["n2", "n3", "n10"]],
    ["", ["n4"]],
  ]);
});

test("legends count nodes, and name the owners with most nodes", () => {
  const nodes = [
    node("a", 8),
    node("b", 0, { jobs: ["x-1"], users: ["ada"] }),
    node("c", 0, { jobs: ["x-1", "y-2"], users: ["ada", "bob"] }),
  ];
  const { keys, keysOf } = legendOf(nodes, "owner");
  expect(keys.map((key) => [key.name, key.nodes])).toEqual([
    ["ada", 2],
    ["bob", 1],
    ["free", 1],
  ]);
  expect(keysOf(nodes[2]!)).toEqual(["ada", "bob"]);
  const many = Array.from({ length: 12 }, (_, at) => node(`n${at}`, 0, { jobs: [`j-${at}`], users: [`u${at}`] }));
  expect(legendOf(many, "job").keys.at(-1)).toMatchObject({ name: "others", nodes: 3 });
});

test("every cell is found where it is drawn, and arrows lead to all of them", () => {
  const nodes = Array.from({ length: 500 }, (_, at) => node(`n${at}`, 8, { labels: { rack: `r${at % 7}` } }));
  const layout = layOut(grouped(nodes, "rack"), 600);
  let seen = 0;
  for (const block of layout.blocks) {
    expect(block.x + block.columns * layout.pitch).toBeLessThanOrEqual(600);
    for (const [index, one] of block.nodes.entries()) {
      const { x, y } = corner(layout, block, index);
      expect(cellAt(layout, x + 1, y + 1)?.node).toBe(one);
      seen += 1;
    }
  }
  expect(seen).toBe(500);
  let at = neighbour(layout, null, "ArrowRight");
  for (let step = 1; step < 500; step += 1) at = neighbour(layout, at, "ArrowRight");
  expect(at?.node).toBe(layout.blocks.at(-1)!.nodes.at(-1));
  expect(neighbour(layout, at, "ArrowUp")?.node).not.toBe(at?.node);
});

test("what is measured is in steps, and a node without work has no reading", () => {
  const nodes = [node("a", 0), node("b", 0), node("c", 8)];
  const reading = (name: string, temperature: number | null, use: number | null) => ({
    name, memory: null, available: null, disk: null, use, temperature, devices: [],
  }); // prettier-ignore
  const readings = { a: reading("a", 85, 0.95), b: reading("b", 49.9, 0.1) };
  const heat = legendOf(nodes, "temperature", readings);
  expect(nodes.map((one) => heat.keysOf(one))).toEqual([["85 °C or more"], ["below 50 °C"], ["no reading"]]);
  const busy = legendOf(nodes, "busy", readings);
  expect(busy.keys.map((key) => [key.name, key.nodes])).toEqual([
    ["10 to 50 %", 1],
    ["above 80 %", 1],
    ["no reading", 1],
  ]);
});
