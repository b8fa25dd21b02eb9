import type { PageEntry } from "../../router.svelte";

export default {
  path: "/data",
  title: "Data",
  key: "t",
  order: 65,
  load: () => import("./Data.svelte"),
} satisfies PageEntry;
