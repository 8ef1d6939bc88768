package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// tool compiles a program of another module for this machine, and returns its file name.
func (b *build) tool(ctx context.Context, pkg string) (string, error) {
	env := append(slices.Clone(b.env), "GOBIN="+b.work, "CGO_ENABLED=0")
	if _, err := outputWith(ctx, b.work, env, "go", "install", "-trimpath", pkg); err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(pkg, "@")
	return filepath.Join(b.work, path.Base(name)), nil
}

// packages makes the deb and the rpm for each processor architecture.
func (b *build) packages(ctx context.Context) error {
	tool, err := b.tool(ctx, nfpm)
	if err != nil {
		return err
	}
	completions, err := b.completions(ctx)
	if err != nil {
		return err
	}
	version := packageVersion(b.version)
	rpmArch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	for _, p := range b.chosen() {
		if p.os != "linux" {
			continue
		}
		for kind, name := range map[string]string{
			"deb": fmt.Sprintf("postrider_%s-1_%s.deb", version, p.arch),
			"rpm": fmt.Sprintf("postrider-%s-1.%s.rpm", version, rpmArch[p.arch]),
		} {
			env := append(slices.Clone(b.env), "VERSION="+version, "ARCH="+p.arch, "BINARY="+b.binary(p),
				"LICENSES="+b.licensesFile(), "COMPLETIONS="+completions)
			if _, err := outputWith(ctx, b.source, env, tool, "package", "--config",
				"deploy/packages/nfpm.yaml", "--packager", kind, "--target", filepath.Join(b.out, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// completions writes the completion scripts of the shells, which are the same for all platforms, and returns their
// folder.
func (b *build) completions(ctx context.Context) (string, error) {
	program := []string{"go", "run", "./cmd/postrider"}
	if i := slices.IndexFunc(b.chosen(), func(p platform) bool { return p.String() == "linux/amd64" }); i >= 0 {
		program = []string{b.binary(b.chosen()[i])}
	}
	folder := filepath.Join(b.work, "completions")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		args := append(slices.Clone(program[1:]), "completion", shell)
		text, err := outputWith(ctx, b.source, b.env, program[0], args...)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, shell), []byte(text+"\n"), 0o644)
		}
		if err != nil {
			return "", fmt.Errorf("make the completion script for %s: %w", shell, err)
		}
	}
	return folder, nil
}

// bills writes a bill of materials (CycloneDX) for each platform. That of a program with libcrypto names OpenSSL too.
func (b *build) bills(ctx context.Context) error {
	tool, err := b.tool(ctx, cycloneDX)
	if err != nil {
		return err
	}
	for _, p := range b.chosen() {
		env := append(slices.Clone(b.env), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0")
		if p.libcrypto() {
			env = append(env, "CGO_ENABLED=1", "GOFLAGS=-tags=libcrypto,netgo,osusergo")
		}
		text, err := outputWith(ctx, b.source, env, tool, "app", "-json", "-noserial", "-std", "-main", "cmd/postrider", ".")
		if err != nil {
			return err
		}
		name := fmt.Sprintf("postrider_%s_%s_%s.cdx.json", b.version, p.os, p.arch)
		if err := b.writeFile(name, func(w io.Writer) error { return b.writeBill(ctx, w, p, text) }); err != nil {
			return err
		}
	}
	return nil
}

// writeBill writes a bill of materials with the date of the commit, and with OpenSSL where it is linked.
func (b *build) writeBill(ctx context.Context, w io.Writer, p platform, text string) error {
	var bill map[string]any
	if err := json.Unmarshal([]byte(text), &bill); err != nil {
		return fmt.Errorf("read the bill of materials: %w", err)
	}
	if metadata, ok := bill["metadata"].(map[string]any); ok {
		metadata["timestamp"] = b.date.Format("2006-01-02T15:04:05Z")
	}
	if p.libcrypto() {
		version, err := output(ctx, b.source, "pkg-config", "--modversion", "libcrypto")
		if err != nil {
			return err
		}
		components, ok := bill["components"].([]any)
		if !ok {
			return errors.New("the bill of materials has no components")
		}
		bill["components"] = append(components, map[string]any{"type": "library", "name": "openssl", "version": version,
			"bom-ref": "pkg:generic/openssl@" + version, "purl": "pkg:generic/openssl@" + version,
			"licenses": []any{map[string]any{"license": map[string]any{"id": "Apache-2.0"}}}})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(bill)
}

// checksums removes the files that are not part of the release, and writes SHA256SUMS.
func (b *build) checksums(context.Context) error {
	if err := os.RemoveAll(b.work); err != nil {
		return err
	}
	sums, err := sumFiles(b.out)
	if err != nil {
		return err
	}
	return b.writeFile("SHA256SUMS", func(w io.Writer) error {
		lines := bufio.NewWriter(w)
		for _, s := range sums {
			fmt.Fprintf(lines, "%s  %s\n", s.sum, s.name)
		}
		return lines.Flush()
	})
}

type fileSum struct{ name, sum string }

// sumFiles returns the SHA-256 checksums of the files in a folder, by name.
func sumFiles(folder string) (sums []fileSum, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		sums = append(sums, fileSum{e.Name(), fmt.Sprintf("%x", sha256.Sum256(data))})
	}
	return sums, nil
}

// compare returns an error that names the files that differ between two folders.
func compare(first, second string) error {
	a, err := sumFiles(first)
	if err != nil {
		return err
	}
	b, err := sumFiles(second)
	if err != nil {
		return err
	}
	var differ []string
	for _, s := range append(slices.Clone(a), b...) {
		if (!slices.Contains(a, s) || !slices.Contains(b, s)) && !slices.Contains(differ, s.name) {
			differ = append(differ, s.name)
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("the two builds differ in %s", strings.Join(differ, ", "))
	}
	fmt.Printf("both builds have the same %d files\n", len(a))
	return nil
}
