// Custom events by the official Node client, with nothing changed but its base URL, against the program that users run.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { data, eventually, start } from "./program.mjs";

let resend, stop;

before(async () => {
	({ resend, stop } = await start("re_even_0123456789012345678901234"));
});

after(async () => {
	await stop?.();
});

test("defines, shows, changes and deletes events", async () => {
	const made = data(await resend.events.create({ name: "trial.started", schema: { plan: "string", seats: "number", paid: "boolean", ends: "date" } }));
	assert.equal(made.object, "event");
	for (const name of [made.id, "trial.started"]) {
		const got = data(await resend.events.get(name));
		assert.equal(got.id, made.id);
		assert.equal(got.name, "trial.started");
		assert.deepEqual(got.schema, { plan: "string", seats: "number", paid: "boolean", ends: "date" });
		assert.equal(got.updated_at, null);
	}
	const slashed = data(await resend.events.create({ name: "order/placed & paid" }));
	assert.equal(data(await resend.events.get("order/placed & paid")).schema, null);
	assert.equal(data(await resend.events.update("trial.started", { schema: { plan: "string" } })).id, made.id);
	data(await resend.events.update(slashed.id, { schema: null }));
	assert.deepEqual(data(await resend.events.get(made.id)).schema, { plan: "string" });
	const list = data(await resend.events.list({ limit: 1 }));
	assert.deepEqual(list.data.map((e) => e.name), ["order/placed & paid"]);
	assert.equal(list.has_more, true);
	for (const name of ["trial.started", slashed.id]) assert.equal(data(await resend.events.remove(name)).deleted, true);
	assert.equal((await resend.events.get("trial.started")).error.name, "not_found");
});

test("sends events, which begin automations", async () => {
	data(await resend.events.create({ name: "order.placed", schema: { total: "number" } }));
	const { id } = data(await resend.automations.create({
		name: "Orders",
		status: "enabled",
		steps: [
			{ key: "start", type: "trigger", config: { eventName: "order.placed" } },
			{ key: "later", type: "delay", config: { duration: "30 days" } },
		],
		connections: [{ from: "start", to: "later" }],
	}));
	const runs = async () => data(await resend.automations.runs.list({ automationId: id })).data.length;
	const ann = data(await resend.contacts.create({ email: "ann@reader.example" }));
	const sent = data(await resend.events.send({ event: "order.placed", contactId: ann.id, payload: { total: 12.5, customer: "Smith" } }));
	assert.deepEqual(sent, { object: "event", event: "order.placed" });
	await eventually("a run begins", async () => (await runs()) === 1);
	data(await resend.events.send({ event: "order.placed", email: "Ann@Reader.example" }));
	await eventually("another begins", async () => (await runs()) === 2);
	data(await resend.events.send({ event: "nobody.knows.it", email: "nobody@reader.example" }));
});

test("says what is wrong with an event", async () => {
	for (const [what, answer, name] of [
		["a system event", await resend.events.create({ name: "resend:x" }), "validation_error"],
		["a type", await resend.events.create({ name: "x", schema: { a: "integer" } }), "validation_error"],
		["a payload", await resend.events.send({ event: "order.placed", email: "a@reader.example", payload: { total: "12" } }), "validation_error"],
		["nobody", await resend.events.send({ event: "order.placed" }), "validation_error"],
		["no contact", await resend.events.send({ event: "order.placed", contactId: "0190a5e2-3f62-7cc1-b1d1-0123456789ab" }), "not_found"],
	]) {
		assert.equal(answer.data, null, what);
		assert.equal(answer.error.name, name, what);
	}
});
