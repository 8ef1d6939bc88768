package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Versions of the programs that build packages and bills of materials. Later versions of nfpm need modules that not every
// module proxy serves.
const (
	nfpm      = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"
	cycloneDX = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"
)

// maxProgram is the maximum size of a program in bytes.
const maxProgram = 60 << 20

// platform is an operating system with a processor architecture.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// libcrypto reports whether the program for a platform contains libcrypto.
func (p platform) libcrypto() bool { return p == platform{"linux", "amd64"} }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// build is one build of a release.
type build struct {
	source, out string // folders
	only        string // a single platform, or ""
	version     string // as in the names of files, such as 0.1.0
	date        time.Time
	env         []string
	work        string // programs and other files that are not part of the release
}

// newBuild prepares a build of the source in a folder.
func newBuild(ctx context.Context, source, out, only string) (*build, error) {
	source, err := filepath.Abs(source)
	if err != nil {
		return nil, err
	}
	if out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if only != "" && !slices.ContainsFunc(platforms, func(p platform) bool { return p.String() == only }) {
		return nil, fmt.Errorf("unknown platform %q", only)
	}
	b := &build{source: source, out: out, only: only, work: filepath.Join(out, "work")}
	text, err := output(ctx, source, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the date of the commit: %w", err)
	}
	b.date = time.Unix(seconds, 0).UTC()
	// The environment of the caller must not change the programs. GOGC concerns the compiler itself: with more memory, it
	// takes an eighth less time.
	b.env = []string{"GOGC=400", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off", "CGO_CFLAGS=-O2",
		"CGO_LDFLAGS=", "TZ=UTC", "LC_ALL=C", "SOURCE_DATE_EPOCH=" + text}
	return b, nil
}

// run builds everything.
func (b *build) run(ctx context.Context) error {
	if err := os.RemoveAll(b.out); err != nil {
		return err
	}
	if err := os.MkdirAll(b.work, 0o755); err != nil {
		return err
	}
	for _, p := range b.chosen() {
		if err := b.step("program for "+p.String(), func() error { return b.program(ctx, p) }); err != nil {
			return err
		}
	}
	if err := b.readVersion(ctx); err != nil {
		return err
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"licenses", b.licenses}, {"archives", b.archives}, {"packages", b.packages}, {"container image", b.image},
		{"bills of materials", b.bills}, {"checksums", b.checksums},
	}
	for _, s := range steps {
		if err := b.step(s.name, func() error { return s.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) chosen() []platform {
	return slices.DeleteFunc(slices.Clone(platforms), func(p platform) bool { return b.only != "" && p.String() != b.only })
}

func (b *build) step(name string, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("%6.1f s  %s\n", time.Since(began).Seconds(), name)
	return nil
}

// binary returns the file name of a program.
func (b *build) binary(p platform) string { return filepath.Join(b.work, p.os+"-"+p.arch, "postrider") }

// program compiles the program for a platform.
func (b *build) program(ctx context.Context, p platform) error {
	env := append(slices.Clone(b.env), "GOOS="+p.os, "GOARCH="+p.arch)
	args := []string{"build", "-trimpath", "-buildvcs=true", "-o", b.binary(p)}
	if p.libcrypto() {
		env = append(env, "CGO_ENABLED=1")
		args = append(args, "-tags=libcrypto,netgo,osusergo",
			"-ldflags=-s -w -buildid= -linkmode external -extldflags '-static -Wl,--build-id=none'")
	} else {
		env = append(env, "CGO_ENABLED=0")
		args = append(args, "-ldflags=-s -w -buildid=")
	}
	if _, err := outputWith(ctx, b.source, env, "go", append(args, "./cmd/postrider")...); err != nil {
		if p.libcrypto() && strings.Contains(err.Error(), "-lcrypto") {
			return fmt.Errorf("libcrypto.a is missing; on Debian and Ubuntu, install libssl-dev: %w", err)
		}
		return err
	}
	info, err := os.Stat(b.binary(p))
	if err == nil && info.Size() > maxProgram {
		err = fmt.Errorf("the program has %d bytes, more than %d", info.Size(), maxProgram)
	}
	return err
}

// moduleVersion finds the version of the program in the output of go version -m.
var moduleVersion = regexp.MustCompile(`(?m)^\s+mod\s+\S+\s+v(\S+)`)

// readVersion reads the version that the go command has put into the programs: a tag, or a pseudo-version.
func (b *build) readVersion(ctx context.Context) error {
	text, err := output(ctx, b.source, "go", "version", "-m", b.binary(b.chosen()[0]))
	if err != nil {
		return err
	}
	found := moduleVersion.FindStringSubmatch(text)
	if found == nil {
		return errors.New("the program has no version: git must be installed, and the source must be a clone")
	}
	b.version = found[1]
	return nil
}

// packageVersion returns the version as deb and rpm compare it: 0.2.0-rc.1 comes before 0.2.0. Packages allow no
// hyphen in it.
func packageVersion(version string) string {
	version, _, _ = strings.Cut(version, "+")
	number, before, ok := strings.Cut(version, "-")
	if !ok {
		return number
	}
	return number + "~" + strings.ReplaceAll(before, "-", ".")
}
