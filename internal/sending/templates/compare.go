package templates

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/content"
)

// Comparison holds the differences between two versions of a template.
type Comparison struct {
	TemplateID string
	A, B       Version

	From, Subject, ReplyTo, HTML, Text, Variables bool // whether the versions differ in this field

	HTMLDiff, TextDiff string // unified diffs from A to B; empty if there is no difference
}

// Close releases the memory reserved for the two versions.
func (c *Comparison) Close() { c.A.Close() }

// Compare compares two versions of a template, each specified by its id or number. The caller must close the result. If
// the versions are too large, Compare returns an Invalid fault.
func (s *Service) Compare(ctx context.Context, teamID, idOrAlias, a, b string) (c Comparison, err error) {
	t, err := getTemplate(ctx, s.d.Reader, teamID, idOrAlias)
	if err != nil {
		return c, err
	}
	c.TemplateID = t.ID
	if c.A, err = s.version(ctx, &t, a); err != nil {
		return c, err
	}
	if c.B, err = s.version(ctx, &t, b); err != nil {
		return c, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if err := s.readBoth(ctx, &c.A, &c.B); err != nil {
		return c, err
	}
	if err := checkLines("html", c.A.HTML, c.B.HTML); err != nil {
		return c, err
	}
	texts := [2]string{c.A.PlainOrConverted(), c.B.PlainOrConverted()}
	if err := checkLines("text", texts[:]...); err != nil {
		return c, err
	}
	c.From, c.Subject = c.A.From != c.B.From, c.A.Subject != c.B.Subject
	c.ReplyTo = !slices.Equal(c.A.ReplyTo, c.B.ReplyTo)
	c.Variables = !sameVariables(c.A.Variables, c.B.Variables)
	names := [2]string{fmt.Sprintf("version %d", c.A.Number), fmt.Sprintf("version %d", c.B.Number)}
	c.HTMLDiff = unified(names, c.A.HTML, c.B.HTML)
	c.TextDiff = unified(names, texts[0], texts[1])
	c.HTML = c.HTMLDiff != ""
	// If only one of the two texts is derived from the HTML, they count as different even if they are equal. They would
	// differ after the next change to the HTML.
	c.Text = c.TextDiff != "" || !sameText(c.A.Plain, c.B.Plain)
	return c, nil
}

// readBoth loads the content of two versions. If the content is too large to be compared, readBoth returns an Invalid
// fault.
func (s *Service) readBoth(ctx context.Context, a, b *Version) error {
	size, err := content.Size(ctx, s.d.Reader, a.TeamID, a.contentID, b.contentID)
	if err != nil {
		return err
	}
	if size > maxCompared {
		return fault.Invalidf("", "The `html` and `text` fields of the versions have %d bytes in all; at most %d are "+
			"compared. Get each version, and compare them yourself.", size, maxCompared)
	}
	return s.read(ctx, a, b)
}

func checkLines(field string, texts ...string) error {
	n := 0
	for _, text := range texts {
		n += strings.Count(text, "\n") + 1
	}
	if n > maxLines {
		return fault.Invalidf("", "The `%s` fields of the versions have %d lines in all; at most %d are compared. Get "+
			"each version, and compare them yourself.", field, n, maxLines)
	}
	return nil
}

// unified returns a unified diff of two strings; it runs in O(n log n) time.
func unified(names [2]string, a, b string) string {
	d := diff.Diff(names[0], []byte(a), names[1], []byte(b))
	_, d, _ = bytes.Cut(d, []byte("\n")) // the first line contains the diff command
	return string(d)
}
