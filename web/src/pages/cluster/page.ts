import type { PageEntry } from "../../router.svelte";

export default {
  path: "/cluster",
  title: "Cluster",
  key: "c",
  order: 20,
  load: () => import("./Cluster.svelte"),
} satisfies PageEntry;
