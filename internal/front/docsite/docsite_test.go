package docsite_test

import (
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/docs"
	"github.com/postrider/postrider/internal/front/docsite"
	"github.com/postrider/postrider/internal/front/web"
)

// extra are pages as other packages pass them in.
var extra = []docsite.Page{
	{Path: "api", Title: "API reference", Section: "API reference", Content: func() (docsite.Content, error) {
		return docsite.Content{Markdown: "# API reference\n\nAll operations.\n", HTML: `<h2 id="group-emails">Emails</h2>` +
			`<h3 id="sendAnEmail">Send an email</h3>`, Headings: []docsite.Heading{
			{Level: 2, ID: "group-emails", Text: "Emails"},
			{Level: 3, ID: "sendAnEmail", Text: "Send an email", Words: "POST /emails"}}}, nil
	}},
	{Path: "cli/serve", Title: "postrider serve", Label: "serve", Section: "Command line", Group: "Start and run",
		Content: func() (docsite.Content, error) {
			return docsite.Content{Markdown: "# postrider serve\n\nSee [all settings](../configuration.md#relays).\n"}, nil
		}},
}

// newSite returns a site that serves the documentation, and its documentation.
func newSite(t *testing.T) (*http.ServeMux, *docsite.Docs) {
	t.Helper()
	site := web.New(web.Config{PublicURL: publicURL}, nil, nil, slog.New(slog.DiscardHandler))
	d := docsite.New(docsite.Options{Version: "v1.2.3", Site: site, Extra: func() []docsite.Page { return extra },
		Address: func(*http.Request) string { return publicURL }})
	mux := http.NewServeMux()
	web.RegisterAssets(mux)
	d.Register(mux)
	return mux, d
}

// get requests a path, and returns the response.
func get(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	return request(t, h, http.MethodGet, path, header...)
}

func request(t *testing.T, h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// references are the addresses in a page, and the ids of its elements.
type references struct {
	links []string
	ids   map[string]bool
}

// parse returns the references in a page. It fails the test if an id is used twice.
func parse(t *testing.T, name, page string) references {
	t.Helper()
	all := references{ids: map[string]bool{}}
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		if z.Next() == html.ErrorToken {
			return all
		}
		token := z.Token()
		for _, a := range token.Attr {
			switch a.Key {
			case "href", "src", "data-index":
				all.links = append(all.links, a.Val)
			case "id":
				if all.ids[a.Val] {
					t.Errorf("%s has two elements with the id %s", name, a.Val)
				}
				all.ids[a.Val] = true
			}
		}
	}
}

// checkLinks follows all links within the site, from the page at start. The function load returns a page, or false if
// there is none. Links to the product's other pages and to other sites are not followed.
func checkLinks(t *testing.T, start string, load func(path string) (string, bool)) int {
	t.Helper()
	pages := map[string]references{}
	var visit func(from, at string) references
	visit = func(from, at string) references {
		if known, ok := pages[at]; ok {
			return known
		}
		text, ok := load(at)
		if !ok {
			t.Errorf("%s links to %s, which does not exist", from, at)
		}
		pages[at] = references{}
		if !strings.HasPrefix(text, "<!doctype html>") {
			return pages[at]
		}
		pages[at] = parse(t, at, text)
		for _, l := range pages[at].links {
			if strings.Contains(l, "://") || strings.HasPrefix(l, "mailto:") || strings.HasPrefix(l, "/app/") ||
				strings.HasPrefix(l, "/sign-in") || l == "/openapi.json" {
				continue
			}
			file, fragment, _ := strings.Cut(l, "#")
			target := at
			if strings.HasPrefix(file, "/") {
				target = file
			} else if file != "" {
				target = path.Join(path.Dir(at), file)
			}
			to := visit(at, target)
			if fragment != "" && to.ids != nil && !to.ids[fragment] {
				t.Errorf("%s links to #%s of %s, which has no such element", at, fragment, target)
			}
		}
		return pages[at]
	}
	visit("the start", start)
	return len(pages)
}

