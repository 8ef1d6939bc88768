// Answers searches as the pages do: node search.js SCRIPT, with the index and the searches as JSON at the standard input.
const search = require(process.argv[2]);
const {index, queries, words} = JSON.parse(require("fs").readFileSync(0, "utf8"));
const ready = search.prepare(index);
console.log(JSON.stringify({
	found: queries.map(q => search.find(ready, q, 3).map(f => f.path + (f.id ? "#" + f.id : ""))),
	stems: words.map(search.stem),
	moved: ["sendAnEmail", "group-emails", "nothing"].map(id => search.place(index, id) || null),
}));
