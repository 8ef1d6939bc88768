package emails_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The same limits apply to the displayed header fields of a raw message as to those of an API request.
func TestFieldsOfRawAreBounded(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		field := func(i, size int) message.Field {
			return message.Field{Name: fmt.Sprintf("X-Field-%d", i), Value: strings.Repeat("v", size)}
		}
		for _, c := range []struct {
			name   string
			size   int // of each field
			fields int
			shown  int
		}{{"few", 10, 5, 5}, {"as many as may be", 10, emails.MaxHeaders, emails.MaxHeaders},
			{"many", 10, 2 * emails.MaxHeaders, emails.MaxHeaders},
			{"large", 900, 90, 72}} {
			raw := composed(message.Address{Local: "a", Domain: "one.example"})
			for i := range c.fields {
				raw.Headers = append(raw.Headers, field(i, c.size))
			}
			raw.Headers = append(raw.Headers[:1:1], append([]message.Field{{Name: "message-id", Value: "<a@acme.example>"}},
				raw.Headers[1:]...)...)
			id, err := f.Emails.SendRaw(t.Context(), f.Acme, raw, emails.Idempotency{})
			if err != nil {
				t.Fatal(err)
			}
			brief, err := emails.EventSummary(t.Context(), f.DB.Reader, f.Acme.TeamID, id)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(brief.Headers); n != c.shown {
				t.Errorf("%s: %d of %d fields are shown, want %d", c.name, n, c.fields, c.shown)
			}
		}
	})
}
