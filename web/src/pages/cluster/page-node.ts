import type { PageEntry } from "../../router.svelte";

export default {
  path: "/cluster/:node",
  title: "Node",
  load: () => import("./NodePage.svelte"),
} satisfies PageEntry;
