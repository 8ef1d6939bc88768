package outbox

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

const (
	doneCookie = "outbox" // holds the sentence that the next page shows after a form; it is no secret
	doneFor    = time.Minute
	doneMax    = 500       // bytes
	undoMax    = 100 << 20 // bytes of a deleted email that is kept for the undo
	clearWord  = "outbox"  // what the visitor types to delete all emails
)

// isForm reports whether a request is a form of a page.
func isForm(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded")
}

// leave redirects to a page that shows a sentence. The id of an email offers to undo its deletion.
func (s *server) leave(w http.ResponseWriter, r *http.Request, to, sentence, undo string) error {
	if len(sentence) > doneMax {
		sentence = shownBytes(sentence, doneMax-4) + " …"
	}
	s.Site.SetCookie(w, doneCookie, base64.RawURLEncoding.EncodeToString([]byte(undo+"\n"+sentence)), doneFor)
	return web.Redirect(w, r, to)
}

// shownBytes returns at most n bytes of a text, as valid UTF-8.
func shownBytes(text string, n int) string { return strings.ToValidUTF8(text[:min(n, len(text))], "") }

// done returns the sentence that the form before has left for this page, and deletes it. Parts of the page that are
// read again leave it alone.
func (s *server) done(w http.ResponseWriter, r *http.Request) (sentence, undo string) {
	if r.Header.Get("X-Live") != "" {
		return "", ""
	}
	text, err := base64.RawURLEncoding.DecodeString(s.Site.Cookie(r, doneCookie))
	if err != nil || len(text) == 0 {
		return "", ""
	}
	s.Site.DeleteCookie(w, doneCookie)
	undo, sentence, _ = strings.Cut(string(text), "\n")
	return strings.ToValidUTF8(sentence, ""), undo
}

// listOf returns the address of the list that a form was shown beside.
func listOf(form url.Values) string {
	kept := url.Values{}
	for _, name := range append(slices.Clip(filterNames), "q") {
		if form.Get(name) != "" {
			kept.Set(name, form.Get(name))
		}
	}
	if len(kept) == 0 {
		return Path
	}
	return Path + "?" + kept.Encode()
}

// deleteForm deletes an email and offers to undo it.
func (s *server) deleteForm(w http.ResponseWriter, r *http.Request) error {
	form, err := s.Site.Form(w, r)
	if err != nil {
		return err
	}
	gone, err := s.Outbox.Take(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.gone = gone
	s.mu.Unlock()
	undo := gone.ID
	if gone.Size > undoMax {
		undo = ""
		s.mu.Lock()
		s.gone = nil
		s.mu.Unlock()
	}
	return s.leave(w, r, listOf(form), "Email deleted.", undo)
}

// restoreForm undoes the last deletion.
func (s *server) restoreForm(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.Site.Form(w, r); err != nil {
		return err
	}
	s.mu.Lock()
	gone := s.gone
	s.gone = nil
	s.mu.Unlock()
	if gone == nil || gone.ID != r.PathValue("id") {
		return fault.NotFoundf("This email cannot be restored any more, because only the last deletion can be undone.")
	}
	if err := s.Outbox.Restore(r.Context(), gone); err != nil {
		return err
	}
	return s.leave(w, r, Path+"/"+gone.ID, "Email restored.", "")
}

// readForm marks an email as read or unread.
func (s *server) readForm(read bool) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		form, err := s.Site.Form(w, r)
		if err != nil {
			return err
		}
		if _, err := s.Outbox.SetRead(r.Context(), r.PathValue("id"), read); err != nil {
			return err
		}
		return web.Redirect(w, r, listOf(form))
	}
}

// readAllForm marks the emails that the filter selects as read.
func (s *server) readAllForm(w http.ResponseWriter, r *http.Request) error {
	form, err := s.Site.Form(w, r)
	if err != nil {
		return err
	}
	f, err := pageFilter(form)
	if err != nil {
		return err
	}
	all, _, err := s.Outbox.List(r.Context(), f, "", capture.Max)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Read {
			continue
		}
		if _, err := s.Outbox.SetRead(r.Context(), m.ID, true); err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return web.Redirect(w, r, listOf(form))
}

