// The script of the forms with which a reader of a node for development tries an operation of the API. The key stays in
// the tab of the browser.
"use strict";
(() => {
	const stored = "postrider-try-key";
	for (const form of document.querySelectorAll("form[data-try]")) {
		const field = name => form.elements[name];
		form.parentElement.hidden = false;
		field("key").value = sessionStorage.getItem(stored) ?? "";
		form.addEventListener("submit", async e => {
			e.preventDefault();
			const out = form.querySelector("output");
			const {method, path} = form.dataset;
			const target = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(field("path." + name).value));
			const query = field("query")?.value.trim();
			const headers = {Authorization: "Bearer " + field("key").value.trim()};
			const body = field("body")?.value.trim() || undefined;
			if (body) headers["Content-Type"] = "application/json";
			sessionStorage.setItem(stored, field("key").value.trim());
			out.textContent = "…";
			try {
				const answer = await fetch(target + (query ? "?" + query : ""), {method, headers, body});
				const text = await answer.text();
				let shown = text;
				try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON */ }
				out.textContent = answer.status + " " + answer.statusText + "\n" + shown;
			} catch (error) {
				out.textContent = "The request failed: " + error.message;
			}
		});
	}
})();
