package domains

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a domain whose rotations are simulated. Its wall clock may jump; real time does not.
type world struct {
	t        *testing.T
	c        Config
	d        Domain
	keys     []key
	real     time.Time
	offset   time.Duration         // of the wall clock
	seenFor  map[string]time.Time  // real time since when no look-up has missed the record
	signed   map[string]time.Time  // real time until which a key signed
	revoked  map[string]time.Time  // real time at which a record was revoked
	answers  func(k *key) sighting // of the servers
	nextStep time.Time             // by the wall clock
	made     int
}

func newWorld(t *testing.T, setup string, emergency bool) *world {
	w := &world{t: t, real: time.Unix(1_800_000_000, 0), seenFor: map[string]time.Time{}, signed: map[string]time.Time{},
		revoked: map[string]time.Time{}}
	w.c = Config{Selector: "first", SelectorEd25519: "first-ed", Rotation: 90 * 24 * time.Hour, RetrySpan: 48 * time.Hour}
	w.d = Domain{ID: "d", TeamID: "t", Name: "acme.example", Setup: setup, Sending: true, keysSince: w.real,
		checks: map[string]check{"dkim-ed25519": {Status: Verified}}}
	for _, setup := range setups {
		for _, key := range sendingKeys(setup) {
			w.d.checks[key] = check{Status: Verified}
		}
	}
	if setup == SetupCNAME {
		w.d.rsa.selector = "s2"
	}
	w.answers = func(*key) sighting { return sighting{present, time.Hour} }
	w.begin(emergency)
	return w
}

func (w *world) now() time.Time { return w.real.Add(w.offset) }

// begin begins a rotation.
func (w *world) begin(emergency bool) {
	var made []key
	for _, a := range w.d.algorithms(w.keys, emergency) {
		w.made++
		made = append(made, key{id: fmt.Sprint("key", w.made), algorithm: a, record: fmt.Sprint("record", w.made)})
	}
	added, kept, _ := w.c.begin(&w.d, w.keys, made, emergency, w.now())
	w.keys, w.nextStep = append(kept, added...), w.now()
}

// run makes steps until the wall clock has advanced by d, or until stop returns true. The node needs up to a minute
// longer than planned for each.
func (w *world) run(d time.Duration, stop func() bool) {
	w.t.Helper()
	for end := w.real.Add(d); w.real.Before(end) && !stop(); {
		if wait := w.nextStep.Sub(w.now()); wait > 0 {
			w.real = w.real.Add(wait)
		}
		w.real = w.real.Add(rand.N(time.Minute))
		w.step()
	}
}

func (w *world) step() {
	w.t.Helper()
	seen := map[string]sighting{}
	for i := range w.keys {
		k := &w.keys[i]
		if k.state != KeyNext {
			continue
		}
		seen[k.id] = w.answers(k)
		switch _, known := w.seenFor[k.id]; {
		case seen[k.id].finding == absent:
			delete(w.seenFor, k.id)
		case seen[k.id].finding == present && !known:
			w.seenFor[k.id] = w.real
		}
	}
	o := w.c.step(&w.d, w.keys, seen, w.now())
	w.keys = o.keys
	for _, k := range o.sign {
		since, ok := w.seenFor[k.id]
		if ok = ok || w.d.unpublished(k.algorithm); !ok || !k.emergency && w.real.Sub(since) < 2*k.ttl {
			w.t.Errorf("%s signs although it is seen since %v (%v)", k.id, w.real.Sub(since), ok)
		}
		w.sign(k)
	}
	wait := maxInterval
	for i := range w.keys {
		k := &w.keys[i]
		wait = min(wait, w.c.nextStep(k, w.now()))
		if k.state == KeyRevoked && w.revoked[k.selector].IsZero() {
			w.revoked[k.selector] = w.real
			if been := w.real.Sub(w.signed[k.selector]); been < retiredFor && !k.emergency || been < resigned {
				w.t.Errorf("the record of %s is revoked %v after its last signature", k.selector, been)
			}
		}
	}
	for _, k := range o.deleted {
		if been := w.real.Sub(w.revoked[k.selector]); k.state == KeyRevoked && been < revokedFor {
			w.t.Errorf("the record of %s is removed %v after it was revoked", k.selector, been)
		}
	}
	w.nextStep = w.now().Add(wait)
}

