//go:build !linux

package danetest

import "testing"

// Isolated reports whether Isolate started this process.
func Isolated() bool { return false }

// Isolate does nothing, because only Linux has namespaces.
func Isolate(testing.TB) (done bool, why string) { return false, "only Linux has namespaces" }
