package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mholt/acmez/v3/acme"
)

const (
	hookLimit  = 3 * time.Minute // of one call
	hookPause  = 5 * time.Second // between the signal to a program that takes too long and its end
	hookOutput = 2 << 10         // bytes of the program's output in an error
)

// hook publishes DNS-01 challenges with a program of the operator. It runs the program with the arguments "present" or
// "cleanup", the name of a TXT record, and the record's value. When "present" ends with status 0, all name servers have
// the record.
type hook struct{ program string }

// checkHook returns an error if a program cannot be run.
func checkHook(program string) error {
	info, err := os.Stat(program)
	switch {
	case err != nil:
		return fmt.Errorf("find %w", &FileError{"acme_dns_hook", err})
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return &FileError{"acme_dns_hook", fmt.Errorf("%s is not a program that can be run; run chmod +x", program)}
	}
	return nil
}

// Present implements acmez.Solver.
func (h hook) Present(ctx context.Context, c acme.Challenge) error { return h.run(ctx, "present", c) }

// CleanUp implements acmez.Solver.
func (h hook) CleanUp(ctx context.Context, c acme.Challenge) error {
	return h.run(context.WithoutCancel(ctx), "cleanup", c)
}

// run runs the program in a process group of its own, so that the programs that it starts end with it. It gets the
// environment without Postrider's settings, some of which are secret.
func (h hook) run(ctx context.Context, verb string, c acme.Challenge) error {
	ctx, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.program, verb, c.DNS01TXTRecordName(), c.DNS01KeyAuthorization())
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "POSTRIDER_") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookPause
	out := &limited{max: hookOutput}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it took longer than %v", hookLimit)
	}
	return fmt.Errorf("run acme_dns_hook %s %s: %w: %s", h.program, verb, err, strings.TrimSpace(out.text.String()))
}

// limited keeps the beginning of what is written to it.
type limited struct {
	text bytes.Buffer
	max  int
}

func (l *limited) Write(p []byte) (int, error) {
	if left := l.max - l.text.Len(); left > 0 {
		l.text.Write(p[:min(left, len(p))])
	}
	return len(p), nil
}
