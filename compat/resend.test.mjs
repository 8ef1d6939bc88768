// The official Node client, with nothing changed but its base URL, against the program that users run.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { Resend } from "resend";
import { data, eventually, start } from "./program.mjs";

const key = "re_node_0123456789012345678901234";
let base, resend, stop;

before(async () => {
	({ base, resend, stop } = await start(key));
});

after(async () => {
	await stop?.();
});

const hello = { from: "Acme <hello@acme.example>", to: "bob@example.net", subject: "Hello", html: "<p>Hello</p>" };

async function becomes(id, event) {
	await eventually(`${id} becomes ${event}`, async () => data(await resend.emails.get(id)).last_event === event);
}

test("sends, with attachments and tags", async () => {
	const { id } = data(
		await resend.emails.send({ ...hello, replyTo: ["help@acme.example"], tags: [{ name: "kind", value: "test" }],
			attachments: [{ filename: "a.txt", content: Buffer.from("content") }] }),
	);
	await becomes(id, "delivered");
	const email = data(await resend.emails.get(id));
	assert.deepEqual(email.tags, [{ name: "kind", value: "test" }]);
	assert.deepEqual(email.reply_to, ["help@acme.example"]);
	const files = data(await resend.emails.attachments.list({ emailId: id }));
	const file = await fetch(files.data[0].download_url);
	assert.equal(await file.text(), "content");
});

test("batches, strict and permissive", async () => {
	assert.equal(data(await resend.batch.send([hello, hello])).data.length, 2);
	const refused = await resend.batch.send([hello, { ...hello, to: "nobody" }]);
	assert.equal(refused.error.name, "validation_error");
	const some = data(await resend.batch.send([hello, { ...hello, to: "nobody" }], { batchValidation: "permissive" }));
	assert.equal(some.data.length, 1);
	assert.equal(some.errors[0].index, 1);
});

test("schedules, reschedules and cancels", async () => {
	const { id } = data(await resend.emails.send({ ...hello, scheduledAt: "tomorrow at 9am" }));
	data(await resend.emails.update({ id, scheduledAt: new Date(Date.now() + 3_600_000).toISOString() }));
	data(await resend.emails.cancel(id));
	await becomes(id, "canceled");
});

test("replays an idempotency key", async () => {
	const first = data(await resend.emails.send(hello, { idempotencyKey: "once" }));
	assert.equal(data(await resend.emails.send(hello, { idempotencyKey: "once" })).id, first.id);
	const other = await resend.emails.send({ ...hello, subject: "Other" }, { idempotencyKey: "once" });
	assert.equal(other.error.name, "invalid_idempotent_request");
});

test("lists by pages", async () => {
	const page = data(await resend.emails.list({ limit: 2 }));
	assert.equal(page.data.length, 2);
	assert.equal(page.has_more, true);
	const rest = data(await resend.emails.list({ limit: 2, after: page.data[1].id }));
	assert.notEqual(rest.data[0].id, page.data[1].id);
});

test("manages domains and keys", async () => {
	const made = data(await resend.domains.create({ name: "mail.other.example", region: "eu-west-1" }));
	assert.ok(made.records.length >= 3);
	assert.equal(made.status, "not_started");
	assert.ok(made.records.every((r) => r.status === "not_started"));
	const early = (await resend.emails.send({ ...hello, from: "hello@mail.other.example" })).error;
	assert.equal(early.statusCode, 403);
	assert.match(early.message, /mail\.other\.example .*is not verified/);
	data(await resend.domains.verify(made.id));
	await eventually("the domain is verified", async () => data(await resend.domains.get(made.id)).status === "verified");
	data(await resend.emails.send({ ...hello, from: "hello@mail.other.example" }));
	data(await resend.domains.update({ id: made.id, openTracking: true }));
	assert.equal(data(await resend.domains.get(made.id)).status, "verified");
	assert.equal(data(await resend.domains.list()).data.length, 2);
	const created = data(await resend.apiKeys.create({ name: "sender", permission: "sending_access" }));
	const restricted = new Resend(created.token, { baseUrl: base });
	assert.equal((await restricted.domains.list()).error.name, "restricted_api_key");
	data(await restricted.emails.send(hello));
	data(await resend.apiKeys.remove(created.id));
	data(await resend.domains.remove(made.id));
});

test("manages suppressions, where the client knows them", async () => {
	assert.ok(resend.suppressions, "this version of the client has no suppressions: install a newer one");
	const added = data(await resend.suppressions.add({ email: "gone@example.net" }));
	assert.ok(added.id);
	const { id } = data(await resend.emails.send({ ...hello, to: "gone@example.net" }));
	await becomes(id, "suppressed");
});

test("tells what is wrong", async () => {
	const { error } = await resend.emails.send({ ...hello, to: "nobody" });
	assert.equal(error.statusCode, 422);
	assert.match(error.message, /`to`/);
	assert.equal((await new Resend("re_wrong", { baseUrl: base }).domains.list()).error.statusCode, 401);
});
