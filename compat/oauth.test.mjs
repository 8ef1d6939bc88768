// A program that acts for a team by OAuth: authorize, token, use, refresh, revoke, with fetch alone as any client would, and with the official client.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { createHash, createPublicKey, randomBytes, verify } from "node:crypto";
import nodemailer from "nodemailer";
import { Resend } from "resend";
import { data, freePort, start } from "./program.mjs";

const key = "re_oauth_0123456789012345678901234";
const cli = "7136aa0b-625c-4c9c-8820-e9784c8eb141"; // known from the start
const redirect = "http://127.0.0.1:51234/oauth/callback";
let base, resend, smtp, stop;

before(async () => {
	smtp = await freePort();
	({ base, resend, stop } = await start(key, "--smtp-submit", `127.0.0.1:${smtp}`));
});

after(async () => {
	await stop?.();
});

const json = async (answer, status = 200) => {
	const body = await answer.json();
	assert.equal(answer.status, status, JSON.stringify(body));
	return body;
};
const form = (path, fields) => fetch(base + path, { method: "POST", body: new URLSearchParams(fields) });

// authorize asks for scopes; a development key stands for the person who consents.
async function authorize(client_id, redirect_uri, scope) {
	const verifier = randomBytes(48).toString("base64url");
	const state = randomBytes(16).toString("hex");
	const asked = new URLSearchParams({ client_id, redirect_uri, scope, state, response_type: "code", code_challenge_method: "S256",
		code_challenge: createHash("sha256").update(verifier).digest("base64url") });
	const answer = await fetch(`${base}/oauth/authorize?${asked}`, { redirect: "manual", headers: { Authorization: `Bearer ${key}` } });
	assert.equal(answer.status, 302, await answer.text());
	const to = new URL(answer.headers.get("location"));
	assert.equal(to.origin + to.pathname, redirect_uri);
	assert.deepEqual([to.searchParams.get("state"), to.searchParams.get("iss")], [state, base]);
	return { grant_type: "authorization_code", client_id, redirect_uri, code: to.searchParams.get("code"), code_verifier: verifier };
}

const grants = () => fetch(`${base}/oauth/grants`, { headers: { Authorization: `Bearer ${key}` } }).then(json);

test("a client finds all it needs in the metadata", async () => {
	const refused = await fetch(`${base}/domains`);
	assert.equal(refused.status, 401);
	const [, at] = refused.headers.get("www-authenticate").match(/resource_metadata="([^"]+)"/);
	const resource = await json(await fetch(at));
	assert.equal(resource.resource, base);
	const server = await json(await fetch(`${resource.authorization_servers[0]}/.well-known/oauth-authorization-server`));
	assert.equal(server.issuer, base);
	assert.deepEqual([server.authorization_endpoint, server.token_endpoint], [`${base}/oauth/authorize`, `${base}/oauth/token`]);
	assert.deepEqual(server.code_challenge_methods_supported, ["S256"]);
});

test("the official command-line program's login, in its steps", async () => {
	const first = await json(await form("/oauth/token", await authorize(cli, redirect, "full_access")));
	assert.equal(first.token_type, "Bearer");
	assert.equal(typeof first.scope, "string");
	assert.ok(first.refresh_token);
	const [head, payload, signature] = first.access_token.split(".");
	const claims = JSON.parse(Buffer.from(payload, "base64url"));
	assert.equal(claims.exp - claims.iat, 900);
	assert.equal(first.expires_in, 900);

	const { keys } = await json(await fetch(`${base}/.well-known/jwks.json`));
	const { kid, alg, typ } = JSON.parse(Buffer.from(head, "base64url"));
	assert.deepEqual([alg, typ], ["ES256", "at+jwt"]);
	const jwk = keys.find((k) => k.kid === kid);
	assert.ok(verify("sha256", Buffer.from(`${head}.${payload}`), { key: createPublicKey({ key: jwk, format: "jwk" }), dsaEncoding: "ieee-p1363" },
		Buffer.from(signature, "base64url")), "the published key verifies the token");

	const client = new Resend(first.access_token, { baseUrl: base });
	assert.equal(data(await client.domains.list()).data[0].name, "acme.example");
	const { id } = data(await client.emails.send({ from: "a@acme.example", to: "b@example.net", subject: "s", text: "t" }));
	assert.equal(data(await client.emails.get(id)).subject, "s");

	const second = await json(await form("/oauth/token", { grant_type: "refresh_token", client_id: cli, refresh_token: first.refresh_token }));
	assert.notEqual(second.refresh_token, first.refresh_token);
	data(await new Resend(second.access_token, { baseUrl: base }).domains.list());
	const gone = await form("/oauth/revoke", { token: second.refresh_token, client_id: cli });
	assert.deepEqual([gone.status, await gone.text()], [200, ""]);
	assert.equal((await fetch(`${base}/domains`, { headers: { Authorization: `Bearer ${second.access_token}` } })).status, 401);
	const stale = await json(await form("/oauth/token", { grant_type: "refresh_token", client_id: cli, refresh_token: second.refresh_token }), 400);
	assert.equal(stale.error, "invalid_grant");
});

test("a client that registers itself, within its scopes", async () => {
	const registered = await json(await fetch(`${base}/oauth/register`, { method: "POST", headers: { "Content-Type": "application/json" },
		body: JSON.stringify({ client_name: "Notes", redirect_uris: [redirect], scope: "emails:send" }) }), 201);
	const { access_token, scope } = await json(await form("/oauth/token", await authorize(registered.client_id, redirect, "emails:send")));
	assert.equal(scope, "emails:send");
	const client = new Resend(access_token, { baseUrl: base });
	data(await client.emails.send({ from: "a@acme.example", to: "b@example.net", subject: "s", text: "t" }));
	const refused = await client.domains.list();
	assert.equal(refused.error.name, "invalid_permission");

	const mailer = nodemailer.createTransport({ host: "127.0.0.1", port: smtp, ignoreTLS: true, auth: { user: "postrider", pass: access_token } });
	await mailer.sendMail({ from: "a@acme.example", to: "b@example.net", subject: "by SMTP", text: "t" });

	const [grant] = (await grants()).data;
	assert.deepEqual([grant.scopes, grant.resource, grant.revoked_at, grant.client], [["emails:send"], null, null, { name: "Notes", logo_uri: null }]);
	const gone = await json(await fetch(`${base}/oauth/grants/${grant.id}`, { method: "DELETE", headers: { Authorization: `Bearer ${key}` } }));
	assert.deepEqual([gone.object, gone.id, gone.revoked_reason], ["oauth_grant", grant.id, "revoked_from_api"]);
	assert.equal((await client.emails.send({ from: "a@acme.example", to: "b@example.net", subject: "s", text: "t" })).error.statusCode, 401);
	assert.equal((await grants()).data[0].revoked_reason, "revoked_from_api");
});

test("the official client's operations on grants", { skip: !new Resend(key).oauthGrants && "this release of the client has none" }, async () => {
	await form("/oauth/token", await authorize(cli, redirect, "full_access"));
	const all = data(await resend.oauthGrants.list());
	const id = all.data.find((g) => g.revokedAt == null && g.revoked_at == null).id;
	assert.equal(data(await resend.oauthGrants.revoke(id)).id, id);
});
