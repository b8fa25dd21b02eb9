import type { PageEntry } from "../../router.svelte";

export default {
  path: "/queue",
  title: "Queue",
  key: "q",
  order: 10,
  load: () => import("./Queue.svelte"),
} satisfies PageEntry;
