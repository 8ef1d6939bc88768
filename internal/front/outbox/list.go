package outbox

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

// itemWire is an email in a list.
type itemWire struct {
	Object          string        `json:"object"`
	ID              string        `json:"id"`
	EmailID         string        `json:"email_id"`
	TeamID          string        `json:"team_id"`
	CreatedAt       wire.ISOTime  `json:"created_at"`
	Subject         string        `json:"subject"`
	From            string        `json:"from"`
	To              []string      `json:"to"`
	Cc              []string      `json:"cc"`
	ReturnPath      string        `json:"return_path"`
	Recipients      []string      `json:"recipients"`
	Size            int           `json:"size"`
	AttachmentCount int           `json:"attachment_count"`
	Read            bool          `json:"read"`
	ReleasedAt      *wire.ISOTime `json:"released_at"`
}

func newItem(m capture.Message) itemWire {
	w := itemWire{Object: "captured_email", ID: m.ID, EmailID: m.EmailID, TeamID: m.TeamID, CreatedAt: wire.ISOTime(m.At),
		Subject: m.Subject, From: strings.Join(displays(m.From), ", "), To: displays(m.To), Cc: displays(m.Cc),
		ReturnPath: m.ReturnPath, Recipients: m.Recipients, Size: m.Size, AttachmentCount: m.Attachments, Read: m.Read}
	if !m.ReleasedAt.IsZero() {
		w.ReleasedAt = (*wire.ISOTime)(&m.ReleasedAt)
	}
	return w
}

func displays(list []capture.Address) []string {
	all := make([]string, len(list))
	for i, a := range list {
		all[i] = a.Display
	}
	return all
}

// listWire is a page of a list.
type listWire struct {
	Object  string     `json:"object"`
	HasMore bool       `json:"has_more"`
	Data    []itemWire `json:"data"`
}

// list answers with a page of the outbox, newest first.
func (s *server) list(w http.ResponseWriter, r *http.Request) error {
	query, f, err := readFilter(r, "limit", "after")
	if err != nil {
		return err
	}
	limit, err := readLimit(query)
	if err != nil {
		return err
	}
	all, more, err := s.Outbox.List(r.Context(), f, query.Get("after"), limit)
	if err != nil {
		return err
	}
	list := listWire{Object: "list", HasMore: more, Data: make([]itemWire, len(all))}
	for i := range all {
		list.Data[i] = newItem(all[i])
	}
	return s.answer(w, r, http.StatusOK, list)
}

// deleteAll deletes the emails that the filter selects. Without a filter, it deletes all emails.
func (s *server) deleteAll(w http.ResponseWriter, r *http.Request) error {
	_, f, err := readFilter(r)
	if err != nil {
		return err
	}
	n, err := s.Outbox.DeleteAll(r.Context(), f)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, struct {
		Object  string `json:"object"`
		Deleted int    `json:"deleted"`
	}{"list", n})
}
