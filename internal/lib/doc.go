// Package lib groups small packages that all other packages may import: user-facing errors, ids, configuration, log
// rate limits, and file permissions.
//
// These packages import no package of the project outside this group.
package lib
