// The libraries that receivers verify webhooks with, against what the program sends, also while a secret is rotated.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { Webhook as Svix } from "svix";
import { Webhook as Standard } from "standardwebhooks";
import { data, eventually, start } from "./program.mjs";

const key = "re_hook_0123456789012345678901234";
let resend, receiver, url, stop;
const got = [];

before(async () => {
	receiver = createServer((request, response) => {
		let body = "";
		request.setEncoding("utf8");
		request.on("data", (more) => (body += more));
		request.on("end", () => {
			got.push({ headers: request.headers, body });
			response.end("thank you");
		});
	});
	await new Promise((done) => receiver.listen(0, "127.0.0.1", done));
	url = `http://127.0.0.1:${receiver.address().port}/hook`;
	({ resend, stop } = await start(key));
});

after(async () => {
	receiver?.closeAllConnections();
	receiver?.close();
	await stop?.();
});

// verify checks a request as its receiver would, with each library and with the official client's own check: each throws when it is not
// right. What they return differs between their versions, so the body is read here.
function verify(secret, { headers, body }) {
	new Svix(secret).verify(body, headers);
	new Standard(secret).verify(body, headers);
	resend.webhooks.verify({
		payload: body,
		headers: { id: headers["svix-id"], timestamp: headers["svix-timestamp"], signature: headers["svix-signature"] },
		webhookSecret: secret,
	});
	return JSON.parse(body);
}

test("manages endpoints, and their messages verify, also with both secrets of a rotation", async () => {
	const made = data(await resend.webhooks.create({ endpoint: url, events: ["email.sent", "email.delivered"] }));
	assert.match(made.signing_secret, /^whsec_/);
	const shown = data(await resend.webhooks.get(made.id));
	assert.equal(shown.endpoint, url);
	assert.equal(shown.signing_secret, made.signing_secret);
	assert.equal(data(await resend.webhooks.list()).data.length, 1);

	const send = async () => {
		const n = got.length;
		const { id } = data(await resend.emails.send({ from: "Acme <hello@acme.example>", to: "bob@example.net", subject: "Grüße, <b> & 👋",
			html: "<p>Hello</p>", tags: [{ name: "kind", value: "test" }], headers: { "X-Entity-Ref-ID": "77" } }));
		await eventually("both messages arrive", () => got.length >= n + 2);
		return { id, requests: got.slice(n) };
	};
	const first = await send();
	const [sent, delivered] = first.requests.map((r) => verify(made.signing_secret, r));
	assert.equal(sent.type, "email.sent");
	assert.equal(delivered.type, "email.delivered");
	assert.equal(sent.data.email_id, first.id);
	assert.equal(sent.data.subject, "Grüße, <b> & 👋");
	assert.deepEqual(sent.data.tags, { kind: "test" });
	assert.deepEqual(sent.data.headers, [{ name: "X-Entity-Ref-ID", value: "77" }]);
	for (const Library of [Svix, Standard]) {
		const other = new Library("whsec_" + Buffer.alloc(32).toString("base64"));
		assert.throws(() => other.verify(first.requests[0].body, first.requests[0].headers));
	}

	const answer = await fetch(`${resend.baseUrl}/webhooks/${made.id}/signing-secret/rotate`, { method: "POST", headers: { Authorization: `Bearer ${key}` } });
	const rotated = await answer.json();
	assert.notEqual(rotated.signing_secret, made.signing_secret);
	for (const r of (await send()).requests) {
		verify(made.signing_secret, r);
		verify(rotated.signing_secret, r);
	}

	data(await resend.webhooks.update(made.id, { status: "disabled" }));
	assert.equal(data(await resend.webhooks.get(made.id)).status, "disabled");
	data(await resend.webhooks.remove(made.id));
	assert.equal((await resend.webhooks.get(made.id)).error.name, "not_found");
});

test("tells what is wrong with an endpoint", async () => {
	const { error } = await resend.webhooks.create({ endpoint: "https://user:password@hooks.example.org", events: ["email.sent"] });
	assert.equal(error.statusCode, 422);
	assert.match(error.message, /user name or password/);
});
