package docsite

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// searchIndex is what the script of the search reads (static/docs-search.js in package web). It holds the words in the
// texts below all headings, without their places. The words in titles and headings are not in it: the script takes them
// from the headings.
type searchIndex struct {
	Pages []indexedPage `json:"pages"`
	Heads []indexedHead `json:"heads"`

	// Words are the stems in the texts, in alphabetical order, separated by spaces. In has the numbers of the headings
	// whose texts contain each of them, as encodeNumbers writes them.
	Words string `json:"words"`
	In    string `json:"in"`

	// Same are lists of words and phrases that mean the same.
	Same [][]string `json:"same"`
}

type indexedPage struct {
	Path    string  `json:"p"`
	Title   string  `json:"t"`
	Section string  `json:"s,omitempty"`
	Keys    string  `json:"k,omitempty"` // further words that people type
	Weight  float64 `json:"w"`
}

type indexedHead struct {
	Page  int    `json:"p"`
	ID    string `json:"a,omitempty"`
	Title string `json:"t,omitempty"` // "" for the text below the title of the page
}

// weights say how likely the pages of a section are what a reader looks for; measurements are rarely.
var weights = map[string]float64{guides: 1.15, apiSection: 0.85, cliSection: 0.7, operators: 0.95, contributors: 0.35,
	changes: 0.25}

const measurements = "performance"

// index returns the index for the search as JSON.
func (v *view) index() ([]byte, error) {
	same, keys, err := parseVocabulary(vocabulary)
	if err != nil {
		return nil, err
	}
	index := searchIndex{Same: same}
	in := map[string][]int{} // numbers of headings, by stem
	for _, p := range v.all.pages {
		one := *v
		one.page = p
		doc, err := one.rendered()
		if err != nil {
			return nil, err
		}
		weight, ok := weights[p.Section]
		if !ok {
			weight = 1
		}
		if p.Path == measurements {
			weight /= 2
		}
		of := indexedPage{Path: p.Path, Title: p.Title, Section: p.Section, Keys: keys[p.Path], Weight: weight}
		index.Pages = append(index.Pages, of)
		for i, part := range doc.parts {
			head := indexedHead{Page: p.number, ID: part.ID, Title: part.Text}
			if i == 0 {
				head = indexedHead{Page: p.number}
			}
			if !p.forReaders() {
				part.text = "" // headings lead to the text
			}
			for _, word := range stems(part.text) {
				in[word] = append(in[word], len(index.Heads))
			}
			index.Heads = append(index.Heads, head)
		}
	}
	index.addWords(in)
	text, err := json.Marshal(index)
	if err != nil {
		return nil, fmt.Errorf("encode the index for the search: %w", err)
	}
	return text, nil
}

// addWords adds the words of the texts. Words in more than a third of the texts select nothing.
func (x *searchIndex) addWords(in map[string][]int) {
	words := make([]string, 0, len(in))
	for word, heads := range in {
		if len(heads) <= len(x.Heads)/3 {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	numbers := make([]string, len(words))
	for i, word := range words {
		numbers[i] = encodeNumbers(in[word])
	}
	x.Words, x.In = strings.Join(words, " "), strings.Join(numbers, " ")
}

// digits are the 64 characters of the encoded numbers.
const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"

// encodeNumbers encodes ascending numbers as the differences between them. A difference is written in groups of five
// bits, the lowest first; 32 is added to each group but the last.
func encodeNumbers(numbers []int) string {
	var b strings.Builder
	last := -1
	for _, n := range numbers {
		rest := n - last - 1
		last = n
		for ; rest >= 32; rest >>= 5 {
			b.WriteByte(digits[rest&31+32])
		}
		b.WriteByte(digits[rest])
	}
	return b.String()
}

// stems returns the different stems in a text.
func stems(text string) []string {
	var all []string
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		if n := len(word); n < 2 || n > 24 || stopWords[word] || isNumberLike(word) {
			continue
		}
		all = append(all, stem(word))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// isNumberLike reports whether a word is a number, a time or part of an id, which nobody types. Status codes and ports
// of three or four digits stay.
func isNumberLike(word string) bool {
	count := 0
	for _, r := range word {
		if unicode.IsDigit(r) {
			count++
		}
	}
	if n := len(word); count == n {
		return n < 2 || n > 4
	}
	return count > 0 && len(word) > 6
}

var stopWords = func() map[string]bool {
	all := map[string]bool{}
	for _, word := range strings.Fields("a an and are as at be by can did do does for from has have how i if in is it " +
		"its me my not of on or so than that the their then there this to us was we what when where which who why will with " +
		"you your") {
		all[word] = true
	}
	return all
}()

// stem returns a word without its usual endings. The function of the same name in the script must return the same.
func stem(w string) string {
	if n := len(w); n > 4 && strings.HasSuffix(w, "ies") {
		w = w[:n-3] + "y"
	} else if n > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") &&
		!strings.HasSuffix(w, "is") {
		w = w[:n-1]
	}
	switch n := len(w); {
	case n > 8 && strings.HasSuffix(w, "ication"):
		w = w[:n-7] + "y"
	case n > 5 && strings.HasSuffix(w, "ing"):
		w = single(w[:n-3])
	case n > 5 && strings.HasSuffix(w, "ied"):
		w = w[:n-3] + "y"
	case n > 4 && strings.HasSuffix(w, "ed"):
		w = single(w[:n-2])
	}
	if n := len(w); n > 4 && w[n-1] == 'e' {
		w = w[:n-1]
	}
	return w
}

// single removes one of two equal consonants at the end, as in "running".
func single(w string) string {
	n := len(w)
	if n > 2 && w[n-1] == w[n-2] && !strings.ContainsRune("lsz", rune(w[n-1])) {
		return w[:n-1]
	}
	return w
}

//go:embed vocabulary.txt
var vocabulary string

// parseVocabulary reads the words that mean the same, and the further words of pages.
func parseVocabulary(text string) (same [][]string, keys map[string]string, err error) {
	keys = map[string]string{}
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if list, ok := strings.CutPrefix(line, "="); ok {
			var phrases []string
			for _, phrase := range strings.Split(list, ",") {
				phrases = append(phrases, strings.TrimSpace(phrase))
			}
			same = append(same, phrases)
			continue
		}
		path, words, ok := strings.Cut(line, ":")
		if !ok {
			return nil, nil, fmt.Errorf("vocabulary.txt: the line %q is neither a list nor the words of a page", line)
		}
		keys[path] = strings.TrimSpace(words)
	}
	return same, keys, s.Err()
}
