// Templates by the official Node client, with nothing changed but its base URL, against the program that users run.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { data, eventually, start } from "./program.mjs";

let resend, stop;

before(async () => {
	({ resend, stop } = await start("re_tmpl_0123456789012345678901234"));
});

after(async () => {
	await stop?.();
});

const order = {
	name: "Order",
	alias: "order",
	from: "Acme <orders@acme.example>",
	subject: "{{{ITEM}}} is on its way",
	replyTo: "help@acme.example",
	html: "<p>{{{ITEM}}} for {{{PRICE}}}</p>",
	variables: [
		{ key: "ITEM", type: "string" },
		{ key: "PRICE", type: "number", fallbackValue: 9.5 },
	],
};

const bob = { to: "bob@example.net", template: { id: "order", variables: { ITEM: "Tea" } } };

test("creates, publishes, sends with, duplicates and deletes a template", async () => {
	const { id } = data(await resend.templates.create(order).publish());
	let got = data(await resend.templates.get("order"));
	assert.equal(got.id, id);
	assert.equal(got.status, "published");
	assert.equal(got.has_unpublished_versions, false);
	assert.deepEqual(got.reply_to, ["help@acme.example"]);
	assert.equal(got.text, "{{{ITEM}}} for {{{PRICE}}}");
	assert.deepEqual(got.variables.map((v) => [v.key, v.type, v.fallback_value]), [["ITEM", "string", null], ["PRICE", "number", 9.5]]);

	const sent = data(await resend.emails.send(bob));
	const own = data(await resend.emails.send({ ...bob, subject: "Own", from: "own@acme.example" }));
	const batch = data(await resend.batch.send([bob, bob]));
	assert.equal(batch.data.length, 2);

	data(await resend.templates.update("order", { subject: null, text: null, alias: null, html: "<p>{{{ITEM}}}</p>" }));
	got = data(await resend.templates.get(id));
	assert.equal(got.alias, null);
	assert.equal(got.subject, null);
	assert.equal(got.has_unpublished_versions, true);
	assert.equal(got.status, "published");

	const copy = data(await resend.templates.duplicate(id));
	assert.notEqual(copy.id, id);
	const list = data(await resend.templates.list());
	assert.deepEqual(list.data.map((t) => [t.name, t.status]), [["Order (Copy)", "draft"], ["Order", "published"]]);
	assert.equal(data(await resend.templates.remove(id)).deleted, true);

	await eventually("the emails are delivered", async () => data(await resend.emails.get(own.id)).last_event === "delivered");
	const email = data(await resend.emails.get(sent.id));
	assert.equal(email.subject, "Tea is on its way");
	assert.equal(email.html, "<p>Tea for 9.5</p>");
	assert.equal(data(await resend.emails.get(own.id)).subject, "Own");
});

test("tells what is wrong with a template", async () => {
	const refused = await resend.templates.create({ ...order, alias: "other", variables: [{ key: "EMAIL", type: "string" }] });
	assert.equal(refused.error.name, "validation_error");
	assert.match(refused.error.message, /EMAIL is reserved/);
	const unknown = await resend.emails.send({ ...bob, template: { id: "nowhere" } });
	assert.equal(unknown.error.name, "not_found");
	const { id } = data(await resend.templates.create({ ...order, alias: "draft" }));
	const draft = await resend.emails.send({ ...bob, template: { id } });
	assert.equal(draft.error.name, "validation_error");
	assert.match(draft.error.message, /not been published/);
	data(await resend.templates.publish(id));
	const missing = await resend.emails.send({ ...bob, template: { id } });
	assert.match(missing.error.message, /`template\.variables\.ITEM`/);
});
