import type { PageEntry } from "../../router.svelte";

export default {
  path: "/policy",
  title: "Policy",
  key: "p",
  order: 80,
  load: () => import("./Policy.svelte"),
} satisfies PageEntry;