// sign lets a key sign instead of the one before.
func (w *world) sign(k key) {
	rsa, ed25519 := w.c.signing(&w.d)
	row, selector := &w.d.rsa, rsa
	if k.algorithm == algorithmEd25519 {
		row, selector = &w.d.ed25519, ed25519
	}
	w.made++
	w.signed[selector] = w.real
	w.keys, _ = retire(w.keys, key{id: fmt.Sprint("key", w.made), selector: selector, algorithm: k.algorithm,
		state: KeyRetired, emergency: k.emergency, createdAt: w.now(), stateAt: w.now(), steppedAt: w.now()})
	row.selector = k.selector
	delete(w.revoked, k.selector)
	w.d.keysSince = w.now()
}

func (w *world) state(state KeyState) bool {
	return slices.ContainsFunc(w.keys, func(k key) bool { return k.state == state })
}

// At the end of a rotation, the next key signs and no other key is left. Each step takes about as long as the documents
// say.
func TestRotationEnds(t *testing.T) {
	t.Parallel()
	for _, setup := range []string{SetupRecords, SetupCNAME, SetupDelegation} {
		w := newWorld(t, setup, false)
		began := w.real
		w.run(24*time.Hour, func() bool { return !w.state(KeyNext) })
		if took := w.real.Sub(began); took < 2*time.Hour || took > 3*time.Hour {
			t.Errorf("%s: the next key signs after %v", setup, took)
		}
		if w.d.rsa.selector == "first" || (setup == SetupCNAME) != (w.d.rsa.selector == "s1") ||
			(setup == SetupCNAME) != (w.d.ed25519.selector == "") {
			t.Errorf("%s: selectors %s, %s", setup, w.d.rsa.selector, w.d.ed25519.selector)
		}
		w.run(100*24*time.Hour, func() bool { return len(w.keys) == 0 })
		if took := w.real.Sub(began); took < 37*24*time.Hour || took > 44*24*time.Hour {
			t.Errorf("%s: the rotation took %v", setup, took)
		}
	}
}

// Retired keys stay published for longer than emails are retried.
func TestRetiredKeysOutliveTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, SetupDelegation, false)
	w.c.RetrySpan = 20 * 24 * time.Hour
	w.run(24*time.Hour, func() bool { return !w.state(KeyNext) })
	began := w.real
	w.run(100*24*time.Hour, func() bool { return w.state(KeyRevoked) })
	if took := w.real.Sub(began); took < 21*24*time.Hour || took > 25*24*time.Hour {
		t.Errorf("revoked after %v", took)
	}
}

// A record that disappears stops the switch. A server that does not answer delays it.
func TestRecordDisappears(t *testing.T) {
	t.Parallel()
	for _, f := range []finding{absent, unknown} {
		w := newWorld(t, SetupRecords, false)
		w.run(90*time.Minute, func() bool { return false })
		answers := w.answers
		w.answers = func(*key) sighting { return sighting{f, 0} }
		w.run(10*time.Hour, func() bool { return false })
		if !w.state(KeyNext) || w.keys[0].seenAt.IsZero() != (f == absent) {
			t.Fatalf("finding %d: %+v", f, w.keys)
		}
		w.answers = answers
		began := w.real
		w.run(24*time.Hour, func() bool { return !w.state(KeyNext) })
		if took := w.real.Sub(began); (took > 2*time.Hour) != (f == absent) {
			t.Errorf("finding %d: it signs %v after it is seen again", f, took)
		}
	}
}

