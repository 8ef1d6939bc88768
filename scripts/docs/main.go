// Docs writes the documentation as static files to a folder, for hosting: one folder for each version of the program.
//
//	go run ./scripts/docs -o bin/docs -version v1.2.3
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/postrider/postrider/internal/cli"
	"github.com/postrider/postrider/internal/front/api"
	"github.com/postrider/postrider/internal/front/docsite"
)

func main() {
	out := flag.String("o", "bin/docs", "`folder` in which the folder of the version is written")
	version := flag.String("version", cli.Version, "`version` of the program")
	flag.Parse()
	if err := write(*out, *version); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// write writes the documentation to the folder of a version.
func write(out, version string) error {
	if version == "" || strings.ContainsAny(version, `/\`) || strings.HasPrefix(version, ".") {
		return fmt.Errorf("the version %q cannot be the name of a folder", version)
	}
	folder := filepath.Join(out, version)
	described := api.New(api.Options{Log: slog.New(slog.DiscardHandler), Version: version})
	site := docsite.New(docsite.Options{Version: version, Extra: func() []docsite.Page {
		return append(docsite.Reference(described, false), cli.Reference()...)
	}})
	if err := site.Export(folder); err != nil {
		return err
	}
	fmt.Println(filepath.Join(folder, "index.html"))
	return nil
}
