package docsite_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/front/docsite"
)

// searchAnswers are what testdata/search.js prints.
type searchAnswers struct {
	Found [][]string
	Stems []string
	Moved []*struct{ Path, ID string }
}

// search runs the script of the search with Node.
func search(t *testing.T, index json.RawMessage, queries, words []string) (answers searchAnswers) {
	t.Helper()
	in, err := json.Marshal(map[string]any{"index": index, "queries": queries, "words": words})
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "node", "testdata/search.js", "../../web/static/docs-search.js")
	c.Stdin, c.Stderr = bytes.NewReader(in), os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("search with Node: %v", err)
	}
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

const (
	indexMax   = 100_000 // bytes of the index as it is transferred, compressed with gzip
	minQueries = 50
	firstShare = 0.9 // of the queries, whose page must be the first result
)

// The search finds the page that people look for. Its index is small.
func TestSearch(t *testing.T) {
	t.Parallel()
	h := newNode(t)
	packed := get(t, h, "/docs/search.json", "Accept-Encoding", "gzip")
	if n := packed.Body.Len(); packed.Header().Get("Content-Encoding") != "gzip" || n > indexMax {
		t.Errorf("the index has %d bytes compressed, more than %d", n, indexMax)
	} else {
		t.Logf("the index has %d bytes compressed", n)
	}
	text, err := os.ReadFile("testdata/queries.txt")
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	var wanted [][]string
	for line := range strings.Lines(string(text)) {
		if query, pages, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "#") {
			queries, wanted = append(queries, query), append(wanted, strings.Fields(pages))
		}
	}
	if len(queries) < minQueries {
		t.Fatalf("only %d queries", len(queries))
	}
	words := strings.Fields("verifying verified verifies verify verification bounced bounce sending scheduled schedule " +
		"emails status addresses dns running settings retries replied access analysis 429")
	answers := search(t, get(t, h, "/docs/search.json").Body.Bytes(), queries, words)
	missed := 0
	for i, query := range queries {
		first := ""
		if len(answers.Found[i]) > 0 {
			first, _, _ = strings.Cut(answers.Found[i][0], "#")
		}
		if !slices.Contains(wanted[i], first) {
			missed++
			t.Logf("%q finds %v, not %v", query, answers.Found[i], wanted[i])
		}
	}
	t.Logf("%d of %d queries find their page first", len(queries)-missed, len(queries))
	if share := 1 - float64(missed)/float64(len(queries)); share < firstShare {
		t.Errorf("%.2f of the queries find their page first, less than %.2f", share, firstShare)
	}
	for i, word := range words {
		if want := docsite.Stem(word); answers.Stems[i] != want {
			t.Errorf("the script has the stem %q of %q, not %q", answers.Stems[i], word, want)
		}
	}
	// Addresses of earlier versions had all operations on one page.
	if m := answers.Moved; m[0] == nil || m[0].Path != "api/emails" || m[0].ID != "sendAnEmail" || m[1] == nil ||
		m[1].Path != "api/emails" || m[2] != nil {
		t.Errorf("old addresses lead to %+v", m)
	}
}
