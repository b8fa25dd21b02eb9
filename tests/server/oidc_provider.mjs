// An OpenID Connect provider for tests, on loopback: the package oidc-provider with accounts that tests make.
// node oidc_provider.mjs PACKAGE PORT SECRET; port 0 is any. It prints its address when it listens.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [path, port, secret] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(path));
const accounts = new Map(); // by subject: claims

const jwk = (type, options, alg) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: "jwk" }),
  kid: randomBytes(8).toString("hex"),
  use: "sig",
  alg,
});

const page = `<!doctype html><html lang=en><title>The provider</title><form method=post>
<label>Account <input name=account required></label><button>Sign in</button>
<button name=cancel value=1 formnovalidate>Cancel</button></form></html>`;

const read = async (request) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
};

// The people's side: a page that asks who it is, and believes it. Everybody consents.
async function interact(provider, request, response) {
  const { prompt } = await provider.interactionDetails(request, response);
  const finish = (result) =>
    provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  if (prompt.name === "consent") return finish({ consent: {} });
  if (request.method === "GET") return response.setHeader("Content-Type", "text/html").end(page);
  const form = new URLSearchParams(await read(request));
  const accountId = form.get("account");
  const result =
    form.has("cancel") || !accounts.has(accountId)
      ? { error: "access_denied", error_description: "<b>words of the provider</b>" }
      : { login: { accountId } };
  return finish(result);
}

const server = createServer();
server.listen(Number(port), "127.0.0.1", () => {
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "muster",
        client_secret: secret,
        application_type: "native", // any port of the loopback address
        redirect_uris: ["http://127.0.0.1/v1/session/oidc/callback"],
        response_types: ["code"],
        grant_types: ["authorization_code"],
      },
    ],
    jwks: { keys: [jwk("rsa", { modulusLength: 2048 }, "RS256"), jwk("ec", { namedCurve: "P-256" }, "ES256")] },
    cookies: { keys: [randomBytes(16).toString("hex")] },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["preferred_username", "groups"] },
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    ttl: { AccessToken: 600, AuthorizationCode: 60, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
    interactions: { url: (context, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (context, id) =>
      accounts.has(id) ? { accountId: id, claims: () => ({ ...accounts.get(id), sub: id }) } : undefined,
    async loadExistingGrant(context) {
      const { client, session } = context.oidc;
      const grant = new context.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope("openid email profile");
      await grant.save();
      return grant;
    },
  });
  const answer = provider.callback();
  server.on("request", async (request, response) => {
    try {
      if (request.url.startsWith("/interaction/")) return await interact(provider, request, response);
      if (!request.url.startsWith("/accounts/")) return answer(request, response);
      accounts.set(request.url.slice("/accounts/".length), JSON.parse(await read(request)));
      return response.writeHead(204).end();
    } catch (error) {
      console.error(error);
      return response.writeHead(400).end(String(error));
    }
  });
  console.log(`listens at ${issuer}`);
});
