import { api, type Schemas } from "../../api/client";
import { askEarly } from "../../api/early";
import { loadCurve } from "../../charts/curve";
import type { PageEntry } from "../../router.svelte";
import { grouped, measured } from "./curves/groups";
import { earlyName, FIRST, questionOf } from "./curves/question";

const CHARTS = 4; // whose curves are asked for early: the others are below them
const WITH = 1; // of them, that come with the list of series
const CHANGED = ["q", "x", "from", "to", "smooth", "large"]; // what makes the first charts ask for something else

export default {
  path: "/runs/:run",
  title: "Run",
  load: () => import("./Run.svelte"),
  early: ({ run }, query) => {
    const [named, path] = [run!, { ref: run! }];
    askEarly(`page of ${named}`, api.get("/v1/runs/{ref}/page", { path }));
    if ((query.get("tab") ?? "curves") !== "curves") return;
    const usual = !CHANGED.some((one) => query.has(one));
    const first = usual ? { query: { curves: WITH, buckets: FIRST.buckets } } : {};
    const series = api.get("/v1/runs/{ref}/metrics", { path, ...first });
    askEarly(`series of ${named}`, series);
    if (usual) void series.then((found) => firstCurves(named, found), Boolean);
  },
} satisfies PageEntry;

function firstCurves(run: string, found: Schemas["SeriesList"]): void {
  const names = measured(found.series).map((one) => one.name);
  const shown = grouped(names, "").flatMap((group) => group.names);
  for (const name of shown.slice(0, CHARTS)) {
    const there = found.curves?.find((curve) => curve.name === name);
    const asked = there ? Promise.resolve(there) : loadCurve(run, name, FIRST, new AbortController().signal);
    askEarly(earlyName(run, name, questionOf(FIRST)), asked);
  }
}
