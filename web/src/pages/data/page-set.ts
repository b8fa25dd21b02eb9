import type { PageEntry } from "../../router.svelte";

export default {
  path: "/data/:name",
  title: "Data set",
  load: () => import("./DataSet.svelte"),
} satisfies PageEntry;
