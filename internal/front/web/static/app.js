// The scripts of all pages. Every page works without them, but for live updates, the palette and copying.
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
	const page = () => document.body;

	// Times: the text in the visitor's zone, the exact time with its zone in the title.
	const zoned = new Intl.DateTimeFormat(undefined, {dateStyle: "long", timeStyle: "long"});
	const at = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit"});
	const clock = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit"});
	const day = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short", hour: "2-digit", minute: "2-digit"});
	const ago = t => {
		let s = Math.floor((Date.now() - t) / 1000);
		const ahead = s < 0 ? "in " : "";
		s = Math.abs(s);
		if (s < 60) return `${ahead}${s} s`;
		if (s < 3600) return `${ahead}${Math.floor(s / 60)} min`;
		if (s < 86400) return `${ahead}${Math.floor(s / 3600)} h`;
		return day.format(t).replace(",", "");
	};
	const times = (in_ = document) => {
		for (const e of $$("time[data-t]", in_)) {
			const t = new Date(e.dateTime);
			if (!e.dataset.zoned) {
				e.title = zoned.format(t);
				e.dataset.zoned = "1";
				if (e.dataset.t === "at") e.textContent = at.format(t).replace(",", "");
				if (e.dataset.t === "clock") e.textContent = clock.format(t);
			}
			if (e.dataset.t === "ago" || e.dataset.t === "relative") {
				const passed = Date.now() - t;
				const text = ago(t) + (e.dataset.t === "relative" && passed >= 0 && passed < 864e5 ? " ago" : "");
				if (e.textContent !== text) e.textContent = text;
			}
		}
	};
	times();
	setInterval(times, 5000);
	// A cookie tells the server the zone of the browser, in which days of the metrics begin. A page that was counted in
	// another zone is loaded again, unless the browser refuses the cookie.
	const zone = zoned.resolvedOptions().timeZone;
	const told = () => document.cookie.split("; ").includes("postrider-zone=" + zone);
	if (zone && !told()) {
		document.cookie = `postrider-zone=${zone}; path=/; max-age=7776000; samesite=lax` + (location.protocol === "https:" ? "; secure" : "");
		if ($("[data-zone]") && $("[data-zone]").dataset.zone !== zone && told()) location.reload();
	}
	document.addEventListener("htmx:load", e => times(e.target));

	// Toasts say what happened. Three at most; a toast stays while it is hovered or focused.
	const toast = (text, alert) => {
		const box = $("#toasts");
		if (!box) return;
		while (box.children.length > 2) box.firstChild.remove();
		const t = el("div", {class: "toast", tabindex: "-1"}, text);
		if (alert) t.setAttribute("role", "alert");
		box.append(t);
		const end = () => t.matches(":hover, :focus-within") ? setTimeout(end, 2000) : t.remove();
		setTimeout(end, alert ? 10000 : 4000);
	};

	// An export is downloaded while the page stays.
	document.addEventListener("click", e => {
		if (e.target.closest("a[data-export]") && location.pathname !== "/app/exports") toast("The export has begun. Settings, Exports shows its progress.");
	});

	// Copying.
	document.addEventListener("click", async e => {
		const b = e.target.closest("[data-copy]");
		if (!b) return;
		e.preventDefault();
		const from = b.dataset.copyFrom ? $(b.dataset.copyFrom) : null;
		const text = from ? from.textContent : b.dataset.copy;
		try {
			await navigator.clipboard.writeText(text);
		} catch {
			const area = el("textarea", {class: "unseen"});
			area.value = text;
			document.body.append(area);
			area.select();
			document.execCommand("copy");
			area.remove();
			b.focus();
		}
		toast("Copied");
	});

	// Menus: one is open at a time; Esc and a click elsewhere close it; arrow keys move in it.
	document.addEventListener("toggle", e => {
		const d = e.target;
		if (!d.matches?.("details.drop") || !d.open) return;
		for (const o of $$("details.drop[open]")) if (o !== d && !o.contains(d)) o.open = false;
		$(".menu :is(input:not([type=hidden]), a, button)", d)?.focus({preventScroll: true});
	}, true);
	document.addEventListener("click", e => {
		for (const d of $$("details.drop[open]")) if (!d.contains(e.target)) d.open = false;
		const menu = e.target.closest("[data-menu]");
		if (menu) {
			e.preventDefault();
			$("#side").classList.toggle("open");
			$("#side a")?.focus();
		} else if (!e.target.closest("#side")) $("#side")?.classList.remove("open");
	});

	// Keyboard.
	const typing = e => e.target.matches?.("input, textarea, select, [contenteditable]") || e.target.closest?.("dialog[open]");
	const rows = () => $$("main tr:has(a.whole), main li:has(> a.whole)").filter(r => !r.closest("#pane"));
	const move = by => {
		const all = rows();
		if (!all.length) return $(`.top a[rel=${by > 0 ? "next" : "prev"}]`)?.click();
		let now = all.findIndex(r => r.contains(document.activeElement));
		if (now < 0) now = all.findIndex(r => r.matches(".chosen"));
		const next = all[Math.min(Math.max(now + by, 0), all.length - 1)];
		$("a.whole", next).focus();
		next.scrollIntoView({block: "nearest"});
		if (pane && !pane.hidden) beside.show($("a.whole", next).href, "replaceState");
	};
	let going = 0;
	// The list of shortcuts says which key does what (internal/front/web/shortcuts.go).
	const does = {
		search(e) {
			const find = $("main [type=search]");
			if (!find) return;
			e.preventDefault();
			find.focus();
			find.select();
		},
		next() { move(1); },
		previous() { move(-1); },
		go() { going = Date.now(); },
		copy() { $("main [data-copy]")?.click(); },
		help() { $("#keys")?.showModal(); },
	};
	const keys = new Map($$("#keys [data-does]").map(d => [d.textContent, does[d.dataset.does]]));
	document.addEventListener("keydown", e => {
		if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k" && $("#palette")) {
			e.preventDefault();
			palette();
			return;
		}
		if (e.key === "Escape") {
			const open = $("details.drop[open]");
			if (open) {
				open.open = false;
				$("summary", open).focus();
				return;
			}
			$("#side")?.classList.remove("open");
			if (pane && !pane.hidden && !$("dialog[open]")) return beside.close(true);
		}
		const menu = e.target.closest?.(".menu");
		if (menu && (e.key === "ArrowDown" || e.key === "ArrowUp") && !e.target.matches("select")) {
			const items = $$(":is(a, button, input:not([type=hidden]))", menu);
			const i = items.indexOf(document.activeElement) + (e.key === "ArrowDown" ? 1 : -1);
			items[(i + items.length) % items.length]?.focus();
			e.preventDefault();
			return;
		}
		if (page().dataset.keys !== "on" || e.ctrlKey || e.metaKey || e.altKey || typing(e)) return;
		if (going && Date.now() - going < 1500) {
			going = 0;
			const to = $(`a[data-go="${CSS.escape(e.key)}"]`);
			if (to) {
				e.preventDefault();
				to.click();
			}
			return;
		}
		keys.get(e.key)?.(e);
	});
	if (/Mac|iPhone|iPad/.test(navigator.platform)) for (const k of $$("[data-mod]")) k.textContent = "⌘K";

	// The palette.
	const box = $("#palette");
	let asked = 0;
	let left; // what had the focus before
	const palette = () => {
		if (box.open) return box.close();
		left = document.activeElement;
		box.showModal();
		const input = $("input", box);
		input.value = "";
		look("");
		loadDocs();
	};
	const choose = i => {
		const all = $$("[role=option]", box);
		all.forEach((o, n) => o.setAttribute("aria-selected", n === i));
		if (all[i]) {
			$("input", box).setAttribute("aria-activedescendant", all[i].id);
			all[i].scrollIntoView({block: "nearest"});
		} else $("input", box).removeAttribute("aria-activedescendant");
	};
	// What matches the text is marked.
	const marked = (label, text) => {
		const i = text ? label.toLowerCase().indexOf(text.toLowerCase()) : -1;
		const e = el("span", {class: "clip"}, i < 0 ? label : label.slice(0, i));
		if (i >= 0) e.append(el("mark", {}, label.slice(i, i + text.length)), label.slice(i + text.length));
		return e;
	};
	// The script and the index of the search in the documentation are loaded when the palette is first opened.
	let docs;
	const loadDocs = () => docs ||= new Promise((done, failed) => {
		if (typeof DocsSearch === "object") return done(DocsSearch.forPalette()); // only the index was not loaded
		const s = el("script", {src: box.dataset.docs});
		s.onload = () => done(DocsSearch.forPalette());
		s.onerror = failed;
		document.head.append(s);
	}).catch(() => {
		docs = undefined;
		return () => [];
	});
	const look = async text => {
		const mine = ++asked;
		let groups, failed;
		try {
			const r = await fetch("/app/palette?q=" + encodeURIComponent(text), {headers: {Accept: "application/json"}});
			if (r.status === 401) return location.reload();
			if (!r.ok) throw new Error(r.status);
			groups = await r.json();
		} catch {
			failed = true;
			groups = [{label: "The server did not answer. Type again to try again.", items: []}];
		}
		if (mine !== asked) return;
		let n = 0;
		const lines = g => [
			el("li", {class: "group", role: "presentation"}, g.label),
			...(g.items || []).map(i => {
				const o = el("li", {role: "option", id: "o" + n++, "data-href": i.href, "aria-selected": "false"},
					marked(i.label, text.replace(/^>/, "").trim()));
				if (i.aside) o.append(el("span", {class: "aside"}, i.aside));
				return o;
			})];
		$("#found").replaceChildren(...groups.flatMap(lines));
		choose(0);
		// The documentation comes last, so that it does not move the other results when it is loaded.
		const items = text.trim().length < 2 || text.startsWith(">") ? [] : (await loadDocs())(text);
		if (mine !== asked || !items.length) return;
		const only = !n && !failed;
		$("#found")[only ? "replaceChildren" : "append"](...lines({label: "Documentation", items}));
		if (only) choose(0);
	};
	if (box) {
		const input = $("input", box);
		let wait;
		input.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(() => look(input.value), 120); });
		input.addEventListener("keydown", e => {
			const all = $$("[role=option]", box);
			const i = all.findIndex(o => o.getAttribute("aria-selected") === "true");
			if (e.key === "ArrowDown") choose(Math.min(i + 1, all.length - 1));
			else if (e.key === "ArrowUp") choose(Math.max(i - 1, 0));
			else if (e.key === "Enter" && all[i]) location.href = all[i].dataset.href;
			else return;
			e.preventDefault();
		});
		// The live list may have replaced the row that had the focus.
		box.addEventListener("close", () => {
			const row = left?.closest?.("[data-id]")?.dataset.id;
			if (row && !left.isConnected) left = $(`[data-id="${CSS.escape(row)}"] a.whole`);
			if (left?.isConnected && left !== document.body) left.focus({preventScroll: true});
		});
		box.addEventListener("click", e => {
			const o = e.target.closest("[role=option]");
			if (o) location.href = o.dataset.href;
			else if (e.target === box) box.close();
		});
		document.addEventListener("click", e => {
			if (!e.target.closest("[data-palette]")) return;
			e.preventDefault();
			palette();
		});
	}

	// Dialogs: a link or button with data-dialog opens one; without scripts the link leads to a page.
	document.addEventListener("click", e => {
		const b = e.target.closest("[data-dialog]");
		const d = b && document.getElementById(b.dataset.dialog);
		const close = e.target.closest("dialog [data-close]");
		if (close) {
			e.preventDefault();
			close.closest("dialog").close();
		}
		if (!d) return;
		e.preventDefault();
		$("details.drop[open]")?.removeAttribute("open");
		d.showModal();
	});
	// A typed confirmation: the button is off until the text matches. The server checks it too.
	const plain = text => text.replace(/[\u200c\u200d\p{Variation_Selector}]/gu, "").normalize("NFC").trim().replace(/\s+/g, " ");
	const confirmed = f => { $("button.danger", f).disabled = plain($("[name=confirm]", f).value) !== f.dataset.confirm; };
	document.addEventListener("input", e => {
		const f = e.target.closest("form[data-confirm]");
		if (f) confirmed(f);
	});
	for (const f of $$("form[data-confirm]")) confirmed(f);
	// A form that the visitor submitted after the session had ended is shown again.
	$("form[data-kept]")?.closest("dialog")?.showModal();
	// A form is submitted once, and says that it works.
	document.addEventListener("submit", e => {
		const b = e.submitter;
		if (e.defaultPrevented || !b?.matches(".b") || e.target.method === "get") return;
		setTimeout(() => b.setAttribute("aria-busy", "true"));
		setTimeout(() => b.removeAttribute("aria-busy"), 10000);
	});
	// Filters apply at once; the button Apply is for visitors without scripts.
	for (const b of $$("[data-apply]")) b.hidden = true;
	document.addEventListener("change", e => {
		if (e.target.closest("form[data-filters]") && !e.target.matches("[type=search], [type=text]")) e.target.form.requestSubmit();
	});
	// Empty fields of a search stay out of the address.
	document.addEventListener("formdata", e => {
		if (e.target.method !== "get") return;
		for (const [name, value] of [...e.formData]) if (value === "") e.formData.delete(name);
	});
	// Parts of a page that need scripts appear; parts that segments show later disappear.
	for (const e of $$("[data-scripted]")) e.hidden = false;
	for (const e of $$("[data-later]")) e.hidden = true;
	for (const e of $$("[data-unscripted]")) e.classList.add("unseen");
	// The current one of many tabs is visible, also on a phone.
	for (const a of $$(".tabs [aria-current]")) a.parentElement.scrollLeft = a.offsetLeft - a.parentElement.offsetLeft - 40;
	// Segments that switch parts of a page, such as the views of an email.
	document.addEventListener("click", e => {
		const b = e.target.closest("[data-show]");
		if (!b) return;
		e.preventDefault();
		const group = b.closest("[data-views]");
		for (const o of $$("[data-show]", group)) o.setAttribute("aria-pressed", o === b);
		for (const v of $$("[data-view]", group)) v.hidden = !v.dataset.view.split(" ").includes(b.dataset.show);
		$(".paper", group)?.classList.toggle("phone", b.dataset.show === "phone");
	});

	// The pane beside a list: in a wide window, a row opens there in place, and the address is that of its page. htmx reads
	// the page and takes the email from it. The focus stays in the list until the row is chosen a second time.
	const pane = $("#pane");
	const list = location.href;
	const beside = pane && (() => {
		const wide = matchMedia("(min-width: 1680px)");
		const title = document.title;
		let shown = "";
		const mark = () => {
			for (const r of rows()) {
				const a = $("a.whole", r);
				const on = !pane.hidden && new URL(a.href).pathname === new URL(shown).pathname;
				r.classList.toggle("chosen", on);
				if (on) a.setAttribute("aria-current", "true");
				else a.removeAttribute("aria-current");
			}
		};
		const show = (href, how) => {
			shown = href;
			pane.hidden = false;
			document.body.classList.add("reads");
			$("[data-open]", pane).href = href;
			if (how) history[how]({beside: true}, "", href);
			mark();
			htmx.ajax("GET", href, {target: "#pane-mail", swap: "innerHTML", select: "#mail"});
		};
		const close = push => {
			const row = rows().find(r => r.matches(".chosen"));
			pane.hidden = true;
			document.body.classList.remove("reads");
			document.title = title;
			if (push) history.pushState({}, "", list);
			mark();
			$("#pane-mail").replaceChildren();
			if (row) $("a.whole", row).focus({preventScroll: true});
		};
		document.addEventListener("htmx:afterSwap", e => {
			if (e.target.id !== "pane-mail" || pane.hidden) return;
			times(pane);
			const heading = $("h1", pane); // the page has one already, which names the list
			const name = heading?.textContent || "";
			heading?.replaceWith(el("h2", {class: "title"}, ...heading.childNodes));
			document.title = name + " – Postrider";
			$("[role=status]", pane).textContent = `Beside the list: ${name}`;
			const at = new URL(shown).hash.slice(1);
			if (at) document.getElementById(at)?.scrollIntoView();
			else pane.scrollTop = 0;
			if (pane.contains(document.activeElement)) $("#pane-mail").focus({preventScroll: true});
		});
		for (const kind of ["htmx:responseError", "htmx:sendError"]) document.addEventListener(kind, e => {
			if (e.detail.target?.id === "pane-mail") location.href = shown;
		});
		document.addEventListener("click", e => {
			if (e.defaultPrevented || e.button || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey || !wide.matches || !window.htmx) return;
			if (e.target.closest("[data-close-pane]")) return close(true);
			const a = e.target.closest("a[href]");
			if (!a) return;
			const inside = a.closest("#pane-mail");
			if (inside ? new URL(a.href).pathname !== new URL(shown).pathname : !a.matches("#list a.whole")) return;
			e.preventDefault();
			if (!inside && !pane.hidden && a.href === shown) return $("#pane-mail").focus();
			show(a.href, "pushState");
		});
		addEventListener("popstate", e => {
			if (location.href === list) close(false);
			else if (e.state?.beside && wide.matches) show(location.href);
			else location.reload();
		});
		wide.addEventListener("change", () => { if (!pane.hidden) location.reload(); });
		return {show, close, mark};
	})();

	// Live: server-sent events say that something changed; the part of the page marked data-live-part is read again. Rows
	// enter only while the list is scrolled to its top; otherwise a bar offers them.
	const live = $("[data-source]");
	if (live && window.EventSource) {
		let news = 0, wait, tries = 0;
		// The list keeps its own address while the address of the page is that of the email beside it.
		const source = part => pane && !part.closest("#pane") ? list : location.href;
		const refresh = () => {
			const parts = $$("[data-live-part]");
			if (!parts.length || document.hidden || $("details.drop[open]", parts[0])) return;
			for (const from of new Set(parts.map(source))) fetch(from, {headers: {"X-Live": "1", Accept: "text/html"}}).then(async r => {
				if (!r.ok) throw new Error(r.status);
				const fresh = new DOMParser().parseFromString(await r.text(), "text/html");
				for (const p of parts.filter(p => p.isConnected && source(p) === from)) {
					const f = fresh.getElementById(p.id);
					if (!f) continue;
					const known = new Set($$("[data-id]", p).map(x => x.dataset.id));
					const focused = document.activeElement?.closest?.("[data-id]")?.dataset.id;
					if (known.size) for (const x of $$("[data-id]", f)) if (!known.has(x.dataset.id)) x.classList.add("new");
					if (p.innerHTML !== f.innerHTML) p.replaceChildren(...f.childNodes);
					times(p);
					if (focused) $(`[data-id="${CSS.escape(focused)}"] a.whole`, p)?.focus({preventScroll: true});
				}
				beside?.mark();
				news = 0;
				$("#late")?.classList.remove("on");
			}).catch(() => {});
		};
		const changed = () => {
			news++;
			const late = $("#late");
			if (late && Math.max(scrollY, late.closest(".scroll")?.scrollTop || 0) > 80) {
				late.classList.add("on");
				$("button", late).textContent = "Show new emails";
				return;
			}
			wait ||= setTimeout(() => { wait = 0; refresh(); }, 300); // not later if changes never pause
		};
		const say = (state, text) => { if (live.dataset.live !== state) { live.dataset.live = state; live.textContent = text; } };
		const open = () => {
			const s = new EventSource(live.dataset.source);
			s.addEventListener("open", () => { say("on", "Live"); if (tries) refresh(); tries = 0; });
			for (const kind of ["change", "captured"]) s.addEventListener(kind, changed);
			s.addEventListener("error", () => {
				say("again", "Reconnecting");
				if (s.readyState === EventSource.CLOSED) setTimeout(open, Math.min(30000, 1000 * 2 ** tries++));
				else tries++;
			});
			addEventListener("pagehide", () => s.close(), {once: true});
		};
		open();
		// Parts whose changes are not events, such as look-ups in DNS, are read again while they ask for it.
		setInterval(() => { if ($("[data-live-part] [data-live-poll]")) refresh(); }, 4000);
		$("#late button")?.addEventListener("click", () => { scrollTo(0, 0); $("#late").closest(".scroll")?.scrollTo(0, 0); refresh(); });
		document.addEventListener("visibilitychange", () => { if (!document.hidden && news) refresh(); });
	}

	// What an outage has stopped is asked for until the server can show it. A proxy answers with 502 or 504 if the server
	// does not answer.
	const ask = (address, seconds, back, refused = 0) => setTimeout(async () => {
		let status = 503;
		try {
			status = (await fetch(address, {method: "HEAD", headers: {Accept: "text/html"}})).status;
		} catch {} // no server answers
		if ([502, 503, 504].includes(status)) ask(address, seconds, back, refused + 1);
		else back(refused);
	}, seconds * 1000);
	// A page is loaded again. A form is never submitted by itself: its page says that the visitor can submit it.
	const retry = $("[data-retry]");
	if (retry) ask(retry.dataset.retry, retry.dataset.seconds, () => {
		if (retry.dataset.back) retry.textContent = retry.dataset.back;
		else location.reload();
	});
	// A frame with mail runs no scripts, and all that the page can see of it is how many frames are in it. An error that
	// may be over soon has one (internal/front/web/frame.go). Mail may have one too: it is loaded once more, and no more.
	const again = f => {
		if (f.matches?.("iframe[sandbox]") && f.contentWindow?.length === 1) ask(f.src, 5, refused => {
			if (!refused && f.dataset.again) return;
			f.dataset.again = "1";
			f.src = f.src;
		});
	};
	document.addEventListener("load", e => again(e.target), true);
	for (const f of $$("iframe")) again(f);

	// The first wrong field, or the banner above the form, takes the focus.
	($("[aria-invalid=true]") || $(".banner.bad[tabindex]"))?.focus();
})();
