
"use strict";
(() => {
	if (!window.PublicKeyCredential) return;
	const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
	const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
		.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
	const post = async (path, body) => {
		const answer = await fetch(path, { method: "POST", body: JSON.stringify(body), credentials: "same-origin",
			headers: { "Content-Type": "application/json", "Accept": "application/json" } });
		const said = await answer.json();
		if (said.next) location.assign(said.next);
		if (!answer.ok) throw new Error(said.message);
		return said;
	};
	const read = (options) => {
		options.challenge = bytes(options.challenge);
		if (options.user) options.user.id = bytes(options.user.id);
		for (const of of [...(options.allowCredentials || []), ...(options.excludeCredentials || [])]) of.id = bytes(of.id);
		return options;
	};
	const write = (made) => {
		const response = {};
		for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
			if (made.response[name]) response[name] = text(made.response[name]);
		}
		if (made.response.getTransports) response.transports = made.response.getTransports();
		return { id: made.id, rawId: text(made.rawId), type: made.type, response,
			authenticatorAttachment: made.authenticatorAttachment || undefined,
			clientExtensionResults: made.getClientExtensionResults() };
	};
	const problem = document.getElementById("passkey-problem");
	const use = async (button) => {
		problem.hidden = true;
		button.disabled = true;
		try {
			const of = button.dataset;
			const asked = await post(of.begin, {});
			if (!asked.options) return;
			const publicKey = read(asked.options.publicKey);
			const made = await (of.passkey === "create" ? navigator.credentials.create({ publicKey })
				: navigator.credentials.get({ publicKey }));
			await post(of.finish, { token: asked.token, credential: write(made), next: of.next || "",
				name: of.name ? document.getElementById(of.name).value : "" });
		} catch (error) {
			problem.textContent = error.name === "NotAllowedError" ? "The passkey was not used." : error.message;
			problem.hidden = false;
		} finally {
			button.disabled = false;
		}
	};
	for (const button of document.querySelectorAll("[data-passkey]")) {
		button.hidden = false;
		button.addEventListener("click", () => use(button));
	}
	for (const form of document.querySelectorAll("[data-passkey-form]")) form.hidden = false;
})();
