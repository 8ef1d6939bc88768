package emails

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/render"
)

// Tracked is what the token of a tracked link or of a tracking pixel carries.
type Tracked struct {
	EmailID  string
	Position int // of the recipient in the envelope, from 0; -1 if the message was for several

	// URL is the target of the link; "" for a pixel. It is an absolute http or https URL in UTF-8 without control
	// characters. It may have spaces and characters that are not ASCII, as the sender wrote it.
	URL string
}

const (
	trackPurpose = "track"
	trackVersion = 1
	trackMAC     = 16
	// trackMax bounds the work that a forged token can cause, in characters.
	trackMax = 8192
)

// A token is a version, the position plus one as a varint, the id's 16 octets, the URL, and a MAC of all that and of
// the host of the link. The host is not part of the token: a link at the host of another team would lead people, and
// filters that trust that name, to wherever its sender likes. The URL is part of the token, so that a link leads to its
// target also while the database is away and after the email was deleted; the MAC makes sure that it leads only where a
// sender wanted it to.

// tokens makes the tokens of one message. Its scratch memory is used again for each.
type tokens struct {
	tag  keyring.Tagger
	data []byte
	from int // where the token begins in data, after the host
	head int // octets of data that are the same in all tokens
}

// newTokens returns the tokens of links at a host, which is a name without a port in lower case. It reports false if
// there is no such email: the id is not a UUID. What it returns is to be released.
func newTokens(keys *keyring.Keyring, host, emailID string, position int) (tokens, bool) {
	u, err := uuid.Parse(emailID)
	if err != nil {
		return tokens{}, false
	}
	data := append(append(make([]byte, 0, 512), host...), 0)
	from := len(data)
	data = append(data, trackVersion)
	data = binary.AppendUvarint(data, uint64(position+1))
	data = append(data, u[:]...)
	return tokens{tag: keys.Tagger(trackPurpose), data: data, from: from, head: len(data)}, true
}

func (k *tokens) release() { k.tag.Release() }

// append appends the token of a URL to dst. It reports false, and appends nothing, if the token would be too long.
func (k *tokens) append(dst, url []byte) ([]byte, bool) {
	if base64.RawURLEncoding.EncodedLen(k.head-k.from+len(url)+trackMAC) > trackMax {
		return dst, false
	}
	k.data = append(k.data[:k.head], url...)
	k.data = k.tag.Append(k.data, k.data, trackMAC)
	return base64.RawURLEncoding.AppendEncode(dst, k.data[k.from:]), true
}

// ReadTracked returns what a token carries, of a link at a host: a name without a port in lower case. A token that was
// not made here, was altered or is of a link at another host is a NotFound fault. It reads
// nothing from the database: the email may have been deleted since.
func (s *Service) ReadTracked(token, host string) (Tracked, error) {
	none := fault.NotFoundf("There is nothing at this address.")
	if len(token) > trackMax {
		return Tracked{}, none
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder ignores line breaks and unused bits at the end; encoding again reveals them.
	if err != nil || len(data) < 2+16+trackMAC || base64.RawURLEncoding.EncodeToString(data) != token {
		return Tracked{}, none
	}
	data, mac := data[:len(data)-trackMAC], data[len(data)-trackMAC:]
	signed := append(append(append(make([]byte, 0, len(host)+1+len(data)), host...), 0), data...)
	if data[0] != trackVersion || !hmac.Equal(mac, s.keys.Tag(trackPurpose, signed, trackMAC)) {
		return Tracked{}, none
	}
	position, n := binary.Uvarint(data[1:])
	rest := data[1+max(n, 0):]
	if n <= 0 || len(rest) < 16 || position > 3*MaxRecipients {
		return Tracked{}, none
	}
	return Tracked{EmailID: uuid.UUID(rest[:16]).String(), Position: int(position) - 1,
		URL: string(rest[16:])}, nil
}

// isTracking reports whether anything is tracked.
func isTracking(t domains.Tracking) bool { return t.Host != "" && (t.Opens || t.Clicks) }

// trackingOf returns what is tracked of a domain's emails at present; nothing if the domain was deleted.
func (s *Service) trackingOf(ctx context.Context, domainID string) (domains.Tracking, error) {
	d, err := s.domains.Signing(ctx, domainID)
	if fault.KindOf(err) == fault.NotFound {
		return domains.Tracking{}, nil
	}
	if err != nil {
		return domains.Tracking{}, fmt.Errorf("look up what is tracked: %w", err)
	}
	return d.Tracking, nil
}

// onePerRecipient reports whether each recipient of an email gets a message of its own, so that its links tell who followed
// them, or who unsubscribes.
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

// memoryOfTracking estimates the memory in octets that composing takes in addition when an email with texts of this
// size is tracked: the HTML once more, and what links grow by, of which there may be one in 32 octets.
func memoryOfTracking(texts int64) int64 {
	const perLink = 256
	return texts + 2*perLink*min(texts/32, render.MaxLinks)
}

// hostOf returns the name of the host of a URL, in lower case and without its port.
func hostOf(prefix string) string {
	u, err := url.Parse(prefix)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// tracker rewrites the HTML of one message.
type tracker struct {
	domains.Tracking
	prefix string // of links
	tokens tokens
	own    []string // addresses that one unsubscribes by, which are not tracked
}

// tracker returns nil if nothing of the message is tracked. header is what the email was given.
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
	prefix := s.c.TrackingURL
	if prefix == "" {
		prefix = "https://" + on.Host
	}
	k, ok := newTokens(s.keys, hostOf(prefix), o.ID, position)
	if !ok {
		return nil, nil
	}
	t := &tracker{Tracking: on, prefix: prefix, tokens: k, own: unsubscribeURLs(header)}
	return t, nil
}

// positionOf returns the position of the only recipient of a message in the envelope of its email.
func (s *Service) positionOf(ctx context.Context, o *Outgoing) (int, error) {
	if position, known := o.positions[o.To[0]]; known {
		return position, nil
	}
	position, err := positionOf(ctx, s.d.Reader, o.TeamID, o.ID, o.To[0])
	if err != nil {
		return -1, fmt.Errorf("look up the position of a recipient of email %s: %w", o.ID, err)
	}
	return position, nil
}

// html returns the rewritten HTML.
func (t *tracker) html(h *render.HTML) string { return h.Track(nil, t.links(), t.pixels()) }

// links returns the function that rewrites links, nil if they are not tracked.
func (t *tracker) links() func(dst, target []byte) ([]byte, bool) {
	if !t.Clicks {
		return nil
	}
	return t.link
}

func (t *tracker) link(dst, target []byte) ([]byte, bool) {
	for _, url := range t.own {
		rest, ok := bytes.CutPrefix(target, []byte(url))
		// With a query or a fragment it is the same page.
		if ok && (len(rest) == 0 || strings.IndexByte("?&#", rest[0]) >= 0) {
			return dst, false
		}
	}
	return t.tokens.append(append(append(dst, t.prefix...), "/c/"...), target)
}

// pixels returns the function that makes the pixel, nil if opens are not tracked.
func (t *tracker) pixels() func(dst []byte) []byte {
	if !t.Opens {
		return nil
	}
	return t.pixel
}

func (t *tracker) pixel(dst []byte) []byte {
	dst = append(append(append(dst, `<img src="`...), t.prefix...), "/o/"...)
	dst, _ = t.tokens.append(dst, nil)
	return append(dst, `" width="1" height="1" alt="" style="display:block;width:1px;height:1px;border:0">`...)
}

// unsubscribeURLs returns the addresses in List-Unsubscribe (RFC 2369 section 3.2).
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
