/** The time, for "3 min ago": it moves every few seconds while somebody looks. */
class Now {
  seconds = $state(Date.now() / 1000);
}
export const now = new Now();
setInterval(() => {
  if (!document.hidden) now.seconds = Date.now() / 1000;
}, 5000);
document.addEventListener("visibilitychange", () => (now.seconds = Date.now() / 1000));
