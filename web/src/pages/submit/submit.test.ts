import { expect, test } from "vitest";
import { flat, placed } from "./problems";
import { aliasesOf, groupsOf, textOf, valueOf, type Schema } from "./schema";

const schema: Schema = {
  properties: {
    name: { type: "string", description: "Its name.", examples: ["gpt"] },
    kind: { type: "string", enum: ["train", "eval"], default: "train" },
    num_nodes: { anyOf: [{ type: "integer" }, { type: "object", properties: { min: {}, max: {} }, additionalProperties: false }] },
    resources: {
      type: "object",
      additionalProperties: false,
      properties: { cpus: { anyOf: [{ type: "number" }, { type: "null" }] } },
    },
    gpus: { type: "integer", description: "The same as `resources.accelerators`." },
    cpus: { type: "number", description: "The same as `resources.cpus`." },
    retry: {
      anyOf: [{ type: "object", properties: { warm: { type: "boolean", default: true } }, additionalProperties: false }, { type: "integer" }],
    },
    secrets: { anyOf: [{ type: "array" }, { type: "string" }] },
    envs: { type: "object", additionalProperties: { type: "string" } },
    use_spot: { type: "boolean", default: false },
    brand_new: { type: "string" },
  },
}; // prettier-ignore

const fields = Object.fromEntries(
  groupsOf(schema).flatMap((group) => group.fields.map((field) => [field.path, field])),
);

test("every field is in the form once, also one that nobody knew of", () => {
  expect(Object.keys(fields).sort()).toEqual(
    ["brand_new", "envs", "kind", "name", "num_nodes", "resources.cpus", "retry.warm", "secrets", "use_spot"].sort(),
  );
  expect(groupsOf(schema).at(-1)).toMatchObject({ title: "More", fields: [{ path: "brand_new" }] });
  expect(Object.values(fields).map((field) => [field.path, field.kind])).toEqual(
    expect.arrayContaining([
      ["kind", "choice"],
      ["num_nodes", "text"],
      ["retry.warm", "flag"],
      ["secrets", "list"],
      ["envs", "mapping"],
    ]),
  );
  expect(aliasesOf(schema)).toEqual({ gpus: "resources.accelerators", cpus: "resources.cpus" });
});

test("what stands in an input is written as in a job file, and back", () => {
  expect(valueOf(fields.num_nodes!, "2-8")).toEqual({ min: "2", max: "8" });
  expect(textOf({ min: "2", max: "8" })).toBe("2-8");
  expect(valueOf(fields.envs!, "LR=3e-4\nEMPTY")).toEqual({ LR: "3e-4", EMPTY: "" });
  expect(textOf({ LR: "3e-4", URL: "a=b" })).toBe("LR=3e-4\nURL=a=b");
  expect(valueOf(fields.secrets!, "A, B\nC")).toEqual(["A", "B", "C"]);
  expect(valueOf(fields.name!, "  ")).toBeNull();
  expect(valueOf(fields["retry.warm"]!, "true")).toBeNull();
  expect(valueOf(fields["retry.warm"]!, "false")).toBe("false");
  expect(valueOf(fields.use_spot!, "false")).toBeNull();
});

test("problems are at their field and on their line, whatever name the field was written with", () => {
  const where = ["resources.cpus (line 2)", "cpus (line 3)", "envs['A B'] (line 4)", "line 7, column 2", "foo (line 9)", "run"];
  const problems = where.map((at) => ({ where: at, given: "", expected: "", hint: "" }));
  const paths = new Set([...Object.keys(fields), "run"]);
  expect(placed(problems, paths, aliasesOf(schema)).map((one) => [one.path, one.line])).toEqual([
    ["resources.cpus", 2],
    ["resources.cpus", 3],
    ["envs", 4],
    ["", 7],
    ["", 9],
    ["run", null],
  ]);
}); // prettier-ignore

test("fields in sections become paths; a mapping that is a field stays whole", () => {
  const paths = new Set(["resources.cpus", "envs", "num_nodes"]);
  const given = { resources: { cpus: 2 }, envs: { A: "1" }, num_nodes: { min: 1, max: 2 } };
  expect(flat(given, paths)).toEqual({ "resources.cpus": 2, envs: { A: "1" }, num_nodes: { min: 1, max: 2 } });
});
