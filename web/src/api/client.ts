/** Typed requests to the server's API: paths, parameters and answers are those of its OpenAPI document. */
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type ErrorView = Schemas["ErrorView"];
type Method = "get" | "post" | "put" | "patch" | "delete";
type Path = keyof paths;
type Having<M extends Method> = { [P in Path]: paths[P] extends Record<M, { responses: unknown }> ? P : never }[Path];
type Operation<P extends Path, M extends Method> = NonNullable<paths[P][M & keyof paths[P]]>;
type Content<R> = R extends { content: { "application/json": infer A } } ? A : never;
export type Answer<P extends Path, M extends Method> =
  Operation<P, M> extends { responses: infer R } ? { [S in keyof R]: Content<R[S]> }[keyof R] : never;
type Parameters<P extends Path, M extends Method> = Operation<P, M> extends { parameters: infer A } ? A : never;
type Query<P extends Path, M extends Method> = Parameters<P, M> extends { query?: infer Q } ? Q : never;
type Segments<P extends Path, M extends Method> = Parameters<P, M> extends { path: infer S } ? S : undefined;
type Body<P extends Path, M extends Method> =
  Operation<P, M> extends { requestBody?: infer B } ? Content<NonNullable<B>> : undefined;

export interface Options<P extends Path, M extends Method> {
  path?: Segments<P, M>;
  query?: Query<P, M>;
  body?: Body<P, M>;
  signal?: AbortSignal;
}

/** What the server answered instead, or that it did not answer (`away`). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly view: ErrorView,
  ) {
    super(view.message);
  }
  get away(): boolean {
    return this.status === 0;
  }
  /** Whether the same question may be answered soon: the server is away, busy, or starts. */
  get passes(): boolean {
    return this.away || this.status === 429 || this.status === 503;
  }
}

/** Whether the server answers: pages show the last that they know, and say so, while it does not. */
export const watchers: { away: (away: boolean) => void; signedOut: () => void } = {
  away: () => undefined,
  signedOut: () => undefined,
};
let csrf = "";

export function setCsrf(token: string): void {
  csrf = token;
}

export const api = {
  get: <P extends Having<"get">>(path: P, options: Options<P, "get"> = {}) => ask("get", path, options),
  post: <P extends Having<"post">>(path: P, options: Options<P, "post"> = {}) => ask("post", path, options),
  put: <P extends Having<"put">>(path: P, options: Options<P, "put"> = {}) => ask("put", path, options),
  patch: <P extends Having<"patch">>(path: P, options: Options<P, "patch"> = {}) => ask("patch", path, options),
  delete: <P extends Having<"delete">>(path: P, options: Options<P, "delete"> = {}) => ask("delete", path, options),
};

/** The address of a request: `{name}` is filled from `path`; undefined and null are left out of the query. */
export function address(path: string, segments: object = {}, query: object = {}): string {
  const given = segments as Record<string, string | number>;
  const filled = path.replace(/\{(\w+)(?::path)?\}/g, (_, name: string) => encodeURIComponent(String(given[name])));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") search.append(name, String(one));
    }
  }
  return search.size ? `${filled}?${search}` : filled;
}

async function ask<P extends Path, M extends Method>(method: M, path: P, o: Options<P, M>): Promise<Answer<P, M>> {
  const response = await request(method, address(path, o.path ?? {}, o.query ?? {}), o.body, o.signal);
  return (response.status === 204 ? undefined : await response.json()) as Answer<P, M>;
}

/** A request whose answer is not JSON, or whose path is not typed: logs, files, streams. */
export async function request(
  method: string,
  url: string,
  body?: unknown,
  signal?: AbortSignal,
  more: Record<string, string> = {},
): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", ...more };
  if (body !== undefined && !headers["Content-Type"]) headers["Content-Type"] = "application/json";
  if (csrf) headers["X-Muster-CSRF"] = csrf;
  const content = body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) };
  let response: Response;
  try {
    response = await fetch(url, { method: method.toUpperCase(), headers, signal: signal ?? null, ...content });
  } catch (error) {
    if (signal?.aborted) throw error;
    watchers.away(true);
    throw new ApiError(0, {
      code: "away",
      message: "The server does not answer.",
      hint: "It is asked again by itself.",
    });
  }
  watchers.away(false);
  if (response.ok) return response;
  if (response.status === 401) watchers.signedOut();
  throw new ApiError(response.status, await errorOf(response));
}

async function errorOf(response: Response): Promise<ErrorView> {
  try {
    return ((await response.json()) as { error: ErrorView }).error;
  } catch {
    return { code: "invalid", message: `The server answered ${response.status}.`, hint: "See the server's log." };
  }
}
