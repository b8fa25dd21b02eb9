/** Builds the pages into the Python package, with compressed copies beside each file. */
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const OUT = "../src/muster/web_pages";
const SMALLEST = 1024; // bytes: below that compression gains nothing

function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      const names = readdirSync(OUT, { recursive: true, withFileTypes: true });
      for (const entry of names) {
        const path = join(entry.parentPath, entry.name);
        if (!entry.isFile() || !/\.(js|css|html|svg|json)$/.test(entry.name)) continue;
        const content = readFileSync(path);
        if (content.length < SMALLEST) continue;
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
        writeFileSync(
          `${path}.br`,
          brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } }),
        );
      }
    },
  };
}

export default defineConfig({
  plugins: [svelte(), compressed()],
  base: "/",
  test: { isolate: false }, // pure functions: nothing is left from one file to the next
  build: {
    outDir: OUT,
    emptyOutDir: true,
    assetsInlineLimit: 0, // a font or picture as a data: address is no file of the server's
    modulePreload: { polyfill: false },
    target: "es2022",
    // Few files: each is a question to the server before anything is seen. What most pages have comes with the entry,
    // charts are a file, and each page is one, with what it shares with one or two others.
    cssCodeSplit: false,
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "index", test: /node_modules\/svelte|src\/(ui|api)\/|src\/[^/]+$/, priority: 2 },
            { name: "charts", test: /node_modules\/uplot|src\/charts\//, priority: 1 },
          ],
        },
      },
    },
  },
});
