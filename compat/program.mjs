// The program that users run, on ports and in a folder of its own, and what the tests against it share.
import assert from "node:assert/strict";
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Resend } from "resend";

// freePort returns a port on which a program can listen soon. The system gives ports from 32768 on to outgoing
// connections, and could give such a port away before the program listens.
export async function freePort() {
	for (;;) {
		const port = 3_000 + Math.floor(Math.random() * 7_000);
		const free = await new Promise((done) => {
			const s = createServer().once("error", () => done(false));
			s.listen(port, "127.0.0.1", () => s.close(() => done(true)));
		});
		if (free) return port;
	}
}

// eventually waits until check returns a true value. An exception counts as false.
export async function eventually(what, check, limit = 20_000) {
	for (const end = Date.now() + limit; Date.now() < end; ) {
		if (await Promise.resolve().then(check).catch(() => false)) return;
		await new Promise((r) => setTimeout(r, 25));
	}
	assert.fail(`not within ${limit} ms: ${what}`);
}

// data returns what a call gave, or fails with the client's error.
export function data(answer) {
	assert.equal(answer.error, null, JSON.stringify(answer.error));
	return answer.data;
}

// start runs the program with a key and the sending domain acme.example. It returns its URL, the official client, and stop.
export async function start(key, ...flags) {
	const folder = mkdtempSync(join(tmpdir(), "postrider-node-"));
	const binary = process.env.POSTRIDER_BIN ?? join(folder, "postrider");
	if (!process.env.POSTRIDER_BIN) execFileSync("go", ["build", "-o", binary, "../cmd/postrider"], { cwd: import.meta.dirname });
	const port = await freePort();
	const base = `http://127.0.0.1:${port}`;
	const program = spawn(binary, ["dev", "--data-dir", join(folder, "data"), "--http", `127.0.0.1:${port}`, "--api-key", key, "--domain", "acme.example", ...flags],
		{
			stdio: "ignore",
			env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("POSTRIDER_"))),
		});
	const stop = async () => {
		const ended = new Promise((done) => program.once("exit", done));
		if (program.kill("SIGTERM")) await ended;
		rmSync(folder, { recursive: true, force: true });
	};
	try {
		await eventually("the program answers", async () => (await fetch(`${base}/readyz`)).ok);
		const resend = new Resend(key, { baseUrl: base });
		return { base, resend, stop };
	} catch (error) {
		await stop();
		throw error;
	}
}