// clearForm deletes the emails that the filter selects, after the visitor has typed a word.
func (s *server) clearForm(w http.ResponseWriter, r *http.Request) error {
	form, err := s.Site.Form(w, r)
	if err != nil {
		return err
	}
	f, err := pageFilter(form)
	if err != nil {
		return err
	}
	if strings.TrimSpace(form.Get("confirm")) != clearWord {
		r.URL = &url.URL{Path: Path, RawQuery: strings.TrimPrefix(listOf(form), Path+"?")}
		if listOf(form) == Path {
			r.URL.RawQuery = ""
		}
		return s.showPage(w, r, http.StatusUnprocessableEntity, func(data *pageData) {
			data.Clear.Open, data.Clear.Problem = true, "Type the word "+clearWord+" to delete the emails."
		})
	}
	n, err := s.Outbox.DeleteAll(r.Context(), f)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.gone = nil
	s.mu.Unlock()
	sentence := fmt.Sprintf("%s emails deleted.", web.Number(n))
	if n == 1 {
		sentence = "1 email deleted."
	}
	return s.leave(w, r, Path, sentence, "")
}

// releaseForm returns the form that sends an email to a mail server.
func (s *server) releaseForm(m capture.Message) *web.Form {
	relay := &web.Field{Name: "relay", Label: "Mail server", Max: 300, Hint: "Host and port, such as smtp.example.com:25"}
	if s.Relay != "" {
		relay.Optional, relay.Hint = true, "Host and port. If this is empty: the relay "+s.Relay
	}
	return web.NewForm(relay, &web.Field{Name: "to", Label: "Send to", Max: 16000,
		Value: strings.Join(m.Recipients[:min(len(m.Recipients), 50)], ", "),
		Hint:  "Addresses with commas between them. These people get the email."})
}

// releasePage sends an email to a mail server, as the form on its page says.
func (s *server) releasePage(w http.ResponseWriter, r *http.Request) error {
	typed, err := s.Site.Form(w, r)
	if err != nil {
		return err
	}
	m, err := s.Outbox.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	form := s.releaseForm(m).Fill(typed)
	var to []string
	for one := range strings.SplitSeq(typed.Get("to"), ",") {
		if one = strings.TrimSpace(one); one != "" {
			to = append(to, one)
		}
	}
	var done capture.Released
	if len(to) == 0 {
		err = fault.Invalidf("to", "Enter an address, for example ann@example.org.")
	} else {
		done, err = s.Release(r.Context(), m.ID, capture.Release{Relay: strings.TrimSpace(typed.Get("relay")), To: to})
	}
	refused, ok := errors.AsType[*capture.ReleaseError](err)
	status := http.StatusBadGateway
	if ok {
		form.Problem = refused.Message
	} else if err != nil {
		if status, err = form.SetError(err); err != nil {
			return err
		}
	} else {
		return s.leave(w, r, Path+"/"+m.ID, released(done), "")
	}
	r.URL = &url.URL{Path: Path + "/" + m.ID}
	return s.showPage(w, r, status, func(data *pageData) {
		data.Mail.Release, data.Mail.Releasing, data.Mail.Failed = form, true, refused
	})
}

// released says who got an email.
func released(d capture.Released) string {
	var refused []string
	for _, a := range d.Answers {
		if !a.Accepted {
			refused = append(refused, a.Recipient+" ("+a.Reply+")")
		}
	}
	text := fmt.Sprintf("Email released: %s accepted it for %d of %d recipients.", d.Relay, len(d.Answers)-len(refused),
		len(d.Answers))
	if len(refused) > 0 {
		text += " It refused " + strings.Join(refused, ", ") + "."
	}
	return text
}
