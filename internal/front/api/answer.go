package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

// Limits of the memory for large answers, which teams share. An operation that knows that its answer is large reserves
// memory before it reads what it answers; when the answer is made, it has as much as it is long until the client has
// received it, at a minimum rate. So slow clients hold up the large answers of their own team, and neither what other
// teams send and read, nor mail that comes in.
const (
	answersMax    = 512 << 20        // octets of all large answers
	answersGreed  = 1                // of a team for them, see package fair
	answerIsLarge = 256 << 10        // smaller ones are not counted
	answerCost    = 3                // memory for an octet: as the database gave it, as a text, and encoded
	answerGrace   = 15 * time.Second // for receiving an answer, plus the time that answerPace gives
	answerPace    = 128 << 10        // octets a second
)

// reserve takes memory for an answer that is made of so many octets. Without enough of it in time, the error is an
// Unavailable fault.
func (c *Call) reserve(ctx context.Context, octets int64) error {
	return c.memory.take(ctx, octets*answerCost)
}

// answerMemory is the memory that an answer has of the pool.
type answerMemory struct {
	pool   *fairshare.Pool
	team   string
	octets int64
}

func (m *answerMemory) take(ctx context.Context, octets int64) error {
	wait, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	octets = min(octets, answersMax)
	if err := m.pool.Acquire(wait, m.team, octets); err != nil {
		return fault.New(fault.Unavailable, "",
			"Too many large answers are being received. Try again in a moment.").
			Because(fmt.Errorf("%w: %w", errFull, err))
	}
	m.octets += octets
	return nil
}

// shrink gives back what exceeds so many octets.
func (m *answerMemory) shrink(octets int64) {
	if octets < m.octets {
		m.pool.Release(m.team, m.octets-octets)
		m.octets = octets
	}
}

// answer writes an answer that was made.
func (a *API) answer(w *recorder, r *http.Request, c *Call, answer []byte) {
	if len(answer) <= answerIsLarge {
		write(w, c.Status, answer)
		return
	}
	if c.memory.octets == 0 {
		if err := c.memory.take(r.Context(), int64(len(answer))); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	c.memory.shrink(int64(len(answer)))
	c.finished() // what the answer was made of is not needed any more
	if w.keep {
		w.keep, w.answer = false, answer // a copy would be as large again
	}
	h := w.Header()
	h["Content-Type"] = []string{mediaJSON + "; charset=utf-8"}
	h["Content-Length"] = []string{strconv.Itoa(len(answer))}
	w.WriteHeader(c.Status)
	if err := writeAtPace(w, answer); err != nil {
		a.cut(w, r, err)
	}
}

// writeAtPace writes an answer in pieces, which the client must receive at a minimum rate.
func writeAtPace(w http.ResponseWriter, answer []byte) error {
	rc := http.NewResponseController(w)
	until := time.Now().Add(answerGrace)
	for len(answer) > 0 {
		piece := answer[:min(len(answer), answerPace)]
		answer = answer[len(piece):]
		until = until.Add(time.Duration(len(piece)) * time.Second / answerPace)
		// A writer without deadlines, as in tests, is used without one.
		if err := rc.SetWriteDeadline(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return errGone
		}
		if _, err := w.Write(piece); err != nil {
			return errGone
		}
	}
	return nil
}