// A key signs only after its record was seen for two TTLs, and no record is withdrawn early. This holds although clocks
// jump, records disappear and servers are silent. The clock jumps forward once in each waiting time.
func TestRotationWithWrongClocks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		setup := []string{SetupRecords, SetupCNAME, SetupDelegation}[r.IntN(3)]
		w := newWorld(t, setup, r.IntN(4) == 0)
		w.answers = func(*key) sighting {
			return sighting{[]finding{present, present, present, present, absent, unknown}[r.IntN(6)], 10 * time.Minute}
		}
		jumped := map[string]bool{}
		for n := 0; n < 3000 && len(w.keys) > 0; n++ {
			waits := func(k key) string { return fmt.Sprint(k.id, k.state, k.seenAt) }
			if r.IntN(5) == 0 && !slices.ContainsFunc(w.keys, func(k key) bool { return jumped[waits(k)] }) {
				for _, k := range w.keys {
					jumped[waits(k)] = true
				}
				w.offset += time.Duration(r.Int64N(int64(60 * 24 * time.Hour)))
			}
			if r.IntN(20) == 0 {
				back := time.Duration(r.Int64N(int64(60 * 24 * time.Hour)))
				if w.offset -= back; w.nextStep.Sub(w.now()) > maxInterval {
					w.nextStep = w.now() // ExamineKeys finds the rotation
				}
			}
			if n > 1000 {
				w.answers = func(*key) sighting { return sighting{present, 10 * time.Minute} }
			}
			w.run(time.Nanosecond, func() bool { return false })
		}
		if len(w.keys) > 0 {
			t.Errorf("seed %d: the rotation has not ended: %+v", seed, w.keys)
		}
		if t.Failed() {
			t.Fatalf("seed %d, %s", seed, setup)
		}
	}
}

// A clock that jumps forward once, at any step, does not make a waiting time shorter than required.
func TestOneJumpEndsNoWaitingTime(t *testing.T) {
	t.Parallel()
	c := Config{RetrySpan: 48 * time.Hour}
	day := 24 * time.Hour
	for name, v := range map[string]struct {
		k    key
		wait time.Duration
	}{
		"next":               {key{state: KeyNext, ttl: time.Hour}, 2 * time.Hour},
		"short TTL":          {key{state: KeyNext, ttl: time.Second}, 2 * time.Second},
		"TTL of 13 seconds":  {key{state: KeyNext, ttl: 13 * time.Second}, 26 * time.Second},
		"TTL of a week":      {key{state: KeyNext, ttl: 7 * day}, 14 * day},
		"unknown TTL":        {key{state: KeyNext}, 2 * unknownTTL},
		"reused selector":    {key{state: KeyNext, ttl: time.Hour, emergency: true, reused: true}, time.Hour},
		"reused, short TTL":  {key{state: KeyNext, ttl: time.Second, emergency: true, reused: true}, time.Second},
		"retired":            {key{state: KeyRetired}, retiredFor},
		"retired, emergency": {key{state: KeyRetired, emergency: true}, resigned},
		"revoked":            {key{state: KeyRevoked}, revokedFor},
	} {
		steps := 1
		for jump := 0; jump <= steps; jump++ {
			k, clock, took, n := v.k, time.Unix(1_800_000_000, 0), time.Duration(0), 0
			k.seenAt, k.steppedAt = clock, clock
			for ; k.waited < c.need(&k); n++ {
				by := c.nextStep(&k, clock)
				if n == jump {
					clock, by = clock.Add(1000*day), 0 // the next step is due at once
				}
				clock, took = clock.Add(by), took+by
				c.count(&k, clock)
				k.steppedAt = clock
			}
			if steps = n; took < v.wait {
				t.Errorf("%s: with a jump before step %d, it takes %v instead of %v", name, jump, took, v.wait)
				break
			}
			if most := v.wait + v.wait/intervals + 2*minInterval; took > most {
				t.Errorf("%s: it takes %v, at most %v are right", name, took, most)
			}
		}
	}
}

