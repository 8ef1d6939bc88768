// Package reportstest helps to test the packages that send daily reports. A [Fixture] has a clock, a DNS and mailboxes,
// and [Kill] kills processes that send reports.
package reportstest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	gomessage "github.com/emersion/go-message"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
)

// Today is the day that reports are about. The clock of a fixture begins at noon.
var Today = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// Service counts, and sends reports.
type Service interface {
	Flush(ctx context.Context) error
	Send(ctx context.Context) error
}

// Email is an email with a report.
type Email struct {
	From, To, Subject, ID, AutoSubmitted string
	Kind, File                           string // media type and name of the attached file
	Content                              []byte
}

// Fixture has what the nodes of a test share. D describes a report that arrived at a target.
type Fixture[D any] struct {
	*testing.T
	DB      *db.DB
	DNS     resolve.Fake
	LogText *bytes.Buffer
	// Read returns the report in an email. Its error refuses the email.
	Read func(Email) (D, error)
	// OnMail is called before an email arrives; an error refuses it.
	OnMail func(to string) error

	mu  sync.Mutex
	now time.Time
	all []D
}

// New returns a fixture with an empty DNS.
func New[D any](t *testing.T, d *db.DB) *Fixture[D] {
	return &Fixture[D]{T: t, DB: d, LogText: &bytes.Buffer{}, now: Today.Add(12 * time.Hour),
		DNS: resolve.Fake{TXTRecords: map[string][]string{}}}
}

// At sets the clock.
func (f *Fixture[D]) At(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = t
}

// Clock returns the time of the clock.
func (f *Fixture[D]) Clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// From returns the sender of reports.
func (f *Fixture[D]) From() message.Address {
	f.Helper()
	from, err := message.ParseFrom("Postrider <notices@acme.example>")
	if err != nil {
		f.Fatal(err)
	}
	return from
}

// Logger returns a logger that writes to f.LogText.
func (f *Fixture[D]) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(f.LogText, nil)) }

// Mail receives an email with a report.
func (f *Fixture[D]) Mail(_ context.Context, from, to string, raw []byte) error {
	if f.OnMail != nil {
		if err := f.OnMail(to); err != nil {
			return err
		}
	}
	e, err := gomessage.Read(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	parts := e.MultipartReader()
	if _, err := parts.NextPart(); err != nil {
		return err
	}
	part, err := parts.NextPart()
	if err != nil {
		return err
	}
	m := Email{From: from, To: to, Subject: e.Header.Get("Subject"), ID: e.Header.Get("Message-ID"),
		AutoSubmitted: e.Header.Get("Auto-Submitted")}
	m.Kind, _, _ = part.Header.ContentType()
	_, disposition, _ := part.Header.ContentDisposition()
	m.File = disposition["filename"]
	if m.Content, err = io.ReadAll(part.Body); err != nil {
		return err
	}
	d, err := f.Read(m)
	if err == nil {
		f.Arrive(d)
	}
	return err
}

// Arrive adds a report that arrived.
func (f *Fixture[D]) Arrive(d D) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, d)
}

// Take returns the reports that arrived since the last call.
func (f *Fixture[D]) Take() []D {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.all
	f.all = nil
	return all
}

// Flush stores what a node has counted.
func (f *Fixture[D]) Flush(s Service) {
	f.Helper()
	if err := s.Flush(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// Send sends the due reports and returns those that arrive.
func (f *Fixture[D]) Send(s Service) []D {
	f.Helper()
	if err := s.Send(f.Context()); err != nil {
		f.Fatal(err)
	}
	return f.Take()
}
