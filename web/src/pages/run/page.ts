import { api } from "../../api/client";
import { askEarly } from "../../api/early";
import type { PageEntry } from "../../router.svelte";

export default {
  path: "/runs/:run",
  title: "Run",
  load: () => import("./Run.svelte"),
  early: ({ run }, query) => {
    const path = { ref: run! };
    askEarly(`page of ${run}`, api.get("/v1/runs/{ref}/page", { path }));
    // The first picture needs the names of the series, too: they are asked for beside the page, and not after it.
    if ((query.get("tab") ?? "curves") === "curves")
      askEarly(`series of ${run}`, api.get("/v1/runs/{ref}/metrics", { path }));
  },
} satisfies PageEntry;
