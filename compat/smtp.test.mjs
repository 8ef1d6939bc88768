// A common SMTP client against the submission port, with TLS by STARTTLS and in the clear on loopback.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import nodemailer from "nodemailer";
import { data, eventually, freePort, start } from "./program.mjs";

const key = "re_smtp_0123456789012345678901234";
let resend, port, stop;

before(async () => {
	port = await freePort();
	({ resend, stop } = await start(key, "--smtp-submit", `127.0.0.1:${port}`));
});

after(async () => {
	await stop?.();
});

const transport = (options) => nodemailer.createTransport({ host: "127.0.0.1", port, auth: { user: "resend", pass: key }, ...options });

const hello = { from: "Acmé <hello@acme.example>", to: "Bob <bob@example.net>", cc: "carol@example.org", bcc: "dave@example.org",
	subject: "Grüße", text: "Hello", html: '<p>Hello <img src="cid:logo"></p>', headers: { "X-Postrider-Tag": "kind=test", "X-Mine": "1" },
	attachments: [{ filename: "naïve.txt", content: "content" }, { filename: "logo.png", content: Buffer.from("png"), cid: "logo" }] };

for (const [name, options] of [
	["STARTTLS", { requireTLS: true, tls: { rejectUnauthorized: false } }],
	["in the clear on loopback", { ignoreTLS: true }],
]) {
	test(`sends, ${name}`, async () => {
		const sent = await transport(options).sendMail(hello);
		const id = sent.response.split(" ").at(-1);
		await eventually("the email is delivered", async () => data(await resend.emails.get(id)).last_event === "delivered");
		const email = data(await resend.emails.get(id));
		assert.equal(email.from, "Acmé <hello@acme.example>");
		assert.deepEqual([email.to, email.cc, email.bcc], [["Bob <bob@example.net>"], ["carol@example.org"], ["dave@example.org"]]);
		assert.deepEqual([email.subject, email.text.trim(), email.message_id], ["Grüße", "Hello", sent.messageId]);
		assert.deepEqual(email.tags, [{ name: "kind", value: "test" }]);
		const files = data(await resend.emails.attachments.list({ emailId: id })).data;
		assert.deepEqual(files.map((f) => f.filename).sort(), ["logo.png", "naïve.txt"]);
		const file = files.find((f) => f.filename === "naïve.txt");
		assert.equal(await (await fetch(file.download_url)).text(), "content");
	});
}

test("pools connections", async () => {
	const pool = transport({ ignoreTLS: true, pool: true, maxConnections: 3 });
	const all = await Promise.all(Array.from({ length: 30 }, (_, i) => pool.sendMail({ ...hello, subject: `n${i}` })));
	pool.close();
	assert.equal(new Set(all.map((s) => s.response)).size, 30);
});

test("says why it refuses", async () => {
	const wrong = (options, message) => assert.rejects(transport({ ignoreTLS: true, ...options }).sendMail({ ...hello, ...message }), (e) => {
		wrong.code = e.responseCode;
		wrong.text = e.response;
		return true;
	});
	await wrong({ auth: { user: "resend", pass: "re_wrong" } });
	assert.equal(wrong.code, 535);
	await wrong({}, { from: "hello@other.example" });
	assert.equal(wrong.code, 550);
	assert.match(wrong.text, /not verified/);
	await wrong({}, { attachments: [{ filename: "a.exe", content: "MZ" }] });
	assert.equal(wrong.code, 554);
});
