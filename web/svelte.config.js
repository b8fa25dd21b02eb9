/** Runes everywhere; styles go into files, since the server allows none in the page. */
export default { compilerOptions: { runes: true, css: "external" } };
