// The theme that a reader has chosen for the documentation. This runs before the page is drawn.
"use strict";
try {
	const theme = localStorage.getItem("postrider-docs-theme");
	if (theme) document.documentElement.dataset.theme = theme;
} catch {} // the browser keeps nothing for this site
