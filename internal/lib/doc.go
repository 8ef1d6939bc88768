// Package lib is the group of small packages that every other one may use: errors for users, identifiers, settings, log
// rate limits, and file permissions.
//
// These packages import nothing of the project outside of this group.
package lib
