// The script of the documentation: copying, the menu, the theme, and the search. The pages can be read without it.
"use strict";
(() => {
	const $ = (q, in_ = document) => in_.querySelector(q);
	const $$ = (q, in_ = document) => [...in_.querySelectorAll(q)];
	const el = (name, attributes = {}, ...children) => {
		const e = document.createElement(name);
		for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
		e.append(...children);
		return e;
	};
	const site = document.body.dataset;
	const say = text => { $("#said").textContent = text; };
	for (const e of $$("[data-scripted]")) e.hidden = false;

	// Copying. Blocks of code that have no button yet get one.
	for (const c of $$(".prose .code")) if (!$("[data-copies]", c)) {
		const button = el("button", {type: "button", class: "b s", "data-copies": ""}, "Copy");
		c.prepend(el("header", {}, el("span", {}), button));
	}
	const copy = async text => {
		try {
			await navigator.clipboard.writeText(text);
		} catch {
			const area = el("textarea", {class: "unseen"});
			area.value = text;
			document.body.append(area);
			area.select();
			document.execCommand("copy");
			area.remove();
		}
	};
	// Sections of the API reference get a link to themselves.
	for (const s of $$(".prose section[id]")) {
		$("h2", s)?.append(el("a", {class: "anchor", href: "#" + s.id, "aria-label": "Link to this section"}, "#"));
	}
	document.addEventListener("click", async e => {
		const b = e.target.closest("[data-copies]");
		if (!b) return;
		await copy($("pre", b.closest(".code")).textContent);
		b.focus();
		b.textContent = "Copied";
		say("Copied");
		setTimeout(() => { b.textContent = "Copy"; say(""); }, 2000);
	});

	// The menu, which is beside the page in wide windows.
	document.addEventListener("click", e => {
		if (e.target.closest("[data-menu]")) {
			e.preventDefault();
			$("#side").classList.toggle("open");
			$("#side a").focus();
		} else if (!e.target.closest("#side")) $("#side").classList.remove("open");
	});
	const current = $("#side [aria-current]");
	if (current && current.offsetTop > innerHeight - 100) $("#side").scrollTop = current.offsetTop - innerHeight / 2;

	// The theme.
	$("[data-theme-button]").addEventListener("click", () => {
		const root = document.documentElement;
		const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
		root.dataset.theme = dark ? "light" : "dark";
		try {
			localStorage.setItem("postrider-docs-theme", root.dataset.theme);
		} catch {} // the choice lasts as long as the page
		say(dark ? "Light" : "Dark");
	});

	// The index is loaded when the search is first opened, or for an old address.
	let loading;
	const load = () => loading ||= fetch(site.index).then(async r => {
		if (!r.ok) throw new Error(r.status);
		const index = await r.json();
		return {index, ready: DocsSearch.prepare(index)};
	}).catch(e => {
		loading = undefined;
		throw e;
	});
	const hrefOf = (path, id) => (path ? site.base + path + site.ending : site.start) + (id ? "#" + id : "");

	// Addresses of earlier versions have the operations of the API on the first page.
	const moved = async () => {
		const id = location.hash.slice(1);
		if (site.moved === undefined || !id || document.getElementById(id)) return;
		try {
			const {index} = await load();
			const to = DocsSearch.place(index, id);
			if (to) location.replace(hrefOf(to.path, to.id));
		} catch {} // the reader sees the first page
	};
	moved();
	addEventListener("hashchange", moved);

	// The search.
	const box = $("#search"), input = $("input", box), list = $("#found");
	const choose = i => {
		const all = $$("[role=option]", list);
		all.forEach((o, n) => o.setAttribute("aria-selected", n === i));
		if (all[i]) {
			input.setAttribute("aria-activedescendant", all[i].id);
			all[i].scrollIntoView({block: "nearest"});
		} else input.removeAttribute("aria-activedescendant");
	};
	const line = text => el("li", {class: "group", role: "presentation"}, text);
	const look = async () => {
		const text = input.value;
		let found;
		try {
			found = DocsSearch.find((await load()).ready, text, 12);
		} catch {
			list.replaceChildren(line("The index could not be loaded. Type again to try again."));
			return;
		}
		if (text !== input.value) return;
		list.replaceChildren(...found.map((f, i) => {
			const o = el("li", {role: "option", id: "o" + i, "data-href": hrefOf(f.path, f.id), "aria-selected": "false"},
				el("span", {class: "clip"}, f.title, ...(f.heading ? [el("span", {class: "quiet"}, " › " + f.heading)] : [])));
			o.append(el("span", {class: "aside"}, f.section));
			return o;
		}));
		if (!found.length) list.replaceChildren(line(text.trim() ? "No page has these words." : "Type what you look for."));
		choose(0);
	};
	const open = () => {
		if (box.open) return box.close();
		box.showModal();
		input.select();
		look();
	};
	input.addEventListener("input", look);
	input.addEventListener("keydown", e => {
		const all = $$("[role=option]", list);
		const i = all.findIndex(o => o.getAttribute("aria-selected") === "true");
		if (e.key === "ArrowDown") choose(Math.min(i + 1, all.length - 1));
		else if (e.key === "ArrowUp") choose(Math.max(i - 1, 0));
		else if (e.key === "Enter" && all[i]) go(all[i].dataset.href);
		else return;
		e.preventDefault();
	});
	const go = href => {
		box.close();
		location.href = href;
	};
	box.addEventListener("click", e => {
		const o = e.target.closest("[role=option]");
		if (o) go(o.dataset.href);
		else if (e.target === box) box.close();
	});
	document.addEventListener("click", e => { if (e.target.closest("[data-search]")) open(); });
	document.addEventListener("keydown", e => {
		if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
			e.preventDefault();
			open();
			return;
		}
		if (e.key === "Escape") $("#side").classList.remove("open");
		if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, textarea, select") || box.open) return;
		e.preventDefault();
		open();
	});
})();
