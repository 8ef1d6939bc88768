package docsite_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/docs"
)

const (
	gradeMax    = 9.0 // years at school that a reader of a page needs, by the formula of Flesch and Kincaid
	shownMax    = 3   // sentences that a failure shows
	shownLength = 8   // words of a shown sentence at least, because the formula says little about shorter ones
)

// Each page is easy to read: most readers learned English as a second language.
func TestPagesAreEasyToRead(t *testing.T) {
	t.Parallel()
	pages, words := 0, 0
	for _, files := range []fs.FS{postrider.Files, docs.Files} {
		err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || path.Ext(name) != ".md" {
				return err
			}
			page, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			p := measure(page)
			pages, words = pages+1, words+p.words
			if grade := p.grade(); grade > gradeMax {
				t.Errorf("%s has grade %.1f, more than %.1f. Make shorter sentences with shorter words, first these:\n%s",
					name, grade, gradeMax, p.hardest())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d pages with %d words", pages, words)
	if pages < 70 || words < 50_000 {
		t.Errorf("only %d pages with %d words", pages, words)
	}
}

// The counts are those of a person who reads the page, and code, tables, headings and addresses do not count.
func TestReadingGrade(t *testing.T) {
	t.Parallel()
	page := "# A considerably complicated title\n\nThe cat sat on the mat. `POST /emails` is slow,\nbut works.\n\n" +
		"| internationalization | b |\n|---|---|\n| electricity | d |\n\n```sh\ncurl $URL/administration\n```\n\n" +
		"- See [the page](documentation.md), or\n  <https://administration.example/>.\n- Two files (*many* tables)\n"
	p := measure([]byte(page))
	var got []string
	for _, s := range p.sentences {
		got = append(got, fmt.Sprint(s.words, "/", s.syllables))
	}
	if want := []string{"6/6", "4/4", "4/4", "4/6"}; !slices.Equal(got, want) {
		t.Errorf("words and syllables of the sentences are %v, want %v", got, want)
	}
	// 0.39 × 18/4 + 11.8 × 20/18 - 15.59
	if grade := p.grade(); math.Abs(grade-(-0.724)) > 0.001 {
		t.Errorf("the grade is %.3f", grade)
	}
	hard := measure([]byte("Considerable administrative responsibilities necessitate " +
		"comprehensive organizational documentation occasionally. It is so."))
	if !strings.Contains(hard.hardest(), "necessitate") || hard.grade() < gradeMax {
		t.Errorf("a hard page has grade %.1f and the sentences %q", hard.grade(), hard.hardest())
	}
	for word, want := range map[string]int{
		"the": 1, "file": 1, "files": 1, "table": 2, "tables": 2, "rule": 1, "rules": 1, "cache": 1, "caches": 2,
		"stored": 1, "created": 3, "handled": 2, "needed": 2, "safely": 2, "settlement": 3, "something": 2,
		"audience": 3, "recipient": 4, "client's": 2, "previous": 3, "suppression": 3, "trial": 2, "material": 4,
		"people": 2, "being": 2, "two-factor": 3, "API": 3, "URLs": 3, "2026": 1, "don't": 1,
	} {
		if n := syllables(word); n != want {
			t.Errorf("%s has %d syllables, want %d", word, n, want)
		}
	}
}

// prose is the text of a page: its paragraphs and list items.
type prose struct {
	sentences []sentence
	words     int
	syllables int
}

type sentence struct {
	text             string
	words, syllables int
}

func (s sentence) grade() float64 { return grade(1, s.words, s.syllables) }

// grade returns the grade of a text by the formula of Flesch and Kincaid.
func grade(sentences, words, syllables int) float64 {
	if words == 0 {
		return 0
	}
	return 0.39*float64(words)/float64(sentences) + 11.8*float64(syllables)/float64(words) - 15.59
}

func (p prose) grade() float64 { return grade(len(p.sentences), p.words, p.syllables) }

// hardest returns the sentences with the highest grades, one on each line.
func (p prose) hardest() string {
	long := slices.DeleteFunc(slices.Clone(p.sentences), func(s sentence) bool { return s.words < shownLength })
	slices.SortStableFunc(long, func(a, b sentence) int { return cmp.Compare(b.grade(), a.grade()) })
	var b strings.Builder
	for _, s := range long[:min(len(long), shownMax)] {
		fmt.Fprintf(&b, "  %.1f: %s\n", s.grade(), strings.ReplaceAll(s.text, string(codeMark), "`…`"))
	}
	return b.String()
}

// codeMark stands for text in code style, which is not measured. A sentence may begin with it.
const codeMark = '\uFFFC'

var (
	// end matches the end of a sentence and the beginning of the next one.
	end  = regexp.MustCompile(`([.!?]["”)]*)\s+(["“(]*[\p{Lu}\d\x{FFFC}])`)
	word = regexp.MustCompile(`[\p{L}\d](?:[\p{L}\d'’.,:-]*[\p{L}\d])?`)
)

// measure counts the sentences, words and syllables of a Markdown document.
func measure(page []byte) (p prose) {
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Linkify))
	root := md.Parser().Parse(text.NewReader(page))
	ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if k := n.Kind(); entering && (k == ast.KindParagraph || k == ast.KindTextBlock) {
			p.add(readable(n, page))
		}
		return ast.WalkContinue, nil
	})
	return p
}

