package cli

import (
	"context"
	"errors"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/domainconnect"
)

// domainConnect makes the key of Domain Connect, and reads it as another node does.
func (d *driver) domainConnect() {
	d.t.Helper()
	for range 2 {
		s, err := domainconnect.New(domainconnect.Config{ProviderID: "mail.example.net", ServiceID: "email"},
			domainconnect.Deps{DB: d.DB, Keys: d.Keys, DNS: resolve.Fake{},
				Fetch: func(context.Context, string, int64) ([]byte, error) { return nil, errors.New("no network") }})
		if err != nil {
			d.t.Fatal(err)
		}
		if _, err := s.KeyRecords(d.t.Context()); err != nil {
			d.t.Error(err)
		}
	}
}
