// Command genclient generates the package client from the OpenAPI document of the API.
//
// Each tag of the document becomes a service, such as DomainsService in domains_gen.go, and each operation becomes a
// method. The names of methods follow from paths (names.go), except for those listed there. The types of one tag are in
// the tag's file; types of several tags are in shared_gen.go.
//
// Genclient fails if the document has something that it cannot express, such as a new kind of list. It is our own
// program, because known generators for Go make code that needs further packages at run time, know no lists, retries
// and streams, or do not read OpenAPI 3.1.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/postrider/postrider/internal/front/api"
)

// suffix is the end of the names of generated files.
const suffix = "_gen.go"

func main() {
	if err := run("client"); err != nil {
		fmt.Fprintln(os.Stderr, "genclient:", err)
		os.Exit(1)
	}
}

// run writes the generated files into a folder, and removes generated files that are no longer needed.
func run(folder string) error {
	files, err := generate(api.Document())
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil {
		return err
	}
	for _, name := range old {
		if files[filepath.Base(name)] == nil {
			err = errors.Join(err, os.Remove(name))
		}
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if have, e := os.ReadFile(path); e == nil && bytes.Equal(have, text) {
			continue
		}
		err = errors.Join(err, os.WriteFile(path, text, 0o644))
	}
	return err
}

// fileOf returns the name of the file of a service, such as api_keys_gen.go for the tag "API keys".
func fileOf(tag string) string {
	return strings.ReplaceAll(strings.ToLower(tag), " ", "_") + suffix
}
