package outbox

import (
	"errors"
	"net/http"

	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

// releasedWire is an email that was released.
type releasedWire struct {
	itemWire
	Relay   string       `json:"relay"`
	Answers []answerWire `json:"answers"`
}

type answerWire struct {
	Recipient string `json:"recipient"`
	Accepted  bool   `json:"accepted"`
	Reply     string `json:"reply"`
}

// refusedWire is the response if a mail server did not accept an email.
type refusedWire struct {
	StatusCode int    `json:"statusCode"`
	Message    string `json:"message"`
	Name       string `json:"name"`
	Transcript string `json:"transcript"`
}

// release sends a captured email through a mail server.
func (s *server) release(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Relay string   `json:"relay"`
		To    []string `json:"to"`
	}
	if r.ContentLength != 0 {
		if err := readBody(w, r, &in); err != nil {
			return err
		}
	}
	done, err := s.Release(r.Context(), r.PathValue("id"), capture.Release{Relay: in.Relay, To: in.To})
	if e, ok := errors.AsType[*capture.ReleaseError](err); ok {
		return s.answer(w, r, http.StatusBadGateway, refusedWire{http.StatusBadGateway, e.Message, "relay_error",
			e.Transcript})
	}
	if err != nil {
		return err
	}
	out := releasedWire{itemWire: newItem(done.Message), Relay: done.Relay, Answers: make([]answerWire, len(done.Answers))}
	for i, a := range done.Answers {
		out.Answers[i] = answerWire(a)
	}
	return s.answer(w, r, http.StatusOK, out)
}
