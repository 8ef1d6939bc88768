package forwards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/arc"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/sending/domains"
)

// loopField is the field that marks a message as forwarded by a rule. Its value is the rule's id. Mail systems that
// forward a message keep it, so that a message that comes back is recognized.
const loopField = "X-Postrider-Loop"

// stopReason returns why a rule must not forward a message, or "" if it may.
//
// Bounces and automatic replies are new messages without the mark of the rule. Two programs could answer each other
// endlessly if replies, or bounces that ignore the return path, were forwarded. Mail that a program sends on its own,
// such as an invoice, is forwarded unless its return path is null.
func stopReason(m *Message, ruleID string) stopped {
	if m.Spam != "" {
		return stopped("the content filter marked the message as spam: " + m.Spam)
	}
	hops, auto, report := 0, "", false
	for _, f := range mailparse.ParseHeader(headerOf(m.Raw)) {
		value := strings.ToLower(strings.TrimSpace(f.Value))
		switch strings.ToLower(f.Name) {
		case strings.ToLower(loopField):
			if hops++; value == ruleID {
				return "the message was forwarded by this rule before: it goes in a circle"
			}
		case "auto-submitted":
			// Parameters and comments may follow the keyword (RFC 3834 section 5).
			auto, _, _ = strings.Cut(strings.NewReplacer(";", " ", "(", " ", "\t", " ").Replace(value), " ")
		case "content-type":
			report = report || strings.HasPrefix(value, "multipart/report")
		}
	}
	switch {
	case hops >= maxHops:
		return stopped(fmt.Sprintf("%d rules have forwarded the message before", hops))
	case auto == "auto-replied":
		return "the message is an automatic reply, which could start a mail loop"
	case m.MailFrom == "" && (report || auto != "" && auto != "no"):
		return "the message is a bounce, which could start a mail loop"
	}
	return ""
}

// headerOf returns the header of a message with its last line ending.
func headerOf(raw []byte) []byte {
	if i := bytes.Index(raw, []byte("\r\n\r\n")); i >= 0 {
		return raw[:i+2]
	}
	return raw
}

// errDNS means that the ARC chain of a message cannot be verified at present.
var errDNS = errors.New("the keys of the message's ARC seals cannot be looked up at present")

// addedFields returns the header fields to write above a message: the Received field of this hop, an ARC set, and the
// mark of the rule. The seal covers the message as the client sent it, because Received fields are not sealed.
func (s *Service) addedFields(ctx context.Context, w *work, now time.Time) ([]byte, error) {
	signing, err := s.p.Domains.Signing(ctx, w.rule.DomainID)
	if err != nil {
		return nil, err
	}
	sealed, err := s.seal(ctx, w, &signing, now)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "Received: by %s (forwarding) id %s;\r\n\t%s\r\n", s.c.Hostname, w.payload.EmailID,
		now.UTC().Format(time.RFC1123Z))
	b.Write(sealed)
	fmt.Fprintf(&b, "X-Forwarded-For: %s\r\nX-Forwarded-To: %s\r\n%s: %s\r\n", headerSafe(w.payload.For),
		headerSafe(w.rule.Address), loopField, w.rule.ID)
	return b.Bytes(), nil
}

// sealWait is the maximum time for which a message waits until its ARC chain can be verified.
const sealWait = time.Hour

// sealTime is the default time limit for the verification of an ARC chain.
const sealTime = 10 * time.Second

// seal returns the ARC set for a message, or nil if it cannot be sealed. A message without a seal is still forwarded.
// The seal only helps hosts that do not find a valid signature of the author.
func (s *Service) seal(ctx context.Context, w *work, signing *domains.Signing, now time.Time) ([]byte, error) {
	var signer dkim.Signer
	for _, x := range signing.Signers {
		if x.Key.Algorithm() == "rsa-sha256" {
			signer = x
			break
		}
	}
	if signer.Key == nil {
		return nil, nil
	}
	msg := w.message.Raw[w.message.TraceBytes:]
	within, cancel := context.WithTimeout(ctx, s.c.SealTime)
	defer cancel()
	chain := arc.Verify(within, s.p.LookupTXT, bytes.NewReader(msg))
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if within.Err() != nil {
		// A later try would be as slow, because strangers choose the names to look up. Few messages with long chains of slow
		// keys would otherwise stop the forwarding of all teams.
		s.p.Log.Info("a forwarded message gets no ARC seal, because its chain takes too long to verify", "email",
			w.payload.EmailID, "rule", w.rule.ID)
		return nil, nil
	}
	results := s.c.Hostname + "; none"
	if a := w.message.Authentication; a != nil && a.Header != "" {
		results = a.Header
	}
	// The results were stored when the message arrived. They may lack the chain, or contain another state of it.
	before, _, _ := strings.Cut(results, "; arc=")
	if chain.State != arc.None && chain.State != arc.TempError {
		results = strings.TrimSuffix(before, "; none") + "; arc=" + string(chain.State)
	}
	out, err := arc.Seal(msg, chain, results, signer, now)
	switch {
	case errors.Is(err, arc.ErrUnverified) && now.Sub(w.job.CreatedAt) < sealWait:
		return nil, fmt.Errorf("%w: %s", errDNS, chain.Reason)
	case err != nil:
		s.p.Log.Info("a forwarded message gets no ARC seal", "email", w.payload.EmailID, "rule", w.rule.ID, "reason", err)
		return nil, nil
	}
	return out, nil
}

// headerSafe replaces characters that would end a field or look like another part of it.
func headerSafe(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}
