package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/resources"
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

// A server that nobody named, and that never validates signatures, causes an alarm after many look-ups without one
// authenticated answer.
func TestOnlyInsecureAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		counts    resolve.Counts
		worked    bool
		bad, good bool
	}{
		{"after the start", resolve.Counts{}, false, false, false},
		{"few look-ups", resolve.Counts{Insecure: 999, Failed: 5000, Bogus: 10}, false, false, false},
		{"nothing but insecure answers", resolve.Counts{Insecure: 1000}, false, true, false},
		{"one authenticated answer", resolve.Counts{Insecure: 1000, Secure: 1}, false, false, true},
		{"one authenticated absence", resolve.Counts{Insecure: 1000, Absent: 1}, false, false, true},
		{"the server validates", resolve.Counts{Insecure: 1000}, true, false, true},
	} {
		n := &Node{Resources: &resources.Resources{Base: resources.Base{DNS: counted{counts: c.counts}}}}
		n.dnssecChecked.Store(true)
		n.dnssecWorked.Store(c.worked)
		if got := n.dnssecCondition(); got.Bad != c.bad || got.Good != c.good {
			t.Errorf("%s: %+v", c.name, got)
		} else if got.Bad && !strings.Contains(got.Text, "none of 1000 look-ups") {
			t.Errorf("%s: %s", c.name, got.Text)
		}
	}
}

// counted is a resolver whose look-ups are counted.
type counted struct {
	resolve.Fake
	counts resolve.Counts
}

func (c counted) Counts() resolve.Counts                          { return c.counts }
func (counted) MayBelieve() bool                                  { return true }
func (counted) Believes(context.Context) (bool, []resolve.Belief) { return false, nil }