// An emergency makes the waiting time of retired keys shorter. A clock that jumped before the emergency or jumps after
// it does not end the shorter time early: an email that was signed a moment before the jump is still verified.
func TestEmergencyAfterAJump(t *testing.T) {
	t.Parallel()
	for _, setup := range []string{SetupRecords, SetupCNAME, SetupDelegation} {
		for _, jump := range []time.Duration{0, time.Hour, 5 * time.Hour, 7 * time.Hour, 30 * 24 * time.Hour} {
			for _, again := range []time.Duration{0, 7 * time.Hour} {
				w := newWorld(t, setup, false)
				w.run(24*time.Hour, func() bool { return !w.state(KeyNext) })
				w.run(time.Nanosecond, func() bool { return w.nextStep.After(w.now()) })
				w.offset += jump
				w.step()
				w.begin(true)
				w.offset += again
				began := w.real
				w.run(24*time.Hour, func() bool { return !w.state(KeyNext) && !w.state(KeyRetired) })
				if took := w.real.Sub(began); took > 5*time.Hour {
					t.Errorf("%s: the old keys are revoked %v after the emergency began", setup, took)
				}
			}
		}
	}
}

// In an emergency, a new key signs as soon as it is seen, unless resolvers may have another record at its selector.
func TestEmergency(t *testing.T) {
	t.Parallel()
	w := newWorld(t, SetupRecords, true)
	w.step()
	if w.state(KeyNext) || len(w.keys) != 2 {
		t.Errorf("after the first look-up: %+v", w.keys)
	}
	began := w.real
	w.run(24*time.Hour, func() bool { return w.state(KeyRevoked) })
	if took := w.real.Sub(began); took < resigned || took > 2*resigned {
		t.Errorf("the old keys are revoked after %v", took)
	}
	w = newWorld(t, SetupCNAME, false)
	w.step()
	w.begin(true) // s1 is published with another key
	if len(w.keys) != 2 || w.keys[0].id != "key2" || w.keys[0].selector != "s1" || !w.keys[0].reused {
		t.Fatalf("the key that waited is not replaced: %+v", w.keys)
	}
	began = w.real
	w.run(24*time.Hour, func() bool { return !w.state(KeyNext) })
	if took := w.real.Sub(began); took < time.Hour || took > 2*time.Hour || w.d.rsa.selector != "s1" {
		t.Errorf("it signs with %s after %v", w.d.rsa.selector, took)
	}
	w.run(time.Minute, func() bool { return false })
	w.begin(true) // s2 is retired
	if i := slices.IndexFunc(w.keys, func(k key) bool { return k.state == KeyNext }); i < 0 ||
		w.keys[i].selector != "s2" || !w.keys[i].reused {
		t.Errorf("%+v", w.keys)
	}
}

// After each change of the set-up in the middle of an emergency rotation, the new keys are kept, sign in the end, and the
// former ones are revoked. Keys of other rotations are dropped if they do not fit.
func TestSetupChangesDuringARotation(t *testing.T) {
	t.Parallel()
	for _, from := range setups {
		for _, to := range setups {
			for _, emergency := range []bool{false, true} {
				name := fmt.Sprintf("%s to %s, emergency %v", from, to, emergency)
				w := newWorld(t, from, emergency)
				w.answers = func(*key) sighting { return sighting{absent, 0} }
				w.step()
				next := nextKey(w.keys, algorithmRSA).record
				w.d.Setup = to
				w.step()
				if k := nextKey(w.keys, algorithmRSA); k == nil {
					if fits := (from == SetupCNAME) == (to == SetupCNAME) || to == SetupDelegation; fits || emergency {
						t.Errorf("%s: the key is lost", name)
					}
					continue
				} else if k.record != next || !w.d.fits(k.selector) {
					t.Errorf("%s: %+v", name, k)
				}
				w.answers = func(*key) sighting { return sighting{present, time.Hour} }
				w.run(24*time.Hour, func() bool { return !w.state(KeyNext) })
				w.run(60*24*time.Hour, func() bool { return !w.state(KeyRetired) })
				if w.state(KeyNext) || w.state(KeyRetired) || emergency && w.d.ed25519.selector == "" {
					t.Errorf("%s: %+v", name, w.keys)
				}
			}
		}
	}
}

