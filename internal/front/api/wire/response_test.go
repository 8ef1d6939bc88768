package wire

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// A client must receive a large response at a minimum rate. Each piece of a response extends the write deadline only by
// the time that the piece takes at the minimum rate.
func TestPaceOfLargeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &dated{ResponseRecorder: httptest.NewRecorder(), start: time.Now()}
		if err := writeAtPace(w, make([]byte, 5*responsePace/2)); err != nil || w.Body.Len() != 5*responsePace/2 {
			t.Errorf("%d bytes, %v", w.Body.Len(), err)
		}
		want := []time.Duration{responseGrace + time.Second, responseGrace + 2*time.Second, responseGrace + 5*time.Second/2}
		if fmt.Sprint(w.until) != fmt.Sprint(want) {
			t.Errorf("deadlines %v, want %v", w.until, want)
		}
		slow := &sluggish{ResponseRecorder: httptest.NewRecorder()}
		if err := writeAtPace(slow, make([]byte, 3*responsePace)); err != errClientGone || slow.pieces != 2 {
			t.Errorf("after %d pieces: %v", slow.pieces, err)
		}
	})
}

// dated is a client that records the write deadlines set on its connection.
type dated struct {
	*httptest.ResponseRecorder
	start time.Time
	until []time.Duration
}

func (w *dated) SetWriteDeadline(at time.Time) error {
	w.until = append(w.until, at.Sub(w.start))
	return nil
}
