// Package postrider holds the documents at the root of the repository, which the program serves with the other
// documentation. Its tests check the repository itself: import rules, file sizes, names, and the links between docs.
// The program is in cmd/postrider.
package postrider

import "embed"

// Files are the documents at the root of the repository.
//
//go:embed README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md
var Files embed.FS
