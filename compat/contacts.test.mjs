// Contacts, their properties, segments and topics by the official Node client, with nothing changed but its base URL,
// against the program that users run.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { data, start } from "./program.mjs";

let resend, stop;

before(async () => {
	({ resend, stop } = await start("re_cont_0123456789012345678901234"));
});

after(async () => {
	await stop?.();
});

test("creates, shows, changes and deletes contacts", async () => {
	const plan = data(await resend.contactProperties.create({ key: "plan", type: "string", fallbackValue: "free" }));
	const seats = data(await resend.contactProperties.create({ key: "seats", type: "number" }));
	const customers = data(await resend.segments.create({ name: "Customers" }));
	assert.equal(customers.name, "Customers");
	const news = data(await resend.topics.create({ name: "News", defaultSubscription: "opt_in" }));

	const rita = data(await resend.contacts.create({
		email: "rita+1@example.org",
		firstName: "Rita",
		properties: { plan: "pro", seats: 2.5 },
		segments: [{ id: customers.id }],
		topics: [{ id: news.id, subscription: "opt_out" }],
	}));
	const again = data(await resend.contacts.create({ email: "RITA+1@example.org", lastName: "Ray", unsubscribed: true }));
	assert.equal(again.id, rita.id);

	for (const name of [rita.id, { id: rita.id }, "rita+1@example.org", { email: "rita+1@example.org" }]) {
		const got = data(await resend.contacts.get(name));
		assert.equal(got.id, rita.id);
		assert.equal(got.email, "rita+1@example.org");
		assert.equal(got.first_name, "Rita");
		assert.equal(got.last_name, "Ray");
		assert.equal(got.unsubscribed, true);
		assert.deepEqual(got.properties, { plan: { value: "pro", type: "string" }, seats: { value: 2.5, type: "number" } });
	}
	data(await resend.contacts.update({ email: "rita+1@example.org", firstName: null, unsubscribed: false, properties: { seats: null } }));
	const changed = data(await resend.contacts.get(rita.id));
	assert.equal(changed.first_name, null);
	assert.equal(changed.unsubscribed, false);
	assert.deepEqual(Object.keys(changed.properties), ["plan"]);

	const of = { email: "rita+1@example.org" };
	assert.deepEqual(data(await resend.contacts.segments.list(of)).data.map((s) => s.name), ["Customers"]);
	assert.equal(data(await resend.contacts.segments.remove({ ...of, segmentId: customers.id })).deleted, true);
	assert.equal(data(await resend.contacts.segments.add({ contactId: rita.id, segmentId: customers.id })).id, customers.id);
	assert.equal(data(await resend.contacts.topics.list(of)).data[0].subscription, "opt_out");
	data(await resend.contacts.topics.update({ id: rita.id, topics: [{ id: news.id, subscription: "opt_in" }] }));
	assert.equal(data(await resend.contacts.topics.list({ id: rita.id, limit: 1 })).data[0].subscription, "opt_in");

	data(await resend.contacts.create({ email: "other@example.org" }));
	assert.equal(data(await resend.contacts.list()).data.length, 2);
	assert.deepEqual(data(await resend.contacts.list({ segmentId: customers.id, limit: 5 })).data.map((c) => c.id), [rita.id]);
	assert.equal(data(await resend.contacts.remove(of)).contact, rita.id);
	assert.equal((await resend.contacts.get(rita.id)).error.name, "not_found");

	data(await resend.contactProperties.update({ id: plan.id, fallbackValue: null }));
	assert.equal(data(await resend.contactProperties.get(plan.id)).fallbackValue, null);
	assert.deepEqual(data(await resend.contactProperties.list()).data.map((p) => p.key), ["seats", "plan"]);
	assert.equal(data(await resend.contactProperties.remove(seats.id)).deleted, true);
	data(await resend.topics.update({ id: news.id, name: "Product news", description: "Monthly." }));
	assert.equal(data(await resend.topics.get(news.id)).name, "Product news");
	assert.equal(data(await resend.topics.list()).data.length, 1);
	assert.equal(data(await resend.topics.remove(news.id)).deleted, true);
	data(await resend.segments.update(customers.id, { name: "Clients" }));
	assert.equal(data(await resend.segments.get(customers.id)).name, "Clients");
	assert.equal(data(await resend.segments.remove(customers.id)).deleted, true);
	assert.deepEqual(data(await resend.segments.list()).data, []);
});

test("knows audiences by the ids of segments", async () => {
	const { id } = data(await resend.segments.create({ name: "Old" }));
	const made = data(await resend.contacts.create({ audienceId: id, email: "old@example.org", firstName: "Old" }));
	assert.equal(data(await resend.contacts.get({ audienceId: id, email: "old@example.org" })).id, made.id);
	data(await resend.contacts.update({ audienceId: id, id: made.id, lastName: "Er" }));
	assert.deepEqual(data(await resend.contacts.list({ audienceId: id })).data.map((c) => c.last_name), ["Er"]);
	assert.equal(data(await resend.contacts.remove({ audienceId: id, email: "old@example.org" })).contact, "old@example.org");
	assert.deepEqual(data(await resend.contacts.list({ audienceId: id })).data, []);
});

test("tells what is wrong with a contact", async () => {
	const unknown = await resend.contacts.create({ email: "a@example.org", properties: { colour: "blue" } });
	assert.equal(unknown.error.name, "validation_error");
	assert.match(unknown.error.message, /"colour"/);
	const missing = await resend.contacts.create({});
	assert.equal(missing.error.name, "missing_required_field");
	assert.match(missing.error.message, /Missing `email` field/);
});
