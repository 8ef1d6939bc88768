package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func (b *build) licensesFile() string { return filepath.Join(b.work, "third-party-licenses.txt") }

// licenseFile matches the names of files with the license of a module.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licenses writes the licenses of all modules in the programs to one file, because the licenses demand that copies of
// the program contain them.
func (b *build) licenses(ctx context.Context) error {
	type module struct{ Path, Version, Dir string }
	var modules []module
	for _, p := range b.chosen() {
		text, err := outputWith(ctx, b.source, append(slices.Clone(b.env), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0"),
			"go", "list", "-deps", "-json=Module", "./cmd/postrider")
		if err != nil {
			return err
		}
		for d := json.NewDecoder(strings.NewReader(text)); ; {
			var pkg struct {
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := d.Decode(&pkg); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if m := pkg.Module; m != nil && !m.Main {
				modules = append(modules, module{m.Path, m.Version, m.Dir})
			}
		}
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	var all bytes.Buffer
	fmt.Fprintf(&all, "Postrider contains the Go library and these modules, under the licenses below.\n"+
		"Its program for Linux on amd64 also contains libcrypto of OpenSSL 3, under the Apache License 2.0, whose text is "+
		"that of Postrider's own license.\n")
	root, err := output(ctx, b.source, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	if err := appendLicenses(&all, "Go", root); err != nil {
		return err
	}
	for _, m := range slices.Compact(modules) {
		if err := appendLicenses(&all, m.Path+" "+m.Version, m.Dir); err != nil {
			return err
		}
	}
	return os.WriteFile(b.licensesFile(), all.Bytes(), 0o644)
}

func appendLicenses(all *bytes.Buffer, name, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(all, "\n\n==== %s: %s ====\n\n%s", name, e.Name(), text)
		found = true
	}
	if !found {
		return fmt.Errorf("%s has no file with its license in %s", name, folder)
	}
	return nil
}
