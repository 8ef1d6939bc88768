// Package lib groups small packages that all other packages may import: user-facing errors, ids, configuration, log
// rate limiting, and file permissions.
//
// Packages in lib import no package of the project outside of lib.
package lib
