// The search in the documentation: it ranks pages for what a reader types. The index comes from package docsite, whose
// test runs this file with Node.
"use strict";
const DocsSearch = (() => {
	const stops = new Set(("a an and are as at be by can did do does for from has have how i if in is it its me my not of on or " +
		"so than that the their then there this to us was we what when where which who why will with you your").split(" "));

	// stem returns a word without its usual endings. It must return the same as the function in package docsite.
	const single = w => {
		const n = w.length;
		return n > 2 && w[n - 1] === w[n - 2] && !"lsz".includes(w[n - 1]) ? w.slice(0, -1) : w;
	};
	const stem = w => {
		if (w.length > 4 && w.endsWith("ies")) w = w.slice(0, -3) + "y";
		else if (w.length > 3 && w.endsWith("s") && !/(ss|us|is)$/.test(w)) w = w.slice(0, -1);
		const n = w.length;
		if (n > 8 && w.endsWith("ication")) w = w.slice(0, -7) + "y";
		else if (n > 5 && w.endsWith("ing")) w = single(w.slice(0, -3));
		else if (n > 5 && w.endsWith("ied")) w = w.slice(0, -3) + "y";
		else if (n > 4 && w.endsWith("ed")) w = single(w.slice(0, -2));
		if (w.length > 4 && w.endsWith("e")) w = w.slice(0, -1);
		return w;
	};
	const words = text => text.toLowerCase().match(/[\p{L}\p{Nd}]+/gu) || [];
	const stems = text => words(text).filter(w => !stops.has(w)).map(stem);

	// numbers decodes the numbers of the headings whose texts contain a word.
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
	const numbers = text => {
		const all = [];
		let last = -1, value = 0, shift = 0;
		for (const c of text) {
			const d = digits.indexOf(c);
			value += (d & 31) * 2 ** shift;
			shift += 5;
			if (d >= 32) continue;
			last += value + 1;
			all.push(last);
			value = shift = 0;
		}
		return all;
	};

	// prepare makes an index ready for searches.
	const prepare = index => {
		const known = new Set(); // all stems
		const note = all => { for (const w of all) known.add(w); return new Set(all); };
		const pages = index.pages.map((p, number) => ({...p, number, title: note(stems(p.t)), keys: note(stems(p.k || "")), heads: []}));
		const heads = index.heads.map((h, number) => {
			const head = {...h, number, title: note(stems(h.t || ""))};
			pages[h.p].heads.push(head);
			return head;
		});
		const all = index.words.split(" "), coded = index.in.split(" ");
		const texts = new Map(all.map((w, i) => [w, coded[i]])); // decoded when they are needed
		note(all);
		const same = index.same.map(list => list.map(stems));
		return {pages, heads, texts, same, known, sorted: [...known].sort()};
	};

	// distance returns the number of letters to change, add, remove or swap, or 3 if there are more than two.
	const distance = (a, b) => {
		if (Math.abs(a.length - b.length) > 2) return 3;
		let before = [], row = [...Array(b.length + 1).keys()];
		for (let i = 1; i <= a.length; i++) {
			const next = [i];
			for (let j = 1; j <= b.length; j++) {
				next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] !== b[j - 1]));
				if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) next[j] = Math.min(next[j], before[j - 2] + 1);
			}
			before = row;
			row = next;
		}
		return Math.min(row[b.length], 3);
	};

	// variants returns the stems that stand for a typed one, with the share of their weight. The last word may be unfinished.
	const variants = (at, typed, word, isLast) => {
		const all = new Map();
		const add = (w, share) => { if ((all.get(w) || 0) < share) all.set(w, share); };
		const exact = at.known.has(word);
		if (exact) add(word, 1);
		for (const list of at.same) {
			const phrase = list.find(p => p.includes(word) && p.every(w => typed.includes(w)));
			if (!phrase) continue;
			for (const other of list) if (other !== phrase) for (const w of other) add(w, 0.7 / other.length ** 0.5);
		}
		if (word.length > 2) {
			const longer = at.sorted.filter(w => w.startsWith(word) && w !== word).sort((a, b) => a.length - b.length).slice(0, 12);
			for (const w of longer) add(w, exact && !isLast ? 0.25 : 0.5);
		}
		if (!all.size && word.length > 3) for (const w of at.sorted) {
			const d = distance(word, w);
			if (d === 1) add(w, 0.5);
			else if (d === 2 && word.length > 6) add(w, 0.3);
		}
		return all;
	};

	// find returns the best pages for a text, with the best heading of each.
	const find = (at, text, most) => {
		const parts = words(text);
		let typed = [...new Set(stems(text))];
		if (!typed.length) typed = [...new Set(parts.map(stem))];
		if (!typed.length) return [];
		const pages = at.pages.map(page => ({page, score: 0, matched: 0, heads: new Map()}));
		typed.forEach((word, n) => {
			const best = new Map(); // page, score for this word
			const bestHead = new Map();
			for (const [w, share] of variants(at, typed, word, n === typed.length - 1)) {
				const inText = at.texts.has(w) ? numbers(at.texts.get(w)) : [];
				const inTitle = at.heads.filter(h => h.title.has(w));
				const rare = share * Math.log(1 + at.heads.length / (1 + inText.length + inTitle.length));
				const texts = new Map(), titles = new Map();
				for (const i of inText) {
					const h = at.heads[i];
					texts.set(h.p, (texts.get(h.p) || 0) + 1);
					bestHead.set(h, Math.max(bestHead.get(h) || 0, rare));
				}
				for (const h of inTitle) {
					titles.set(h.p, Math.max(titles.get(h.p) || 0, 2 + 3 / h.title.size));
					bestHead.set(h, Math.max(bestHead.get(h) || 0, rare * (2 + 2 / h.title.size)));
				}
				for (const p of at.pages) {
					let score = 0;
					if (p.title.has(w)) score += 4 + 6 / p.title.size;
					if (p.keys.has(w)) score += 7;
					score += titles.get(p.number) || 0;
					if (texts.has(p.number)) score += 1 + Math.min(Math.log2(texts.get(p.number)), 2);
					score *= rare;
					if (score > (best.get(p.number) || 0)) best.set(p.number, score);
				}
			}
			for (const [i, score] of best) {
				pages[i].score += score;
				pages[i].matched++;
			}
			for (const [h, score] of bestHead) {
				const of = pages[h.p].heads;
				const sum = of.get(h) || {score: 0, matched: 0};
				sum.score += score;
				sum.matched++;
				of.set(h, sum);
			}
		});
		const found = [];
		for (const p of pages) {
			if (!p.matched) continue;
			let head = null, top = 0;
			for (const [h, sum] of p.heads) {
				const score = sum.score * (sum.matched / typed.length) ** 2;
				if (score > top) [head, top] = [h, score];
			}
			// The words of a phrase are worth more in one section than in several.
			const score = (p.score + 2 * top) * (p.matched / typed.length) ** 2 * p.page.w;
			const titled = typed.every(w => p.page.title.has(w));
			found.push({score, path: p.page.p, title: p.page.t, section: p.page.s || "",
				id: !titled && head?.a || "", heading: !titled && head?.t || ""});
		}
		return found.sort((a, b) => b.score - a.score).slice(0, most);
	};

	// place returns the path of the page for an id of earlier versions, which had all operations on the first page, and the
	// id there. It returns undefined if there is none.
	const place = (index, id) => {
		const group = "api/" + id.replace(/^group-/, "");
		if (id.startsWith("group-") && index.pages.some(p => p.p === group)) return {path: group, id: ""};
		const h = index.heads.find(h => h.a === id && index.pages[h.p].p.startsWith("api"));
		return h && {path: index.pages[h.p].p, id};
	};

	// forPalette loads the index of a node's documentation, and returns a function that finds sections for a text, as items of
	// the palette of the dashboard (app.js).
	const forPalette = async () => {
		const r = await fetch("/docs/search.json");
		if (!r.ok) throw new Error(r.status);
		const at = prepare(await r.json());
		return text => find(at, text, 6).map(f => ({label: f.title + (f.heading ? " › " + f.heading : ""), aside: f.section,
			href: "/docs" + (f.path && "/" + f.path) + (f.id && "#" + f.id)}));
	};

	return {stem, prepare, find, place, forPalette};
})();
if (typeof module !== "undefined") module.exports = DocsSearch;
