// Package spelling finds the known name that a misspelled name most likely stands for.
//
// # Invariants
//
// The result depends only on the names, not on their order, unless two names are equally near: then the first one is
// returned.
//
// # Out of scope
//
// The package neither corrects a name nor decides what happens to a wrong one.
package spelling

import "strings"

// Nearest returns the known name that differs least from the given one, or "" if none is near. A name counts as near if
// few letters differ, or if the given name is its beginning.
func Nearest(name string, known []string) string {
	name = strings.ToLower(name)
	if len(name) > maxLength {
		return ""
	}
	best := ""
	if len(name) >= minBeginning {
		for _, k := range known {
			if strings.HasPrefix(strings.ToLower(k), name) && (best == "" || len(k) < len(best)) {
				best = k
			}
		}
	}
	if best != "" {
		return best
	}
	least := 2 + min(len(name)/4, 2)
	for _, k := range known {
		if len(k) > maxLength {
			continue
		}
		if d := distance(name, strings.ToLower(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

const (
	maxLength    = 100 // bytes of a name; the cost grows with the square
	minBeginning = 3   // bytes of a beginning
)

// distance returns the number of insertions, deletions, replacements and swaps of neighbors that turn a into b. No part
// of a name is changed twice (the optimal string alignment distance).
func distance(a, b string) int {
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
