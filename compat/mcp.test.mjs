// Tools for language models over streamable HTTP: the MCP inspector's command-line program and the official SDK list and call them, and an email
// that they send goes once. Each run of the inspector takes two seconds of processor time, so the SDK, which the inspector uses too, makes most calls.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { data, eventually, start } from "./program.mjs";

const key = "re_mcp_0123456789012345678901234567";
const inspector = join(dirname(createRequire(import.meta.url).resolve("@modelcontextprotocol/inspector/package.json")), "cli/build/cli.js");
let base, resend, stop;

before(async () => {
	({ base, resend, stop } = await start(key));
});

after(async () => {
	await stop?.();
});

// inspect runs the program and returns what it prints.
async function inspect(token, ...args) {
	const { stdout } = await promisify(execFile)(process.execPath, [inspector, "--cli", `${base}/mcp`, "--transport", "http",
		...(token ? ["--header", `Authorization: Bearer ${token}`] : []), "--method", ...args], { maxBuffer: 1 << 24 });
	return JSON.parse(stdout.slice(stdout.indexOf("{")));
}

// connected calls use with a client of the SDK that has a token.
async function connected(token, use) {
	const client = new Client({ name: "agent", version: "1" });
	await client.connect(new StreamableHTTPClientTransport(new URL(`${base}/mcp`), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));
	try {
		return await use(client);
	} finally {
		await client.close();
	}
}

// result returns the text of a tool's result, and whether the tool failed.
const result = ({ isError, content }) => ({ failed: isError ?? false, text: content.map(({ text }) => text).join("\n") });

// call calls a tool and returns its result.
const call = (name, args) => connected(key, async (client) => result(await client.callTool({ name, arguments: args })));

const namesOf = ({ tools }) => tools.map(({ name }) => name);

test("the inspector and the SDK list the tools that a key allows", async () => {
	const all = namesOf(await inspect(key, "tools/list"));
	for (const name of ["send_email", "confirm_send", "explain_delivery", "get_received", "create_broadcast"]) assert.ok(all.includes(name), name);
	const { token } = data(await resend.apiKeys.create({ name: "sending", permission: "sending_access" }));
	assert.deepEqual(namesOf(await connected(token, (client) => client.listTools())).sort(), ["confirm_send", "get_usage", "send_email"]);
});

test("an email goes after it was confirmed, and once", async () => {
	const email = { from: "a@acme.example", to: ["b@example.net"], subject: "Hi", text: "Hello" };
	const args = Object.entries(email).flatMap(([name, value]) => ["--tool-arg", `${name}=${Array.isArray(value) ? JSON.stringify(value) : value}`]);
	const { text } = result(await inspect(key, "tools/call", "--tool-name", "send_email", ...args));
	assert.match(text, /Nothing has been sent/);
	assert.equal(data(await resend.emails.list()).data.length, 0);
	const [, code] = text.match(/"confirmation_code":"([^"]+)"/);
	const other = await call("confirm_send", { ...email, text: "Goodbye", confirmation_code: code });
	assert.ok(other.failed && other.text.includes("for another request"), other.text);
	for (let i = 0; i < 2; i++) {
		const sent = await call("confirm_send", { ...email, confirmation_code: code });
		assert.ok(!sent.failed, sent.text);
	}
	const [sent, ...more] = data(await resend.emails.list()).data;
	assert.deepEqual([sent.subject, more], ["Hi", []]);
	await eventually("the email is captured", async () =>
		/from a@acme\.example to b@example\.net\.\nThe email was captured/.test((await call("explain_delivery", { email_id: sent.id })).text));
});

test("without a token a program is told where to get one", async () => {
	await assert.rejects(inspect("", "tools/list"));
	const refused = await fetch(`${base}/mcp`, { method: "POST" });
	assert.equal(refused.status, 401);
	const [, at] = refused.headers.get("www-authenticate").match(/resource_metadata="([^"]+)"/);
	const resource = await (await fetch(at)).json();
	assert.deepEqual([resource.resource, resource.authorization_servers], [`${base}/mcp`, [base]]);
});

test("a client that knows only the address finds the rest, registers, and is let in", async () => {
	let code, clientInformation, tokens, verifier;
	const redirectUrl = "http://127.0.0.1:51235/callback";
	const authProvider = {
		redirectUrl,
		clientMetadata: { client_name: "Agent", redirect_uris: [redirectUrl], token_endpoint_auth_method: "none", scope: "emails:read emails:send" },
		clientInformation: () => clientInformation,
		saveClientInformation: (given) => (clientInformation = given),
		tokens: () => tokens,
		saveTokens: (given) => (tokens = given),
		codeVerifier: () => verifier,
		saveCodeVerifier: (made) => (verifier = made),
		// A development key stands for the person in a browser.
		redirectToAuthorization: async (url) => {
			const answer = await fetch(url, { redirect: "manual", headers: { Authorization: `Bearer ${key}` } });
			code = new URL(answer.headers.get("location")).searchParams.get("code");
		},
	};
	const transport = () => new StreamableHTTPClientTransport(new URL(`${base}/mcp`), { authProvider });
	const first = transport();
	await assert.rejects(new Client({ name: "agent", version: "1" }).connect(first), UnauthorizedError);
	await first.finishAuth(code);
	const client = new Client({ name: "agent", version: "1" });
	await client.connect(transport());
	const { tools } = await client.listTools();
	assert.ok(tools.some(({ name }) => name === "explain_delivery"));
	const { content } = await client.callTool({ name: "list_emails", arguments: { limit: 1 } });
	assert.equal(JSON.parse(content.at(-1).text).object, "list");
	// It asked for what the tools need, as the metadata says, and for no more.
	const [, claims] = tokens.access_token.split(".");
	const { scope } = JSON.parse(Buffer.from(claims, "base64url"));
	assert.ok(scope.includes("receiving:read") && !scope.includes("full_access") && !scope.includes("api_keys"), scope);
	const { data: grants } = await (await fetch(`${base}/oauth/grants`, { headers: { Authorization: `Bearer ${key}` } })).json();
	assert.equal((await fetch(`${base}/oauth/grants/${grants[0].id}`, { method: "DELETE", headers: { Authorization: `Bearer ${key}` } })).status, 200);
	tokens = { ...tokens, refresh_token: undefined };
	await assert.rejects(client.callTool({ name: "list_emails", arguments: {} }));
	await client.close();
});
