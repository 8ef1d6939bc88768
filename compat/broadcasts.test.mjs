// Broadcasts by the official Node client, with nothing changed but its base URL, against the program that users run.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { data, eventually, start } from "./program.mjs";

let resend, stop;

before(async () => {
	({ resend, stop } = await start("re_bcst_0123456789012345678901234"));
});

after(async () => {
	await stop?.();
});

test("creates, changes, schedules, cancels, sends and counts a broadcast", async () => {
	const segment = data(await resend.segments.create({ name: "Readers" }));
	for (const email of ["ann@reader.example", "bob@reader.example"]) {
		data(await resend.contacts.create({ email, firstName: "Ann", segments: [{ id: segment.id }] }));
	}
	const { id } = data(await resend.broadcasts.create({ segmentId: segment.id, from: "Acme <news@acme.example>",
		subject: "News for {{{FIRST_NAME|you}}}", html: "<p>Hi</p>", previewText: "All of it" }));
	data(await resend.broadcasts.update(id, { name: "Autumn", replyTo: ["help@acme.example"] }));
	let got = data(await resend.broadcasts.get(id));
	assert.deepEqual([got.object, got.name, got.status, got.segment_id, got.audience_id, got.preview_text, got.sent_at],
		["broadcast", "Autumn", "draft", segment.id, segment.id, "All of it", null]);
	assert.deepEqual(got.reply_to, ["help@acme.example"]);

	assert.equal(data(await resend.broadcasts.send(id, { scheduledAt: "in 1 hour" })).id, id);
	assert.equal(data(await resend.broadcasts.get(id)).status, "scheduled");
	data(await resend.broadcasts.cancel(id));
	assert.equal(data(await resend.broadcasts.get(id)).status, "draft");

	data(await resend.broadcasts.send(id));
	const again = await resend.broadcasts.send(id);
	assert.equal(again.error.name, "validation_error");
	await eventually("it is sent", async () => data(await resend.broadcasts.get(id)).status === "sent");
	got = data(await resend.broadcasts.get(id));
	assert.ok(got.sent_at);
	const list = data(await resend.broadcasts.list());
	assert.deepEqual(list.data.map((b) => [b.id, b.status]), [[id, "sent"]]);

	const sent = data(await resend.broadcasts.recipients(id, { type: "delivered" }));
	assert.deepEqual(sent.data.map((r) => r.email).sort(), ["ann@reader.example", "bob@reader.example"]);
	assert.deepEqual(data(await resend.broadcasts.clickedLinks(id)).data, []);

	const copy = data(await resend.broadcasts.duplicate(id));
	assert.equal(data(await resend.broadcasts.get(copy.id)).name, "Autumn (copy)");
	assert.equal(data(await resend.broadcasts.remove(copy.id)).deleted, true);
});
