import type { PageEntry } from "../../router.svelte";

export default {
  path: "/people",
  title: "People",
  key: "e",
  order: 90,
  load: () => import("./People.svelte"),
} satisfies PageEntry;
