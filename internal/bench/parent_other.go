//go:build !linux

package bench

import "syscall"

// endWithParent returns no attributes, because other systems cannot end a process together with its parent.
func endWithParent() *syscall.SysProcAttr { return nil }
