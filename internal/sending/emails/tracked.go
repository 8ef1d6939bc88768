package emails

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// ReadTracked verifies and decodes the token in a tracked link to the given host; see [tokens.ReadLink]. ReadTracked
// does not use the database.
func (s *Service) ReadTracked(token, host string) (tokens.TrackedLink, error) {
	return tokens.ReadLink(s.Keys, token, host)
}

// isTracking reports whether the settings enable tracking of opens or clicks.
func isTracking(t domains.Tracking) bool { return t.Host != "" && (t.Opens || t.Clicks) }

// WhyUntracked returns the reason why the opens, or the clicks, of the emails in a mailing cannot be tracked, or "" if
// they can.
func (m *Mailing) WhyUntracked(clicks bool) string {
	t := m.from.Tracking
	switch {
	case !m.content.HasHTML():
		return "the email has no HTML"
	case clicks && !m.content.HasLinks():
		return "the HTML has no links that can be tracked"
	case clicks && (!isTracking(t) || !t.Clicks):
		return "the domain of its sender does not track clicks"
	case !clicks && (!isTracking(t) || !t.Opens):
		return "the domain of its sender does not track opens"
	}
	return ""
}

// trackingOf returns a domain's current tracking settings. If the domain was deleted, tracking is disabled.
func (s *Service) trackingOf(ctx context.Context, domainID string) (domains.Tracking, error) {
	d, err := s.Domains.Signing(ctx, domainID)
	if fault.KindOf(err) == fault.NotFound {
		return domains.Tracking{}, nil
	}
	if err != nil {
		return domains.Tracking{}, fmt.Errorf("look up what is tracked: %w", err)
	}
	return d.Tracking, nil
}

// onePerRecipient reports whether each recipient of an email gets a separate message, whose links identify the
// recipient who clicked or unsubscribed.
func (s *Service) onePerRecipient(ctx context.Context, e *Email) (bool, error) {
	if e.TopicID != "" {
		return true, nil
	}
	html := e.hasHTML
	c, err := s.content(ctx, e.TeamID, &e.shared)
	if err != nil {
		return false, err
	}
	if c != nil {
		html = c.HasHTML()
	}
	if !html {
		return false, nil
	}
	t, err := s.trackingOf(ctx, e.DomainID)
	return isTracking(t), err
}

// memoryOfTracking estimates the additional memory, in bytes, needed to compose a tracked email whose text and HTML
// have the given size. The additional memory holds a second copy of the HTML, in which links are longer. The estimate
// is based on at most one link per 32 bytes.
func memoryOfTracking(texts int64) int64 {
	const perLink = 256
	return texts + 2*perLink*min(texts/32, render.MaxLinks)
}

// hostOf returns the host of a URL, in lower case and without a port.
func hostOf(prefix string) string {
	u, err := url.Parse(prefix)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// linkPrefix returns the prefix of the links to a tracking host, which is the host of the operator's tracking URL or a
// domain's own.
func linkPrefix(trackingURL, host string) string {
	if trackingURL != "" && hostOf(trackingURL) == host {
		return trackingURL
	}
	return "https://" + host
}

// tracker rewrites the HTML of a message so that opens and clicks are tracked.
type tracker struct {
	domains.Tracking
	prefix string // of links
	tokens tokens.LinkMaker
	own    []string // unsubscribe URLs, which are not tracked
}

// tracker returns a tracker for a message, or nil if the message is not tracked. The parameter header contains the
// header fields specified by the sender.
func (s *Service) tracker(ctx context.Context, o *Outgoing, header []message.Field) (*tracker, error) {
	if o.body.html == "" && (o.body.shared == nil || !o.body.shared.HasHTML()) {
		return nil, nil
	}
	on, err := s.trackingOf(ctx, o.DomainID)
	if err != nil || !isTracking(on) {
		return nil, err
	}
	position := -1
	if len(o.To) == 1 {
		if position, err = s.positionOf(ctx, o); err != nil {
			return nil, err
		}
	}
	prefix := linkPrefix(s.c.TrackingURL, on.Host)
	k, ok := tokens.NewLinkMaker(s.Keys, on.Host, o.Ref, position)
	if !ok {
		return nil, nil
	}
	t := &tracker{Tracking: on, prefix: prefix, tokens: k, own: unsubscribeURLs(header)}
	return t, nil
}

// positionOf returns the envelope position of the message's only recipient.
func (s *Service) positionOf(ctx context.Context, o *Outgoing) (int, error) {
	if position, known := o.positions[o.To[0]]; known {
		return position, nil
	}
	if o.OneRecipient {
		return 0, nil
	}
	position, err := positionOf(ctx, s.DB.Reader, o.TeamID, o.ID, o.To[0])
	if err != nil {
		return -1, fmt.Errorf("look up the position of a recipient of email %s: %w", o.ID, err)
	}
	return position, nil
}

// html rewrites HTML for tracking and returns the result.
func (t *tracker) html(h *render.HTML) string { return h.Track(nil, t.links(), t.pixels()) }

// links returns the function that rewrites links, or nil if clicks are not tracked.
func (t *tracker) links() func(dst, target []byte) ([]byte, bool) {
	if !t.Clicks {
		return nil
	}
	return t.link
}

func (t *tracker) link(dst, target []byte) ([]byte, bool) {
	for _, url := range t.own {
		rest, ok := bytes.CutPrefix(target, []byte(url))
		// an unsubscribe URL with an added query or fragment is not tracked either
		if ok && (len(rest) == 0 || strings.IndexByte("?&#", rest[0]) >= 0) {
			return dst, false
		}
	}
	return t.tokens.Append(append(append(dst, t.prefix...), "/c/"...), target)
}

// pixels returns the function that appends the tracking pixel, or nil if opens are not tracked.
func (t *tracker) pixels() func(dst []byte) []byte {
	if !t.Opens {
		return nil
	}
	return t.pixel
}

func (t *tracker) pixel(dst []byte) []byte {
	dst = append(append(append(dst, `<img src="`...), t.prefix...), "/o/"...)
	dst, _ = t.tokens.Append(dst, nil)
	return append(dst, `" width="1" height="1" alt="" style="display:block;width:1px;height:1px;border:0">`...)
}

// unsubscribeURLs returns the URLs in a header's List-Unsubscribe field (RFC 2369 section 3.2).
func unsubscribeURLs(header []message.Field) (all []string) {
	for _, f := range header {
		if !strings.EqualFold(f.Name, "List-Unsubscribe") {
			continue
		}
		for rest := f.Value; ; {
			_, after, found := strings.Cut(rest, "<")
			url, after, closed := strings.Cut(after, ">")
			if !found || !closed {
				break
			}
			all = append(all, strings.TrimSpace(url))
			rest = after
		}
	}
	return all
}
