package receiving

import (
	"strings"
	"testing"
	"time"
)

// traceLength finds the end of the trace fields for all values and messages that a client may send.
func TestTraceLength(t *testing.T) {
	s := newService(Config{Hostname: "mx.postrider.test"}, Deps{})
	for _, said := range []string{"", "mail.example.org", ";", "a;\r\n\tb", "\r\n\r\n", "x;", strings.Repeat(";", 300)} {
		for _, to := range [][]target{nil, {{address: "a@b.example"}}, {{address: said}},
			{{address: "a@b.example"}, {address: "c@d.example"}}} {
			m := &incoming{id: "0198c1a0", to: to, at: time.Unix(1772600000, 0),
				origin: Origin{MailFrom: said, Hello: said, Addr: "192.0.2.1"}}
			trace := s.trace(m)
			for _, body := range []string{"", "\r\n", "From: a@b.example\r\n\r\nx", " x;\r\n\ty\r\n", ";\r\n\t\r\n", trace} {
				if n := traceLength([]byte(trace + body)); n != len(trace) {
					t.Errorf("%d bytes, want %d, of %q", n, len(trace), trace+body)
				}
			}
		}
	}
	for _, raw := range []string{"", "From: a@b.example\r\n\r\nx;\r\n\ty\r\n", "Return-Path: <",
		"Return-Path: <>\r\n", "Return-Path: <>\r\nX: y;\r\n\tz"} {
		if n := traceLength([]byte(raw)); n != 0 {
			t.Errorf("%d bytes of %q", n, raw)
		}
	}
}
