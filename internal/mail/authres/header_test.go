package authres

import "testing"

func TestLinesOfAHeaderAreBounded(t *testing.T) {
	var s scan
	s.line([]byte("X: y"))
	for range maxLines - 1 {
		s.line([]byte(" y"))
	}
	if s.problem != "" {
		t.Errorf("%d lines: %s", s.lines, s.problem)
	}
	if s.line([]byte(" y")); s.problem == "" {
		t.Errorf("%d lines are no problem", s.lines)
	}
}
