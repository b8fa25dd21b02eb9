/** The entry of the pages: the frame, its styles, and links that stay within the page. */
import { mount } from "svelte";
import "./app.css";
import { signed } from "./api/session.svelte";
import App from "./App.svelte";
import { followLinks, router } from "./router.svelte";

// Who is signed in, and the code of the page that is opened: both are asked for at once, before anything is drawn.
void signed.load().catch(() => undefined);
void router.found?.page.load().catch(() => undefined); // the frame loads it again, and shows what went wrong
document.addEventListener("click", followLinks);
mount(App, { target: document.getElementById("app")! });
