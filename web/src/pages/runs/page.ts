import type { PageEntry } from "../../router.svelte";

export default {
  path: "/runs",
  title: "Runs",
  key: "r",
  order: 30,
  load: () => import("./Runs.svelte"),
} satisfies PageEntry;
