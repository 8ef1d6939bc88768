package dashboard

import (
	"errors"
	"net/http"
	"time"
)

// A response that holds a part of the team's memory for large responses must be received at a minimum rate, as those of
// the API. A browser that stops reading would otherwise keep the memory from the rest of the team for hours.
const (
	paceGrace = 15 * time.Second // time for receiving a response, in addition to its time at the pace
	pace      = 128 << 10        // bytes per second
)

// paced writes a response that the browser must receive at a minimum rate.
type paced struct {
	w        http.ResponseWriter
	grace    time.Duration
	deadline time.Time // for what was written so far; zero before the first byte
}

func (c *call) paced() *paced { return &paced{w: c.w, grace: paceGrace} }

// Write implements io.Writer.
func (p *paced) Write(all []byte) (n int, err error) {
	rc := http.NewResponseController(p.w)
	if p.deadline.IsZero() {
		p.deadline = time.Now().Add(p.grace)
	}
	for n < len(all) {
		piece := all[n:min(len(all), n+pace)]
		p.deadline = p.deadline.Add(time.Duration(len(piece)) * time.Second / pace)
		if err := rc.SetWriteDeadline(p.deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return n, err
		}
		written, err := p.w.Write(piece)
		if n += written; err != nil {
			return n, err
		}
	}
	return n, nil
}

// flush sends what is buffered, before the memory is released.
func (p *paced) flush() error {
	if err := http.NewResponseController(p.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
