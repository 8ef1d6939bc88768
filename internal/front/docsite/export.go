package docsite

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/postrider/postrider/docs"
	"github.com/postrider/postrider/internal/front/web"
)

// assets are the files that all pages load.
var assets = []string{"app.css", "docs.css", "docs.js", "docs-search.js", "docs-theme.js", "icons.svg", "favicon.svg"}

// Export writes the documentation as static files to a folder, which it creates. All links are relative, so that the
// folder can be served at any address. The files of an earlier export stay if they are not replaced.
func (d *Docs) Export(folder string) error {
	all, err := d.contents()
	if err != nil {
		return err
	}
	write := func(name string, content []byte) error {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("create a folder of the documentation: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write a file of the documentation: %w", err)
		}
		return nil
	}
	for _, name := range assets {
		if err := write("assets/"+name, web.Asset(name)); err != nil {
			return err
		}
	}
	for _, p := range all.pages {
		v := view{d: d, all: all, page: p, static: true}
		as := v
		as.documents = true
		for ending, render := range map[string]func() ([]byte, error){".html": v.html, ".md": as.markdownText} {
			content, err := render()
			if err != nil {
				return err
			}
			if err := write(fileOf(p.Path)+ending, content); err != nil {
				return err
			}
		}
	}
	top := view{d: d, all: all, page: all.pages[0], static: true, atTop: true}
	for name, render := range map[string]func() ([]byte, error){indexFile: top.index, listFile: top.list,
		wholeFile: top.whole} {
		content, err := render()
		if err != nil {
			return err
		}
		if err := write(name, content); err != nil {
			return err
		}
	}
	pictures, err := fs.Glob(docs.Files, "pictures/*")
	if err != nil {
		return fmt.Errorf("list the pictures of the documentation: %w", err)
	}
	for _, name := range pictures {
		picture, err := fs.ReadFile(docs.Files, name)
		if err != nil {
			return fmt.Errorf("read a picture of the documentation: %w", err)
		}
		if err := write(name, picture); err != nil {
			return err
		}
	}
	return nil
}