// Every link of the site that a node serves leads to a page, a file or an element that exists.
func TestServedLinks(t *testing.T) {
	t.Parallel()
	mux, _ := newSite(t)
	n := checkLinks(t, "/docs", func(path string) (string, bool) {
		w := get(t, mux, path)
		return w.Body.String(), w.Code == 200
	})
	if n < 100 {
		t.Errorf("only %d pages and files were found", n)
	}
}

// Every link of the static site leads to a file or an element that exists, in whatever folder the site lies.
func TestExport(t *testing.T) {
	t.Parallel()
	_, d := newSite(t)
	dir := t.TempDir()
	if err := d.Export(filepath.Join(dir, "v1.2.3")); err != nil {
		t.Fatal(err)
	}
	n := checkLinks(t, "/v1.2.3/index.html", func(path string) (string, bool) {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		return string(text), err == nil
	})
	if n < 100 {
		t.Errorf("only %d pages and files were found", n)
	}
	page, err := os.ReadFile(filepath.Join(dir, "v1.2.3", "cli", "serve.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`href="../configuration.html#relays"`, `href="../assets/docs.css"`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("a page in a folder lacks %s", want)
		}
	}
	if strings.Contains(string(page), "/app/") || strings.Contains(string(page), "/sign-in") {
		t.Error("a static page leads to pages of a node")
	}
	for _, name := range []string{"llms.txt", "llms-full.txt", "search.json", "contacts.md", "index.md"} {
		if _, err := os.Stat(filepath.Join(dir, "v1.2.3", name)); err != nil {
			t.Error(err)
		}
	}
}

