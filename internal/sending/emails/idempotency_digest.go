package emails

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"github.com/postrider/postrider/internal/mail/message"
)

// Digest returns a hash of the given emails and the batch mode, for use in [Idempotency]. Requests for the same emails
// have the same digest, regardless of the order of their JSON members. Unknown JSON members are ignored. Digest does
// not make a copy of the emails.
func Digest(mode string, all ...Send) string {
	h := sha256.New()
	w := digester{bufio.NewWriterSize(h, 512)}
	w.texts(mode)
	for i := range all {
		w.send(&all[i])
	}
	w.Flush() // a write to a hash never fails
	return hex.EncodeToString(h.Sum(nil))
}

// DigestTexts returns the digest of a request that does not send emails.
func DigestTexts(all ...string) string {
	h := sha256.New()
	w := digester{bufio.NewWriterSize(h, 512)}
	w.texts(all...)
	w.Flush()
	return hex.EncodeToString(h.Sum(nil))
}

// digester writes the length of each value before the value, so that different lists of values never produce the same
// bytes.
type digester struct{ *bufio.Writer }

func (w digester) number(n int) {
	w.WriteString(strconv.Itoa(n))
	w.WriteByte(' ')
}

func (w digester) texts(all ...string) {
	w.number(len(all))
	for _, s := range all {
		w.number(len(s))
		w.WriteString(s)
	}
}

func (w digester) optional(s *string) {
	if s == nil {
		w.number(-1)
		return
	}
	w.texts(*s)
}

func (w digester) send(s *Send) {
	w.texts(s.From, s.Subject, s.ScheduledAt, s.TopicID, s.TemplateID, strconv.FormatBool(s.HasTemplate))
	w.texts(s.To...)
	w.texts(s.Cc...)
	w.texts(s.Bcc...)
	w.texts(s.ReplyTo...)
	w.optional(s.HTML)
	w.optional(s.Text)
	headers := slices.SortedStableFunc(slices.Values(s.Headers), func(a, b message.Field) int {
		return cmp.Compare(a.Name, b.Name)
	})
	w.number(len(headers))
	for _, f := range headers {
		w.texts(f.Name, f.Value)
	}
	w.number(len(s.Tags))
	for _, t := range s.Tags {
		w.texts(t.Name, t.Value)
	}
	w.number(len(s.Attachments))
	for i := range s.Attachments {
		f := &s.Attachments[i]
		w.texts(f.Filename, f.ContentType, f.ContentID, f.Path, strconv.FormatBool(f.HasContent))
		w.number(len(f.Content))
		w.Write(f.Content)
	}
	if s.HasTemplate {
		w.number(len(s.Variables))
		for _, key := range slices.Sorted(maps.Keys(s.Variables)) {
			w.texts(key, string(s.Variables[key].Type), s.Variables[key].Text)
		}
	}
	if s.Broken != nil {
		w.texts(s.Broken.Error())
	}
}