// add adds the sentences of a paragraph. A paragraph or list item also ends a sentence without a full stop.
func (p *prose) add(paragraph string) {
	from := 0
	for _, m := range append(end.FindAllStringSubmatchIndex(paragraph, -1), nil) {
		s := sentence{text: strings.TrimSpace(paragraph[from:])}
		if m != nil {
			s.text = paragraph[from:m[3]]
			from = m[4]
		}
		for _, w := range word.FindAllString(s.text, -1) {
			s.words++
			s.syllables += syllables(w)
		}
		if s.words > 0 {
			p.sentences = append(p.sentences, s)
			p.words += s.words
			p.syllables += s.syllables
		}
	}
}

// readable returns the text of a paragraph that is measured.
func readable(n ast.Node, page []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Segment.Value(page))
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.CodeSpan:
			b.WriteRune(codeMark)
		case *ast.AutoLink, *ast.Image, *ast.RawHTML:
		default:
			b.WriteString(readable(c, page))
		}
	}
	return b.String()
}

// silent lists endings in which an e is not spoken, each with what is spoken. The first one is about compound words,
// such as something.
var silent = []struct {
	ending *regexp.Regexp
	spoken string
}{
	{regexp.MustCompile(`(som|ther|els|wher|tim|nam|not|sid|whit|on)e([bcfghklmnpqtvwxz])`), "$1$2"},
	{regexp.MustCompile(`([^aeiouyl])e(ly|ments?|less|ful)$`), "$1$2"},
	{regexp.MustCompile(`([^aeiouyl]|[aeiouyr]l)e$`), "$1"},
	{regexp.MustCompile(`([^aeiouysxzcglh]|[^cs]h|[aeiouyr]l)es$`), "${1}s"},
	{regexp.MustCompile(`([^aeiouytdl]|[aeiouyrl]l)ed$`), "${1}d"},
}

var (
	vowels = regexp.MustCompile(`[aeiouy]+`)
	// apart matches neighboring vowels that are two syllables.
	apart = regexp.MustCompile(`[^ct]ia|[ct]iat|[^ctgsnlx]io|[^ctgx]ious|[iyae]ing|[^qg]ua|eo[^pu]|[^cfhrt]ien|` +
		`ier$|iet|creat|ism$|uou`)
	// spelled matches abbreviations. Their letters are spoken one by one, unless they read like a word, as JSON does.
	spelled = regexp.MustCompile(`^[A-Z]{2,5}s?$`)
)

// syllables counts the syllables of an English word by rules of its spelling. Compared with a pronouncing dictionary,
// the sum for all pages is wrong by 1 % at most. A number counts as one syllable.
func syllables(word string) (n int) {
	word = strings.TrimSuffix(strings.ReplaceAll(word, "’", "'"), "'s")
	if letters := strings.TrimSuffix(word, "s"); spelled.MatchString(word) &&
		(len(letters) < 4 || !strings.ContainsAny(letters, "AEIOU")) {
		return len(letters)
	}
	for part := range strings.SplitSeq(strings.ToLower(word), "-") {
		part = strings.ReplaceAll(part, "'", "")
		for _, s := range silent {
			part = s.ending.ReplaceAllString(part, s.spoken)
		}
		n += max(1, len(vowels.FindAllString(part, -1))+len(apart.FindAllString(part, -1)))
	}
	return n
}
