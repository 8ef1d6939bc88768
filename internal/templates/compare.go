package templates

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
)

// Comparison is what differs between two versions of a template.
type Comparison struct {
	TemplateID string
	A, B       Version

	From, Subject, ReplyTo, HTML, Text, Variables bool // whether it differs

	HTMLDiff, TextDiff string // unified diffs, from A to B; empty when nothing differs
}

// Compare compares two versions of a template, each by its id or number.
func (s *Service) Compare(ctx context.Context, teamID, idOrAlias, a, b string) (Comparison, error) {
	var c Comparison
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
	c.From, c.Subject = c.A.From != c.B.From, c.A.Subject != c.B.Subject
	c.ReplyTo = !slices.Equal(c.A.ReplyTo, c.B.ReplyTo)
	c.Variables = !sameVariables(c.A.Variables, c.B.Variables)
	names := [2]string{fmt.Sprintf("version %d", c.A.Number), fmt.Sprintf("version %d", c.B.Number)}
	c.HTMLDiff = unified(names, c.A.HTML, c.B.HTML)
	c.TextDiff = unified(names, c.A.Shown(), c.B.Shown())
	c.HTML = c.HTMLDiff != ""
	// A text that is made from the HTML and one that was given may be alike now, and are not after the next change.
	c.Text = c.TextDiff != "" || !sameText(c.A.Plain, c.B.Plain)
	return c, nil
}

// unified returns the unified diff of two texts, in time O(n log n).
func unified(names [2]string, a, b string) string {
	d := diff.Diff(names[0], []byte(a), names[1], []byte(b))
	_, d, _ = bytes.Cut(d, []byte("\n")) // a line of the command diff
	return string(d)
}
