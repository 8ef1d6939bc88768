package node

import (
	"errors"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// A server that the operator named must validate signatures, and so must one that did. Another one is only an offer.
func TestDNSSECProblem(t *testing.T) {
	t.Parallel()
	good := resolve.Belief{MayBelieve: true, Authentic: true, Believed: true}
	plain := resolve.Belief{MayBelieve: true}
	silent := resolve.Belief{MayBelieve: true, Err: errors.New("no answer")}
	stopped := resolve.Belief{MayBelieve: true, Believed: true, Err: errors.New("no answer")}
	for _, c := range []struct {
		name    string
		servers []resolve.Belief
		missed  bool
		want    error
	}{
		{"validates", []resolve.Belief{good}, true, nil},
		{"one of two", []resolve.Belief{silent, good}, true, nil},
		{"named, without validation", []resolve.Belief{plain}, true, errNotValidating},
		{"named, without an answer", []resolve.Belief{silent}, true, errSilent},
		{"named, one of each", []resolve.Belief{plain, silent}, true, errNotValidating},
		{"named, stopped", []resolve.Belief{stopped}, true, errSilent},
		{"found, without validation", []resolve.Belief{plain}, false, nil},
		{"found, without an answer", []resolve.Belief{silent}, false, nil},
		{"found, stopped", []resolve.Belief{stopped}, false, errSilent},
	} {
		works := false
		for _, s := range c.servers {
			works = works || s.Believed && s.Authentic
		}
		if got := dnssecProblem(works, c.servers, c.missed); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
