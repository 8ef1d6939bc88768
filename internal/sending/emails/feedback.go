package emails

import (
	"encoding/base32"
	"sync"

	"github.com/postrider/postrider/internal/mail/message"
)

// The header field Feedback-ID has four identifiers, by which Gmail counts the complaints about bulk senders:
//
//	campaign:stream:team:operator
//
// The campaign is the broadcast or the template, or empty. The stream is bulk or transactional. The team is a keyed
// hash of the team's id. The operator is Config.FeedbackSender. No identifier tells anything about the recipient or the
// single message, and the prefixes keep an identifier from occurring in two positions.
const (
	feedbackField       = "Feedback-ID"
	feedbackPurpose     = "feedback-id"
	feedbackTeamBytes   = 6
	streamBulk          = "bulk"
	streamTransactional = "transactional"
	campaignDigits      = 12 // of the end of an id, which is random
)

var feedbackEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// feedbackIDsMax is the maximum number of cached values, of about 250 bytes each.
const feedbackIDsMax = 4096

// feedbackIDs caches the values of Feedback-ID, because many emails have the same one.
type feedbackIDs struct {
	mu  sync.RWMutex
	all map[feedbackKey]string
}

// feedbackKey holds what a value of Feedback-ID depends on.
type feedbackKey struct {
	teamID   string
	kind     byte   // of the campaign: b for a broadcast, t for a template, 0 for none
	campaign string // id
	bulk     bool
}

// feedbackID returns the value of Feedback-ID for the message, or "" if the configuration has no sender.
func (s *Service) feedbackID(o *Outgoing) string {
	if s.c.FeedbackSender == "" {
		return ""
	}
	key := feedbackKeyOf(o.TeamID, o.BroadcastID, o.row.TemplateID, o.bulk)
	s.feedback.mu.RLock()
	value, ok := s.feedback.all[key]
	s.feedback.mu.RUnlock()
	if ok {
		return value
	}
	value = s.makeFeedbackID(key)
	s.feedback.mu.Lock()
	defer s.feedback.mu.Unlock()
	if s.feedback.all == nil || len(s.feedback.all) >= feedbackIDsMax {
		s.feedback.all = map[feedbackKey]string{}
	}
	s.feedback.all[key] = value
	return value
}

func feedbackKeyOf(teamID, broadcastID, templateID string, bulk bool) feedbackKey {
	key := feedbackKey{teamID: teamID, bulk: bulk}
	switch {
	case broadcastID != "":
		key.kind, key.campaign = 'b', broadcastID
	case templateID != "":
		key.kind, key.campaign = 't', templateID
	}
	return key
}

// storedFeedback returns the field that the messages of a stored email have, unless its sender specified another one.
func (s *Service) storedFeedback(e *Email, bulk bool) func(has func(name string) bool) []message.Field {
	return func(has func(name string) bool) []message.Field {
		if s.c.FeedbackSender == "" || has(feedbackField) {
			return nil
		}
		value := s.makeFeedbackID(feedbackKeyOf(e.TeamID, e.BroadcastID, e.TemplateID, bulk))
		return []message.Field{{Name: feedbackField, Value: value}}
	}
}

// WithFeedbackID prepends Feedback-ID to a message of a team that is not stored as an email.
func (s *Service) WithFeedbackID(teamID string, message []byte) []byte {
	if s.c.FeedbackSender == "" {
		return message
	}
	return append([]byte(feedbackField+": "+s.makeFeedbackID(feedbackKey{teamID: teamID})+"\r\n"), message...)
}

func (s *Service) makeFeedbackID(of feedbackKey) string {
	campaign, stream := "", streamTransactional
	if of.kind != 0 {
		campaign = string(of.kind) + "-" + of.campaign[max(0, len(of.campaign)-campaignDigits):]
	}
	if of.bulk {
		stream = streamBulk
	}
	team := feedbackEncoding.EncodeToString(s.Keys.Tag(feedbackPurpose, []byte(of.teamID), feedbackTeamBytes))
	return campaign + ":" + stream + ":team-" + team + ":" + s.c.FeedbackSender
}

// ComplaintLoop tells mailbox providers where to send complaints about a message (RFC 9477). A zero ComplaintLoop means
// that the message does not tell it.
type ComplaintLoop struct {
	Address string // receives reports in the format ARF
	Token   string // is quoted by reports; see [tokens.Feedback]
}

// addedFields returns the header fields to add to the message. The function has reports whether the sender specified a
// field; such fields are not replaced.
func (s *Service) addedFields(o *Outgoing, l unsubscribeInfo, has func(name string) bool) []message.Field {
	all := make([]message.Field, 0, 6)
	if value := s.feedbackID(o); value != "" && !has(feedbackField) {
		all = append(all, message.Field{Name: feedbackField, Value: value})
	}
	if c := o.ComplaintLoop; c.Address != "" && !has("CFBL-Address") && !has("CFBL-Feedback-ID") {
		all = append(all, message.Field{Name: "CFBL-Address", Value: c.Address + "; report=arf"},
			message.Field{Name: "CFBL-Feedback-ID", Value: c.Token})
	}
	return append(all, l.fields(has)...)
}
