// Imports of contacts by the official Node client, with nothing changed but its base URL, against the program that
// users run.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { data, eventually, start } from "./program.mjs";

let resend, stop;

before(async () => {
	({ resend, stop } = await start("re_impo_0123456789012345678901234"));
});

after(async () => {
	await stop?.();
});

test("imports contacts from a file", async () => {
	const news = data(await resend.segments.create({ name: "News" }));
	const topic = data(await resend.topics.create({ name: "News", defaultSubscription: "opt_out" }));
	const made = data(await resend.contacts.imports.create({
		file: new File(["Email,First,Plan,Seats\nann@example.org,Ann,pro,3\nwrong,,,\nann@example.org,Anna,,\n"], "people.csv"),
		columnMap: {
			email: "Email",
			firstName: "First",
			properties: { plan: { column: "Plan", type: "string" }, seats: { column: "Seats", type: "number" } },
		},
		onConflict: "upsert",
		segments: [{ id: news.id }],
		topics: [{ id: topic.id, subscription: "opt_in" }],
	}));
	assert.equal(made.object, "contact_import");

	let got;
	await eventually("the import completes", async () => {
		got = data(await resend.contacts.imports.get(made.id));
		return got.completed_at !== null;
	});
	assert.equal(got.status, "completed");
	assert.deepEqual(got.counts, { total: 3, created: 1, updated: 1, skipped: 0, failed: 1 });
	const ann = data(await resend.contacts.get({ email: "ann@example.org" }));
	assert.equal(ann.first_name, "Anna");
	assert.deepEqual(ann.properties, { plan: { value: "pro", type: "string" }, seats: { value: 3, type: "number" } });
	assert.equal(data(await resend.contacts.list({ segmentId: news.id })).data.length, 1);
	assert.equal(data(await resend.contacts.topics.list({ id: ann.id })).data[0].subscription, "opt_in");
	assert.deepEqual(data(await resend.contacts.imports.list({ status: "completed", limit: 1 })).data.map((i) => i.id), [made.id]);
	assert.equal(data(await resend.contacts.imports.list({ status: "queued" })).data.length, 0);
});

test("refuses a file without addresses at once", async () => {
	const { error } = await resend.contacts.imports.create({ file: new Blob(["Name\nAnn\n"]) });
	assert.equal(error.name, "validation_error");
	assert.equal(error.statusCode, 422);
	assert.match(error.message, /`email`/);
});
