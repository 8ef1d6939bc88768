// Package docs holds the documentation, so that each program can serve the pages of its own version. Package docsite
// serves them.
package docs

import "embed"

// Files are the documents in Markdown and the pictures in them.
//
//go:embed *.md guides/*.md operating/*.md design/*.md pictures/*
var Files embed.FS
