// Automations by the official Node client, with nothing changed but its base URL, against the program that users run.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { data, eventually, start } from "./program.mjs";

let resend, stop;

before(async () => {
	({ resend, stop } = await start("re_auto_0123456789012345678901234"));
});

after(async () => {
	await stop?.();
});

// Contacts that are created are greeted once they are changed, or reminded after three days.
const graph = (template) => ({
	steps: [
		{ key: "start", type: "trigger", config: { eventName: "resend:contact.created" } },
		{ key: "wait", type: "wait_for_event", config: { eventName: "resend:contact.updated", timeout: "3 days" } },
		{ key: "named", type: "condition", config: { type: "rule", field: "contact.first_name", operator: "eq", value: "Ann" } },
		{ key: "greet", type: "send_email", config: { template: { id: template, variables: { NAME: { var: "contact.first_name" } } },
			replyTo: "help@acme.example" } },
		{ key: "note", type: "contact_update", config: { lastName: "Greeted" } },
		{ key: "later", type: "delay", config: { duration: "30 days" } },
	],
	connections: [
		{ from: "start", to: "wait" },
		{ from: "wait", to: "named", type: "event_received" },
		{ from: "wait", to: "greet", type: "timeout" },
		{ from: "named", to: "greet", type: "condition_met" },
		{ from: "greet", to: "note" },
		{ from: "note", to: "later" },
	],
});

test("creates, changes, runs, duplicates, stops and removes an automation", async () => {
	const template = data(await resend.templates.create({ name: "Hello", alias: "hello", from: "Acme <hello@acme.example>",
		subject: "Hello", html: "<p>{{{NAME}}}</p>", variables: [{ key: "NAME", type: "string" }] }));
	const draft = await resend.automations.create({ name: "Welcome", ...graph("hello") });
	assert.equal(draft.error.name, "validation_error"); // the template is not published
	data(await resend.templates.publish(template.id));
	const { object, id } = data(await resend.automations.create({ name: "Welcome", ...graph("hello") }));
	assert.equal(object, "automation");

	let got = data(await resend.automations.get(id));
	assert.deepEqual([got.object, got.name, got.status], ["automation", "Welcome", "disabled"]);
	assert.deepEqual(got.steps[1], { key: "wait", type: "wait_for_event",
		config: { event_name: "resend:contact.updated", timeout: "3 days" } });
	assert.deepEqual(got.connections[0], { from: "start", to: "wait", type: "default" });
	assert.equal(data(await resend.automations.update(id, { status: "enabled" })).id, id);
	data(await resend.automations.update(id, { name: "Hello", ...graph("hello") }));
	const list = data(await resend.automations.list({ status: "enabled", limit: 5 }));
	assert.deepEqual(list.data.map((a) => [a.id, a.name, a.status]), [[id, "Hello", "enabled"]]);

	const contact = data(await resend.contacts.create({ email: "ann@reader.example" }));
	const runs = (status) => resend.automations.runs.list({ automationId: id, status }).then(data);
	const run = async () => data(await resend.automations.runs.get({ automationId: id, runId: (await runs()).data[0].id }));
	await eventually("it waits for a change", async () => (await run()).steps.at(-1).status === "waiting");
	data(await resend.contacts.update({ id: contact.id, firstName: "Ann" }));
	await eventually("it waits for thirty days", async () => (await run()).steps.at(-1).key === "later");
	got = await run();
	assert.deepEqual([got.object, got.status, got.completed_at], ["automation_run", "running", null]);
	assert.deepEqual(got.steps.map((s) => [s.key, s.status]), [["start", "completed"], ["wait", "completed"],
		["named", "completed"], ["greet", "completed"], ["note", "completed"], ["later", "waiting"]]);
	assert.equal(data(await resend.contacts.get("ann@reader.example")).last_name, "Greeted");
	assert.equal(data(await resend.emails.list()).data[0].to[0], "ann@reader.example");
	assert.deepEqual((await runs(["completed", "failed"])).data, []);

	const copy = data(await resend.automations.duplicate(id));
	assert.equal(data(await resend.automations.get(copy.id)).name, "Hello (copy)");
	assert.deepEqual(data(await resend.automations.stop(id)), { object: "automation", id, status: "disabled" });
	assert.equal((await runs("cancelled")).data.length, 1);
	assert.deepEqual((await runs("running")).data, []);
	for (const one of [copy.id, id]) {
		assert.deepEqual(data(await resend.automations.remove(one)), { object: "automation", id: one, deleted: true });
	}
	assert.equal((await resend.automations.get(id)).error.name, "not_found");
});

test("says which step is wrong", async () => {
	const { error } = await resend.automations.create({ name: "x", steps: [
		{ key: "start", type: "trigger", config: { eventName: "signup" } },
		{ key: "late", type: "delay", config: { duration: "31 days" } },
	], connections: [{ from: "start", to: "late" }] });
	assert.deepEqual([error.name, error.statusCode], ["validation_error", 422]);
	assert.match(error.message, /^Step `late`: The `steps\[1\]\.config\.duration` field /);
});
