// Release builds what a release consists of: programs, archives, packages, a container image, a bill of materials and
// checksums, in one folder. `make release` runs it in the root of the source.
//
// # Invariants
//
// The same commit, compilers and libcrypto produce the same bytes in any folder. Release builds everything twice, the
// second time in a clone in another folder and without the network, and compares the bytes.
//
// # Failures
//
// Release stops at the first failed step and says what is missing. It builds a clone of the current commit, whose version
// and date the programs have; the go command finds neither in another work tree of git. Changes must be committed.
//
// # Out of scope
//
// Release does not sign and does not publish. It runs on Linux with an amd64 processor, because the program for this
// platform is linked with the machine's libcrypto.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "bin/release", "`folder` to fill; its former content is deleted")
	once := flag.Bool("once", false, "build once, and compare nothing")
	fresh := flag.Bool("fresh", false, "compile everything anew for the second build, which takes as long as the first")
	only := flag.String("only", "", "build only this `platform`, such as linux/amd64")
	flag.Parse()
	if err := run(ctx, *out, *only, *once, *fresh); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, only string, once, fresh bool) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return errors.New("run it on Linux with an amd64 processor: the program for it contains the machine's libcrypto")
	}
	changed, err := output(ctx, ".", "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("commit these changes first:\n%s", changed)
	}
	began := time.Now()
	first, err := buildClone(ctx, "first", out, only)
	if err != nil || once {
		return err
	}
	fmt.Printf("built in %s; building again to compare\n", time.Since(began).Round(time.Second))
	if err := repeat(ctx, first, fresh); err != nil {
		return err
	}
	fmt.Printf("release %s is in %s, after %s\n", first.version, out, time.Since(began).Round(time.Second))
	return nil
}

// repeat builds the release again in another folder, without the network, and compares the bytes.
func repeat(ctx context.Context, first *build, fresh bool) (err error) {
	folder, err := os.MkdirTemp("", "postrider-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	modules, err := output(ctx, ".", "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	// The go command asks the proxy even for a tool whose version is given, so the cache acts as the proxy.
	env := []string{"GOPROXY=file://" + filepath.Join(modules, "cache", "download") + ",off", "GOSUMDB=off"}
	if fresh {
		env = append(env, "GOCACHE="+filepath.Join(folder, "cache"))
	}
	second, err := buildClone(ctx, "second/in/another/place", filepath.Join(folder, "out"), first.only, env...)
	if err != nil {
		return fmt.Errorf("second build: %w", err)
	}
	return compare(first.out, second.out)
}

// buildClone builds a clone of the current commit in a temporary folder with the given name.
func buildClone(ctx context.Context, name, out, only string, env ...string) (b *build, err error) {
	folder, err := os.MkdirTemp("", "postrider-source-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	source := filepath.Join(folder, name)
	if _, err := output(ctx, ".", "git", "clone", "--quiet", ".", source); err != nil {
		return nil, err
	}
	if b, err = newBuild(ctx, source, out, only); err != nil {
		return nil, err
	}
	b.env = append(b.env, env...)
	return b, b.run(ctx)
}

// output runs a command in a folder and returns what it prints, without the last line break.
func output(ctx context.Context, folder, name string, args ...string) (string, error) {
	return outputWith(ctx, folder, nil, name, args...)
}

func outputWith(ctx context.Context, folder string, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	c.Dir, c.Stderr = folder, &said
	c.Env = append(c.Environ(), env...)
	out, err := c.Output()
	if err != nil {
		text := cmp.Or(strings.TrimSpace(said.String()), string(out))
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return strings.TrimRight(string(out), "\n"), nil
}
