// Package lib groups small packages that all other packages may import: user-facing errors, ids, configuration, log
// rate limiting, and file permissions.
//
// These packages import no other package of the project outside this group.
package lib