// After any changes of the set-up and any rotations, an emergency rotation can begin. A domain never has two keys with
// one selector, nor many keys.
func TestEmergencyAfterChangesOfTheSetup(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(t, setups[r.IntN(len(setups))], true)
		s := &Service{c: w.c}
		for range 150 {
			switch r.IntN(3) {
			case 0:
				w.d.Setup = setups[r.IntN(len(setups))]
			case 1:
				waits := nextKey(w.keys, algorithmRSA)
				err := s.mayRotate(&w.d, w.keys, true, w.now())
				if err == nil {
					w.begin(true)
				} else if (waits == nil || !waits.emergency) && w.now().Sub(w.d.keysSince) >= resigned {
					t.Fatalf("seed %d: %v", seed, err)
				}
			case 2:
				w.real = w.real.Add(time.Duration(r.Int64N(int64(3 * time.Hour))))
				seen := map[string]sighting{}
				for i := range w.keys {
					seen[w.keys[i].id] = w.answers(&w.keys[i])
				}
				o := w.c.step(&w.d, w.keys, seen, w.now())
				w.keys = o.keys
				for _, k := range o.sign {
					w.sign(k)
				}
			}
			selectors := map[string]bool{}
			for _, k := range w.keys {
				if selectors[k.selector] {
					t.Fatalf("seed %d: two keys with the selector %s: %+v", seed, k.selector, w.keys)
				}
				selectors[k.selector] = true
			}
		}
	}
}

// An emergency rotation replaces the oldest revoked keys when there are too many, and no retired one.
func TestEmergencyWithManyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, SetupDelegation, false)
	w.keys = nil
	for i := range keysMax {
		state := KeyRevoked
		if i == 0 {
			state = KeyRetired
		}
		w.keys = append(w.keys, key{id: fmt.Sprint(i), selector: fmt.Sprint(i), state: state, algorithm: algorithmRSA})
	}
	s := &Service{c: w.c}
	if s.mayRotate(&w.d, w.keys, false, w.now()) == nil || s.mayRotate(&w.d, w.keys, true, w.now()) != nil {
		t.Error("only an emergency rotation may begin")
	}
	w.begin(true)
	if len(w.keys) != keysMax || w.keys[0].id != "0" || w.keys[1].id != "3" {
		t.Errorf("%d keys: %+v", len(w.keys), w.keys[:2])
	}
	for i := range w.keys {
		w.keys[i].state, w.keys[i].emergency = KeyRetired, false
	}
	if s.mayRotate(&w.d, w.keys, true, w.now()) == nil {
		t.Error("emergencies make keys without end")
	}
}

// A rotation is due when the RSA key is old enough, and never a second time while one is under way.
func TestRotationDue(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		change func(w *world)
		age    time.Duration
		want   bool
	}{
		"delegated and old":      {func(*world) {}, 90 * day, true},
		"delegated and younger":  {func(*world) {}, 89 * day, false},
		"static and old":         {func(w *world) { w.d.Setup = SetupRecords }, 180 * day, true},
		"static and younger":     {func(w *world) { w.d.Setup = SetupRecords }, 179 * day, false},
		"off":                    {func(w *world) { w.c.Rotation = 0 }, 1000 * day, false},
		"under way":              {func(w *world) { w.begin(false) }, 90 * day, false},
		"not verified":           {func(w *world) { w.d.checks = nil }, 90 * day, false},
		"sandbox":                {func(w *world) { w.d.TeamID = system }, 90 * day, false},
		"claimed":                {func(w *world) { w.d.Placeholder = true }, 90 * day, false},
		"it does not send":       {func(w *world) { w.d.Sending = false }, 1000 * day, false},
		"no selector is free":    {twoSelectors(KeyRetired), 90 * day, false},
		"the other one can be":   {twoSelectors(KeyRevoked), 90 * day, true},
		"Ed25519 waits for ever": {func(w *world) { w.keys = []key{{state: KeyNext, algorithm: algorithmEd25519}} }, 90 * day, true},
	} {
		w := newWorld(t, SetupDelegation, false)
		w.keys = nil
		c.change(w)
		now := w.d.keysSince.Add(c.age)
		if got := w.c.rotationDue(&w.d, w.keys, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if at := w.c.examineAt(&w.d, now); at.Before(now.Add(examineOften)) || at.After(now.Add(examineSeldom)) {
			t.Errorf("%s: the next examination is in %v", name, at.Sub(now))
		}
	}
}

