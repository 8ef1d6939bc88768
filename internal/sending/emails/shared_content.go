package emails

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
)

// shared refers to the content that an email shares with other emails, and holds the email's values for the
// placeholders. If an email does not share its content, shared is the zero value.
type shared struct {
	contentID string
	values    render.Values
}

func (s *shared) encoded() (string, error) {
	if len(s.values) == 0 {
		return "", nil
	}
	text, err := json.Marshal(s.values, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode the variables of an email: %w", err)
	}
	return string(text), nil
}

func (s *shared) decode(text string) error {
	s.values = nil
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), &s.values)
}

// fill sets the bodies of an email from its shared content. If the content was deleted, the bodies stay empty. The
// placeholder for the unsubscribe link is not replaced.
func (s *Service) fill(ctx context.Context, e *Email) error {
	c, err := s.content(ctx, e.TeamID, &e.shared)
	if c == nil || err != nil {
		return err
	}
	values := e.shared.values
	if e.canUnsubscribe() {
		// Each recipient gets a different unsubscribe link, so the placeholder stays in the body, as in emails without shared
		// content.
		values = unsubscribeInfo{url: "{{{" + render.UnsubscribeURL + "}}}"}.values(values)
	}
	e.HTML, e.Text = c.HTML(values), c.Text(values)
	return nil
}

// content returns the content that an email shares with other emails, or nil if the email has no shared content or its
// content was deleted.
func (s *Service) content(ctx context.Context, teamID string, sh *shared) (*content.Compiled, error) {
	if sh.contentID == "" {
		return nil, nil
	}
	c, err := s.Contents.Get(ctx, teamID, sh.contentID)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	return c, err
}