// Each document is listed in docs/README.md, which is the navigation, and has a page.
func TestAllDocumentsHavePages(t *testing.T) {
	t.Parallel()
	mux, _ := newSite(t)
	list := get(t, mux, "/docs.md")
	if list.Code != http.StatusSeeOther || list.Header().Get("Location") != "/docs/index.md" {
		t.Errorf("/docs.md: %d %v", list.Code, list.Header())
	}
	text := get(t, mux, "/docs/index.md").Body.String()
	err := fs.WalkDir(docs.Files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" || name == "README.md" {
			return err
		}
		if !strings.Contains(text, "(/docs/"+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
		if w := get(t, mux, "/docs/"+strings.TrimSuffix(name, ".md")); w.Code != 200 {
			t.Errorf("%s has no page: %d", name, w.Code)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A page has the parts that readers use, and its headings have the ids that a repository gives them.
func TestPage(t *testing.T) {
	t.Parallel()
	mux, _ := newSite(t)
	page := get(t, mux, "/docs/contacts").Body.String()
	for _, want := range []string{"<title>Contacts, properties, segments and topics – Postrider documentation</title>",
		`<h2 id="engagement">Engagement<a class="anchor" href="#engagement" aria-label="Link to this section">#</a></h2>`,
		`<a href="/docs/contacts" aria-current="page">Contacts</a>`,
		`<a href="#engagement">Engagement</a>`, "Version v1.2.3",
		`href="https://github.com/postrider/postrider/edit/main/docs/contacts.md"`, `rel="prev"`, `rel="next"`,
		`href="/docs/contacts.md"`, "data-copies", "Skip to content", "/sign-in?next=%2fdocs%2fcontacts"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "<script>") || strings.Contains(page, "style=") {
		t.Error("the page has a script or a style that its policy forbids")
	}
	source := get(t, mux, "/docs/architecture").Body.String()
	if !strings.Contains(source, "https://github.com/postrider/postrider/blob/v1.2.3/internal/platform/jobs/jobs.go") {
		t.Error("a link to a file of the source does not lead to the repository")
	}
	if w := get(t, mux, "/docs/nowhere", "Accept", "text/html"); w.Code != 404 {
		t.Errorf("a page that does not exist: %d", w.Code)
	}
	picture := get(t, mux, "/docs/pictures/emails.png")
	if picture.Code != 200 || picture.Header().Get("Content-Type") != "image/png" {
		t.Errorf("a picture: %d %v", picture.Code, picture.Header())
	}
}

// A page with examples sets their variables before it uses them, so that a node can show its own values there.
func TestVariablesAreSet(t *testing.T) {
	t.Parallel()
	mux, _ := newSite(t)
	pages := 0
	err := fs.WalkDir(docs.Files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" || strings.HasPrefix(name, "operating/") { // these create a key
			return err
		}
		text, err := fs.ReadFile(docs.Files, name)
		if err != nil {
			return err
		}
		for variable, line := range map[string]string{"$URL": "URL=http://localhost:3000", "$KEY": "KEY=re_..."} {
			used := strings.Index(string(text), variable)
			if used < 0 || !strings.Contains(string(text), "curl $URL") && !strings.Contains(string(text), "$KEY \\") {
				continue
			}
			if pages++; !regexp.MustCompile(`(?m)^(export .*)?` + regexp.QuoteMeta(line)).Match(text[:used]) {
				t.Errorf("%s uses %s before the line %s", name, variable, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages < 20 {
		t.Errorf("only %d uses of variables", pages)
	}
	page := get(t, mux, "/docs/webhooks").Body.String()
	if !strings.Contains(page, "URL=https://mail.acme.example\nKEY=re_...") || !strings.Contains(page, ">Sign in</a> to create") {
		t.Error("a guest does not see the address of this installation and where a key comes from")
	}
}

// A browser that has a page already gets no second copy of it.
func TestCaching(t *testing.T) {
	t.Parallel()
	mux, _ := newSite(t)
	first := get(t, mux, "/docs/contacts", "Accept-Encoding", "gzip")
	tag := first.Header().Get("ETag")
	if first.Header().Get("Content-Encoding") != "gzip" || tag == "" {
		t.Errorf("the first response: %v", first.Header())
	}
	second := get(t, mux, "/docs/contacts", "Accept-Encoding", "gzip", "If-None-Match", tag)
	if second.Code != http.StatusNotModified || second.Body.Len() > 0 {
		t.Errorf("the second response: %d with %d bytes", second.Code, second.Body.Len())
	}
	dark := get(t, mux, "/docs/contacts", "Cookie", "__Host-postrider-theme=dark")
	if dark.Header().Get("ETag") == tag || !strings.Contains(dark.Body.String(), `data-theme="dark"`) {
		t.Error("the theme of the dashboard is not that of the page")
	}
}

// Programs get each page as Markdown, with links to other Markdown documents, and lists of all pages.
func TestDocuments(t *testing.T) {
	t.Parallel()
	mux, _ := newSite(t)
	document := get(t, mux, "/docs/broadcasts.md")
	if kind := document.Header().Get("Content-Type"); kind != "text/markdown; charset=utf-8" {
		t.Errorf("the document has the type %s", kind)
	}
	if text := document.Body.String(); !strings.HasPrefix(text, "# Broadcasts\n") ||
		!strings.Contains(text, "(/docs/contacts.md)") || !strings.Contains(text, "(/docs/index.md#examples)") {
		t.Errorf("the document: %.300s", text)
	}
	list := get(t, mux, "/llms.txt").Body.String()
	for _, want := range []string{"# Postrider\n\n> ", "v1.2.3", "https://mail.acme.example/llms-full.txt",
		"- [Broadcasts](https://mail.acme.example/docs/broadcasts.md): sending an email",
		"(https://mail.acme.example/docs/cli/serve.md)"} {
		if !strings.Contains(list, want) {
			t.Errorf("/llms.txt lacks %s", want)
		}
	}
	whole := get(t, mux, "/llms-full.txt").Body.String()
	for _, want := range []string{"\n# Broadcasts\n", "\n# Configuration\n", "\n# postrider serve\n"} {
		if !strings.Contains(whole, want) {
			t.Errorf("/llms-full.txt lacks %q", want)
		}
	}
	if strings.Contains(whole, "\n# Change log\n") {
		t.Error("/llms-full.txt has the change log")
	}
}
