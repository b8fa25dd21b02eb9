import type { PageEntry } from "../../router.svelte";

export default {
  path: "/runs/:run",
  title: "Run",
  load: () => import("./Run.svelte"),
} satisfies PageEntry;
