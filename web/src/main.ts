/** The entry of the pages: the frame, its styles, and links that stay within the page. */
import { mount } from "svelte";
import "./app.css";
import { signed } from "./api/session.svelte";
import App from "./App.svelte";
import { followLinks, router } from "./router.svelte";

// Who is signed in, the code of the page that is opened and what it shows first are asked for at once.
void signed.load().catch(() => undefined);
const opened = router.found;
void opened?.page.load().catch(() => undefined); // the frame loads it again, and shows what went wrong
if (signed.maybe) opened?.page.early?.(opened.params, router.query);
document.addEventListener("click", followLinks);
mount(App, { target: document.getElementById("app")! });
