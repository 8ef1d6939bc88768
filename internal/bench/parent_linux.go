package bench

import "syscall"

// endWithParent returns attributes for a process that ends when this process ends.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
