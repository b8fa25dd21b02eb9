import type { PageEntry } from "../../router.svelte";

export default {
  path: "/cost",
  title: "Cost",
  key: "o",
  order: 60,
  load: () => import("./Cost.svelte"),
} satisfies PageEntry;