// twoSelectors gives a domain the set-up SetupCNAME, with a key in the given state at the selector that does not sign.
func twoSelectors(state KeyState) func(w *world) {
	return func(w *world) {
		w.d.Setup, w.d.rsa.selector = SetupCNAME, "s1"
		w.keys = []key{{state: state, selector: "s2", algorithm: algorithmRSA}}
	}
}

// A domain that does not send is not asked for the alias to which a rotation with the set-up cname changes. No rotation
// begins then, and one that is under way ends, unless it is an emergency.
func TestRotationOfADomainThatDoesNotSend(t *testing.T) {
	t.Parallel()
	for _, setup := range setups {
		for _, emergency := range []bool{false, true} {
			w := newWorld(t, setup, emergency)
			w.answers = func(*key) sighting { return sighting{absent, 0} }
			w.d.Sending = false
			w.step()
			if ends := setup == SetupCNAME && !emergency; ends == w.state(KeyNext) {
				t.Errorf("%s, emergency %v: %+v", setup, emergency, w.keys)
			}
			w.keys = nil
			s := &Service{c: w.c}
			if err := s.mayRotate(&w.d, nil, emergency, w.now()); (err == nil) != (setup != SetupCNAME) {
				t.Errorf("%s, emergency %v: %v", setup, emergency, err)
			}
		}
	}
}

// Owners get advice about the records that they publish themselves, and about no others.
func TestAdviceAboutKeys(t *testing.T) {
	t.Parallel()
	states := []key{{state: KeyNext, selector: "s2"}, {state: KeyNext, selector: "s2", emergency: true},
		{state: KeyRetired, selector: "s1"}, {state: KeyRevoked, selector: "s1"}, {state: KeyRetired, selector: "single"}}
	for setup, want := range map[string][]bool{SetupRecords: {true, true, true, true, true},
		SetupCNAME: {false, false, false, false, true}, SetupDelegation: {false, false, false, false, false}} {
		w := newWorld(t, setup, false)
		for i, k := range (&Service{c: w.c}).describeKeys(&w.d, states, w.now()) {
			if k.State == KeySigning {
				if k.Advice != "" {
					t.Errorf("%s: %+v", setup, k)
				}
				want = append([]bool{false}, want...)
			} else if (k.Advice != "") != want[i] {
				t.Errorf("%s: %+v", setup, k)
			}
		}
	}
}

func TestJudgeAnswers(t *testing.T) {
	t.Parallel()
	const record = "v=DKIM1; k=rsa; p=AAAA"
	yes, no, silent := ServerAnswer{Texts: []string{"k=rsa; v=DKIM1; p=AA AA"}, TTL: time.Minute},
		ServerAnswer{TTL: time.Hour}, ServerAnswer{Err: errTest}
	for name, c := range map[string]struct {
		answers []ServerAnswer
		err     error
		want    sighting
	}{
		"all":             {[]ServerAnswer{yes, yes}, nil, sighting{present, time.Minute}},
		"one lacks it":    {[]ServerAnswer{yes, no}, nil, sighting{absent, time.Hour}},
		"one is silent":   {[]ServerAnswer{yes, yes, silent}, nil, sighting{present, time.Minute}},
		"half are silent": {[]ServerAnswer{yes, silent}, nil, sighting{unknown, time.Minute}},
		"all are silent":  {[]ServerAnswer{silent}, nil, sighting{unknown, 0}},
		"no server":       {nil, errTest, sighting{unknown, 0}},
		"two records": {[]ServerAnswer{{Texts: []string{record, "v=DKIM1; p="}}}, nil,
			sighting{absent, 0}},
		"quotes in the value": {[]ServerAnswer{{Texts: []string{`"` + record + `"`}}}, nil, sighting{absent, 0}},
		"another algorithm":   {[]ServerAnswer{{Texts: []string{"v=DKIM1; k=ed25519; p=AAAA"}}}, nil, sighting{absent, 0}},
		"no algorithm":        {[]ServerAnswer{{Texts: []string{"p=AAAA"}}}, nil, sighting{present, 0}},
	} {
		if got := judgeAnswers(c.answers, c.err, record); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

var errTest = errors.New("test")
