package links

import (
	"context"
	"fmt"
	"net/http"

	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/outbound/forwards"
)

// forwardingHandler serves the pages below /forwarding/, on which the owner of an address agrees to forwarding or
// refuses it.
//
// GET and HEAD requests change nothing, because mail programs and scanners request links that nobody has clicked. The
// form needs no CSRF protection: the handler uses neither cookies nor sessions, and anybody with the token may answer.
type forwardingHandler struct {
	*Links
	forwards *forwards.Service
}

// RegisterForwarding adds the handlers for the links in confirmation mails, /forwarding/confirm/{token} and
// /forwarding/refuse/{token}, to a mux.
func (l *Links) RegisterForwarding(mux *http.ServeMux, f *forwards.Service) {
	h := forwardingHandler{l, f}
	for _, x := range []struct {
		path string
		page func(*forwards.Request) note
		read func(context.Context, string) (forwards.Request, error)
		do   func(context.Context, forwards.Request) error
		done func(*forwards.Request) note
	}{
		{"/forwarding/confirm/{token}", askConfirm, f.ReadConfirm, f.Confirm, isConfirmed},
		{"/forwarding/refuse/{token}", askRefuse, f.ReadRefuse, f.Refuse, isRefused},
	} {
		mux.HandleFunc("GET "+x.path, func(w http.ResponseWriter, r *http.Request) {
			q, err := x.read(r.Context(), r.PathValue("token"))
			if err != nil {
				h.fail(w, r, err)
				return
			}
			h.write(w, r, http.StatusOK, x.page(&q))
		})
		mux.HandleFunc("POST "+x.path, func(w http.ResponseWriter, r *http.Request) {
			form, err := readForm(w, r)
			if err != nil || !form.Has("answer") {
				http.Error(w, "The form cannot be read.", http.StatusBadRequest)
				return
			}
			q, err := x.read(r.Context(), r.PathValue("token"))
			if err == nil {
				err = x.do(r.Context(), q)
			}
			if err != nil {
				h.fail(w, r, err)
				return
			}
			h.write(w, r, http.StatusOK, x.done(&q))
		})
	}
	// A link that was cut before its token.
	mux.HandleFunc("GET /forwarding/", func(w http.ResponseWriter, r *http.Request) {
		_, err := f.ReadRefuse(r.Context(), "")
		h.fail(w, r, err)
	})
}

func askConfirm(q *forwards.Request) note {
	if q.Confirmed {
		return isConfirmed(q)
	}
	return note{Heading: "Forward mail to " + q.Address + "?", Names: q.Names,
		Text: fmt.Sprintf("The team “%s” asks to forward the mail that arrives for these addresses to %s:",
			visible.Show(q.Team), q.Address),
		Button: "Yes, forward it to me", Hint: "If you do not agree, close this page. Nothing is forwarded to you then."}
}

func isConfirmed(q *forwards.Request) note {
	return note{Heading: "Mail is forwarded to " + q.Address, Names: q.Names,
		Text: fmt.Sprintf("You agreed that the team “%s” forwards the mail for these addresses to you:",
			visible.Show(q.Team)),
		Hint: "To stop forwarding, open the second link in the confirmation email."}
}

func askRefuse(q *forwards.Request) note {
	if q.Refused {
		return isRefused(q)
	}
	return note{Heading: "Refuse forwarded mail?", Names: q.Names,
		Text: fmt.Sprintf("The team “%s” then forwards no mail to %s and cannot ask you again. It asked about the mail for:",
			visible.Show(q.Team), q.Address),
		Button: "Refuse"}
}

func isRefused(q *forwards.Request) note {
	return note{Heading: "No mail is forwarded to " + q.Address,
		Text: fmt.Sprintf("The team “%s” cannot ask you again.", visible.Show(q.Team)),
		Hint: "If this was a mistake, open the first link in the confirmation email, which is valid for 7 days."}
}
