/** Who is signed in, and what they may do. The server decides again with each request; this decides what is offered. */
import { api, setCsrf, watchers, type Schemas } from "./client";

export type Session = Schemas["SessionView"];
export type Role = "viewer" | "member" | "admin";
const KEPT = "muster.csrf";
const ORDER: Role[] = ["viewer", "member", "admin"];

class Signed {
  session = $state<Session | null>(null);
  known = $state(false); // whether the server was asked
  away = $state(false); // the server does not answer

  /** Whether somebody was signed in here when this tab looked last. */
  get maybe(): boolean {
    return localStorage.getItem(KEPT) !== null;
  }

  async load(): Promise<void> {
    setCsrf(localStorage.getItem(KEPT) ?? "");
    try {
      this.take(await api.get("/v1/session"));
    } finally {
      this.known = true;
    }
  }

  /** A session has begun. Its second half is kept where only pages of this origin, port included, can read it. */
  begin(began: Schemas["SessionBegan"]): void {
    localStorage.setItem(KEPT, began.csrf);
    setCsrf(began.csrf);
    this.take(began);
  }

  /** The same for a session that began at the server's own address for it. A link with a wrong half changes nothing. */
  async resume(csrf: string): Promise<void> {
    setCsrf(csrf);
    try {
      this.take(await api.get("/v1/session"));
      localStorage.setItem(KEPT, csrf);
    } catch (error) {
      await this.load().catch(() => undefined);
      throw error;
    }
  }

  take(session: Session): void {
    this.session = session;
    this.known = true;
  }

  async leave(): Promise<void> {
    await api.delete("/v1/session");
    localStorage.removeItem(KEPT);
    this.session = null;
  }

  /** Whether the role is held in the project. */
  may(project: string, role: Role): boolean {
    const session = this.session;
    if (session === null) return false;
    if (session.superuser) return true;
    const held = session.projects[project];
    return held !== undefined && held !== null && ORDER.indexOf(held) >= ORDER.indexOf(role);
  }

  get superuser(): boolean {
    return this.session?.superuser ?? false;
  }
}

export const signed = new Signed();
// Another tab has signed in or out.
addEventListener("storage", (event) => {
  if (event.key === KEPT) void signed.load().catch(() => undefined);
});
watchers.away = (away) => (signed.away = away);
watchers.signedOut = () => (signed.session = null);
