package termindex

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                           nil,
		" -- ":                       nil,
		"Your order #4711 was sent!": {"your", "order", "4711", "was", "sent"},
		"José ÄRGER straße":          {"jose", "arger", "straße"},
		"John.Doe+x@Example.COM":     {"john", "doe", "x", "example", "com"},
		"ﬁle ①":                      {"file", "1"},
		"日本 語":                       {"日本", "語"},
		"a\xffb":                     {"a", "b"},
	} {
		if diff := gocmp.Diff(want, Words(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

// document is a document with its terms.
type document struct {
	ID    ID
	Terms []string
}

func build(documents []document) []Row {
	var b Builder
	for i := range documents {
		b.Add(documents[i].ID, documents[i].Terms)
	}
	return b.Rows()
}

// made returns documents with words from a small and a large vocabulary.
func made(seed uint64, first, n int) []document {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]document, n)
	for i := range all {
		d := &all[i]
		binary.BigEndian.PutUint32(d.ID[:], uint32(first+i))
		address := fmt.Sprintf("user%d@host%d.example", r.IntN(n*4), r.IntN(9))
		d.Terms = append(d.Terms, Term(Recipient, address), Term(SubjectWord, "everywhere"), Term(RecipientHost, "x.example"))
		for _, w := range Words(address) {
			d.Terms = append(d.Terms, Term(RecipientWord, w))
		}
		for range 5 {
			d.Terms = append(d.Terms, Term(SubjectWord, fmt.Sprintf("w%d", r.IntN(300))))
		}
		if r.IntN(2) == 0 {
			d.Terms = append(d.Terms, Term(SubjectWord, "half"))
		}
	}
	return all
}

// find returns the documents that a pattern selects, as a store reads them: it reads the rows in the pattern's range,
// and the row before them.
func find(t *testing.T, rows []Row, p *Pattern) (found []ID) {
	t.Helper()
	from, to := p.Range()
	at, exact := slices.BinarySearchFunc(rows, from, func(r Row, key string) int { return cmp.Compare(string(r.Key), key) })
	if !exact {
		at--
	}
	var set Set
	for ; at < len(rows) && string(rows[at].Key) < to; at++ {
		if err := p.Collect(rows[at].Data, &set); err != nil {
			t.Fatal(err)
		}
	}
	for d := range set.Ascending() {
		key, index := IDKey(d)
		i := slices.IndexFunc(rows, func(r Row) bool { return bytes.Equal(r.Key, key) })
		x, err := IDAt(rows[i].Data, index)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, x)
	}
	down := slices.Collect(set.Descending())
	slices.Reverse(down)
	if !slices.Equal(down, slices.Collect(set.Ascending())) {
		t.Error("the orders of the set differ")
	}
	return found
}

// naive returns the documents that a pattern selects, without an index.
func naive(documents []document, p *Pattern) (found []ID) {
	for _, d := range documents {
		if slices.ContainsFunc(d.Terms, func(term string) bool {
			text, kind := term[:len(term)-2], Kind(term[len(term)-1])
			return slices.Contains(p.Kinds, kind) && (text == p.Text || p.Words && strings.HasPrefix(text, p.Text))
		}) {
			found = append(found, d.ID)
		}
	}
	return found
}

// A segment, and one that was merged from several segments, find what a search without an index finds. Their keys are
// in order, and no row is too long.
func TestSegments(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 3, 500, 9000} {
		documents := made(uint64(n), 0, n)
		var parts [][]Row
		for some := range slices.Chunk(documents, max(n/7, 1)) {
			parts = append(parts, build(some))
		}
		merged, err := Merge(parts)
		if err != nil {
			t.Fatal(err)
		}
		whole := build(documents)
		if diff := gocmp.Diff(whole, merged); n > 0 && diff != "" {
			t.Fatalf("%d documents: the merged segment differs: %.500s", n, diff)
		}
		size := 0
		for i, r := range whole {
			size += len(r.Data) + len(r.Key)
			if len(r.Data) > maxRow || i > 0 && bytes.Compare(whole[i-1].Key, r.Key) >= 0 {
				t.Fatalf("row %d has %d bytes and the key %q after %q", i, len(r.Data), r.Key, whole[max(i-1, 0)].Key)
			}
		}
		if n > 1000 {
			t.Logf("%d documents: %d rows, %d bytes each", n, len(whole), size/n)
		}
		words := []Kind{SubjectWord, RecipientWord, SenderWord}
		patterns := []Pattern{{"everywhere", words, true}, {"e", words, true}, {"half", words, true}, {"w", words, true},
			{"w2", words, true}, {"w299", []Kind{SubjectWord}, true}, {"user1", words, true}, {"nothing", words, true},
			{"zz", words, true}, {"0", words, true}, {"x.example", []Kind{RecipientHost}, false},
			{"user", []Kind{SubjectWord}, true}, {"x.exampl", []Kind{RecipientHost}, false}}
		if n > 0 {
			for _, d := range documents[:min(n, 20)] {
				text := strings.TrimSuffix(d.Terms[0], "\x00t")
				patterns = append(patterns, Pattern{text, []Kind{Recipient, Sender}, false},
					Pattern{text, []Kind{Sender}, false})
			}
		}
		for _, p := range patterns {
			if diff := gocmp.Diff(naive(documents, &p), find(t, whole, &p)); diff != "" {
				t.Errorf("%d documents: %+v: %.500s", n, p, diff)
			}
		}
	}
}

// Terms with hostile texts are found, and are not confused with the keys of other rows.
func TestHostileTerms(t *testing.T) {
	t.Parallel()
	texts := []string{"", "\x00", "\x00\x00\x00\x00\x01", "\x01", "\xff\xff", strings.Repeat("x", 5000), "a\x00s", "a"}
	var documents []document
	for i, text := range texts {
		documents = append(documents, document{ID{byte(i)}, []string{Term(Recipient, text), Term(SubjectWord, text)}})
	}
	rows := build(documents)
	for i, text := range texts {
		p := Pattern{Text: text, Kinds: []Kind{Recipient}}
		if found := find(t, rows, &p); !slices.Contains(found, ID{byte(i)}) {
			t.Errorf("%.20q: %v", text, found)
		}
	}
}

// FuzzDamage reads rows with any content, which must not panic.
func FuzzDamage(f *testing.F) {
	for _, r := range build(made(1, 0, 50)) {
		f.Add(r.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := Pattern{"w", []Kind{SubjectWord}, true}
		var set Set
		if err := p.Collect(data, &set); err == nil {
			for d := range set.Ascending() {
				if d >= MaxDocuments {
					t.Fatal(d)
				}
			}
		}
		if _, err := Merge([][]Row{{{firstTerms, data}}}); err != nil {
			return
		}
	})
}
