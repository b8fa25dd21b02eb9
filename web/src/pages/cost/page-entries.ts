import type { PageEntry } from "../../router.svelte";

export default {
  path: "/cost/entries",
  title: "Entries of the ledger",
  load: () => import("./Entries.svelte"),
} satisfies PageEntry;
