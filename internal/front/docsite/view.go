package docsite

import (
	"path"
	"regexp"
	"strings"

	"github.com/postrider/postrider/internal/front/web"
)

// view is how one page is shown: to whom, and at which addresses.
type view struct {
	d    *Docs
	all  *contents
	page *page

	theme     string // light, dark or ""
	signedIn  bool
	member    bool   // whether the visitor has a team
	address   string // base URL of the API, or "" on static pages
	key       string // development key, or ""
	static    bool
	documents bool // whether links lead to Markdown documents
	atTop     bool // whether the static page is shown in a file of the topmost folder
}

// Development reports whether the node is for development, so that readers can try operations from the pages.
func (v *view) Development() bool {
	return !v.static && v.d.o.DevelopmentKey != nil && v.d.o.DevelopmentKey() != ""
}

// repository is the address of the project's repository.
const repository = "https://github.com/postrider/postrider"

var releaseVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[a-z]+\.?\d*)?$`)

// inRepository returns the address of a file in the repository, as of the program's version if that is a release.
func (d *Docs) inRepository(kind, file string) string {
	at := "main"
	if releaseVersion.MatchString(d.o.Version) && kind == "blob" {
		at = d.o.Version
	}
	return repository + "/" + kind + "/" + at + "/" + file
}

// Root is the address of the documentation that a node serves.
const Root = web.DocsPath

// href returns the address of a page. On static pages, addresses are relative, so that the pages work in any folder.
func (v *view) href(p *page) string {
	if v.documents {
		return v.document(p)
	}
	if v.static {
		return v.up() + fileOf(p.Path) + ".html"
	}
	return strings.TrimSuffix(Root+"/"+p.Path, "/")
}

// document returns the address of the Markdown document of a page.
func (v *view) document(p *page) string {
	if v.static {
		return v.up() + fileOf(p.Path) + ".md"
	}
	return Root + "/" + fileOf(p.Path) + ".md"
}

// fileOf returns the name of the file of a page, without an extension.
func fileOf(path string) string {
	if path == "" {
		return "index"
	}
	return path
}

// up returns the relative address of the folder with all static pages.
func (v *view) up() string {
	if v.atTop {
		return ""
	}
	return strings.Repeat("../", strings.Count(v.page.Path, "/"))
}

// file returns the address of another file of the site, such as a picture.
func (v *view) file(name string) string {
	if v.static {
		return v.up() + name
	}
	return Root + "/" + name
}

// Asset returns the address of a file that all pages load.
func (v *view) Asset(name string) string {
	if v.static {
		return v.up() + "assets/" + name
	}
	return web.AssetPath(name)
}

// resolve returns the address to which a link of the page leads.
func (v *view) resolve(dest string) string {
	if dest == "" || strings.HasPrefix(dest, "#") || strings.Contains(dest, "://") || strings.HasPrefix(dest, "mailto:") {
		return dest
	}
	file, fragment := dest, ""
	if i := strings.IndexByte(dest, '#'); i >= 0 {
		file, fragment = dest[:i], dest[i:]
	}
	if below, ok := strings.CutPrefix(file, Root); ok {
		if p := v.all.byPath[strings.Trim(below, "/")]; p != nil {
			return v.href(p) + fragment
		}
		return dest
	}
	from := v.page.source
	if from == "" {
		from = "docs/" + v.page.Path + ".md"
	}
	target := path.Join(path.Dir(from), file)
	if p := v.all.bySource[target]; p != nil {
		return v.href(p) + fragment
	}
	if below, ok := strings.CutPrefix(target, "docs/"); ok {
		if p := v.all.byPath[strings.TrimSuffix(below, ".md")]; p != nil {
			return v.href(p) + fragment
		}
		if strings.HasPrefix(below, "pictures/") {
			return v.file(below)
		}
	}
	return v.d.inRepository("blob", target) + fragment
}
