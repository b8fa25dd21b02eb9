/** The entry of the pages: the frame, its styles, and links that stay within the page. */
import { mount } from "svelte";
import "./app.css";
import App from "./App.svelte";
import { followLinks } from "./router.svelte";

document.addEventListener("click", followLinks);
mount(App, { target: document.getElementById("app")! });
