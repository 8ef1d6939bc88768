// Package alarms tells the operator of problems of the installation, by email or by a request to a URL: once when a
// problem begins, once a day while it lasts, and once when it is over.
//
// # Invariants
//
// The state of each alarm is a fact in the database (see [db.SetFact]). A transaction changes the state and enqueues
// the messages, so one of several nodes sends them, and a crash loses none. An alarm about one node has the node's name
// in its key; other alarms are shared.
//
// # Failures
//
// If the database cannot store the state, for example because the disk is full, the message is sent at once and
// directly, without the queue. The node then remembers in memory that it was sent; if no receiver took it, the next
// report sends it again. Messages that a URL does not take are sent again for about a day, and then the job is parked.
// A message whose URL is no longer a receiver is dropped, with a line in the log.
//
// # Out of scope
//
// The package does not measure anything. Its callers decide what is a problem.
package alarms

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

const (
	// Kind is the job kind of the requests to URLs.
	Kind = "alarm"
	// remindEvery is the time between two messages about a problem that lasts.
	remindEvery = 24 * time.Hour
	postTime    = 15 * time.Second // time limit of a request
)

// Config says whom to tell.
type Config struct {
	To   []string // email addresses, and URLs that begin with https:// or http://
	Node string   // name of this node
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB    *db.DB
	Queue *jobs.Queue
	// Mail enqueues an email to one address in the transaction tx.
	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error
	// MailNow sends an email to one address without the database.
	MailNow func(ctx context.Context, to, subject, text string) error
	Log     *slog.Logger
}

// Condition is what a check found.
type Condition struct {
	Cause string // short name, such as disk
	// Node is the name of the node that the condition is about, or "" if it is about the whole installation.
	Node string
	// Bad means that there is a problem, and Good that there is none. If neither is set, the value is between the limits
	// at which an alarm begins and ends, and nothing changes.
	Bad, Good bool
	Title     string // the problem in a few words, for subjects
	Text      string // what is wrong, what it means, and what to do
}

// key returns the name of the fact that stores the state of the alarm.
func (c *Condition) key() string {
	if c.Node == "" {
		return "alarm." + c.Cause
	}
	return "alarm." + c.Cause + "." + c.Node
}

// state is an alarm that was raised and is not over.
type state struct {
	Since time.Time `json:"since"`
	Sent  time.Time `json:"sent"` // time of the last message
}

// Service sends alarms.
type Service struct {
	c      Config
	to     atomic.Pointer[[]string]
	p      Deps
	client *http.Client

	mu      sync.Mutex
	unsaved map[string]state // alarms whose state could not be stored, by key
}

// New returns the service. New fails if a dependency is missing.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	s := &Service{c: c, p: p, unsaved: map[string]state{},
		client: &http.Client{Timeout: postTime, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}
	s.SetReceivers(c.To)
	return s, nil
}

// SetReceivers replaces the addresses and URLs that are told.
func (s *Service) SetReceivers(to []string) { s.to.Store(&to) }

// Active reports whether anybody is told. Otherwise, conditions need not be measured.
func (s *Service) Active() bool { return len(*s.to.Load()) > 0 }

// event is what happens to an alarm.
type event string

const (
	nothing  event = ""
	raised   event = "raised"
	reminded event = "reminded"
	cleared  event = "cleared"
)

// next returns what happens to an alarm with a state, or without one if old is nil.
func next(old *state, c Condition, now time.Time) (state, event) {
	switch {
	case old == nil && c.Bad:
		return state{now, now}, raised
	case old == nil:
		return state{}, nothing
	case c.Good:
		return *old, cleared
	case c.Bad && now.Sub(old.Sent) >= remindEvery:
		return state{old.Since, now}, reminded
	}
	return *old, nothing
}

// Report compares a condition with the state of its alarm, and sends messages if the state changes.
func (s *Service) Report(ctx context.Context, c Condition) error {
	unsaved := s.recall(c.key())
	text, err := s.p.DB.Fact(ctx, c.key())
	var old *state
	if err == nil {
		old, err = parseState(text)
	}
	if err == nil {
		if _, what := next(old, c, s.p.DB.Now()); what == nothing && unsaved == nil {
			return nil
		}
		err = s.p.DB.Update(ctx, func(tx *db.Tx) error { return s.change(ctx, tx, c, unsaved) })
	}
	switch {
	case err == nil:
		s.remember(c.key(), nil)
		return nil
	case !errors.Is(err, db.ErrUnavailable) && !errors.Is(err, db.ErrUnknown):
		return err
	}
	if unsaved != nil {
		old = unsaved
	}
	return errors.Join(fmt.Errorf("store the state of the alarm %s: %w", c.Cause, err), s.sendNow(ctx, c, old))
}

// recall returns the state of an alarm that the database could not store, or nil.
func (s *Service) recall(key string) *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.unsaved[key]; ok {
		return &st
	}
	return nil
}

// remember keeps the state of an alarm in memory; nil removes it.
func (s *Service) remember(key string, st *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.unsaved, key); st != nil {
		s.unsaved[key] = *st
	}
}

// parseState returns the state of an alarm, or nil if it is not raised.
func parseState(text string) (*state, error) {
	if text == "" {
		return nil, nil
	}
	old := &state{}
	if err := json.Unmarshal([]byte(text), old); err != nil {
		return nil, fmt.Errorf("read the state of an alarm: %w", err)
	}
	return old, nil
}

// change changes the state of an alarm and enqueues the messages, unless another node has done so. The parameter unsaved
// is a state that the database could not store before; its message was sent.
func (s *Service) change(ctx context.Context, tx *db.Tx, c Condition, unsaved *state) error {
	if err := tx.Serialize(ctx, "alarms"); err != nil {
		return err
	}
	text, err := db.FactIn(ctx, tx.Reader, c.key())
	if err != nil {
		return err
	}
	old, err := parseState(text)
	if err != nil {
		return err
	}
	if old == nil {
		old = unsaved
	}
	st, what := next(old, c, tx.Now())
	if what == cleared {
		db.SetFact(ctx, tx, c.key(), "")
	} else if old != nil || what != nothing {
		text, err := json.Marshal(st)
		if err != nil {
			return fmt.Errorf("encode the state of an alarm: %w", err)
		}
		db.SetFact(ctx, tx, c.key(), string(text))
	}
	if what == nothing {
		return nil
	}
	m := s.message(c, what, st, tx.Now())
	tx.AfterCommit(func() { s.log(m) })
	for i, to := range *s.to.Load() {
		if !IsURL(to) {
			if err := s.p.Mail(ctx, tx, to, m.subject(), m.Text); err != nil {
				return err
			}
			continue
		}
		payload, err := json.Marshal(posting{digest(to), m})
		if err != nil {
			return fmt.Errorf("encode an alarm: %w", err)
		}
		s.p.Queue.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: fmt.Sprint(Kind, i), Payload: string(payload)})
	}
	return nil
}

// sendNow sends a message without the database, if the state of the alarm changes.
func (s *Service) sendNow(ctx context.Context, c Condition, old *state) error {
	now, before := s.p.DB.Now(), s.recall(c.key())
	st, what := next(old, c, now)
	switch what {
	case nothing:
		return nil
	case cleared:
		s.remember(c.key(), nil)
	default:
		s.remember(c.key(), &st)
	}
	m := s.message(c, what, st, now)
	s.log(m)
	var failed error
	told := 0
	for _, to := range *s.to.Load() {
		var err error
		if IsURL(to) {
			err = s.post(ctx, to, m)
		} else {
			err = s.p.MailNow(ctx, to, m.subject(), m.Text)
		}
		if err == nil {
			told++
		}
		failed = errors.Join(failed, err)
	}
	if told == 0 {
		s.remember(c.key(), before) // the next report tries again
	}
	return failed
}

// message is what is sent. URLs get it in JSON; chat programs show the member text.
type message struct {
	Text  string    `json:"text"`
	Alarm string    `json:"alarm"` // the cause
	State event     `json:"state"`
	Title string    `json:"title"`
	Node  string    `json:"node"` // the node that the alarm is about; "" for the whole installation
	From  string    `json:"from"` // the node that noticed
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
}

func (s *Service) message(c Condition, what event, st state, now time.Time) message {
	m := message{Alarm: c.Cause, State: what, Title: c.Title, Node: c.Node, From: s.c.Node, Since: st.Since, At: now,
		Text: c.Text}
	const layout = "2006-01-02 15:04 UTC"
	switch what {
	case cleared:
		m.Text = fmt.Sprintf("This problem is over: %s. It began at %s.", m.title(), st.Since.UTC().Format(layout))
	case reminded:
		m.Text += fmt.Sprintf("\n\nThis has lasted since %s. You get a reminder once a day.", st.Since.UTC().Format(layout))
	}
	return m
}

// title returns the title with the name of the node that it is about.
func (m *message) title() string {
	if m.Node == "" {
		return m.Title
	}
	return m.Title + " (" + m.Node + ")"
}

func (m *message) subject() string {
	switch m.State {
	case cleared:
		return "Postrider: over: " + m.title()
	case reminded:
		return "Postrider: still: " + m.title()
	}
	return "Postrider: " + m.title()
}

func (s *Service) log(m message) {
	level := slog.LevelError
	if m.State == cleared {
		level = slog.LevelInfo
	}
	s.p.Log.Log(context.Background(), level, "alarm "+string(m.State), "alarm", m.Alarm, "node", m.Node, "text", m.Text)
}

// IsURL reports whether a receiver of alarms is a URL. Otherwise, it is an email address.
func IsURL(to string) bool {
	return strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "http://")
}

// posting is the payload of a job: a message, and the digest of the receiver's URL. The URL is not stored, because it
// may contain a secret. The index of the URL would name another receiver after a change of the settings, and on nodes
// with other settings.
type posting struct {
	Receiver string  `json:"receiver"`
	Message  message `json:"message"`
}

// digest returns a name for the URL of a receiver that does not reveal the URL.
func digest(to string) string {
	sum := sha256.Sum256([]byte(to))
	return hex.EncodeToString(sum[:16])
}

// Jobs returns the job kind of the requests to URLs.
func (s *Service) Jobs() jobs.Kind {
	schedule := []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}
	for range 6 {
		schedule = append(schedule, 4*time.Hour)
	}
	return jobs.Kind{Name: Kind, Handle: s.handle, Workers: 4, PerLane: 1, Lease: time.Minute, Schedule: schedule}
}

func (s *Service) handle(ctx context.Context, j jobs.Job) error {
	var p posting
	if err := json.Unmarshal([]byte(j.Payload), &p); err != nil {
		return fmt.Errorf("read an alarm: %w", err)
	}
	all := *s.to.Load()
	i := slices.IndexFunc(all, func(to string) bool { return IsURL(to) && digest(to) == p.Receiver })
	if i < 0 {
		s.p.Log.Warn("an alarm was not sent, because its URL is no longer in alert_to", "alarm", p.Message.Alarm, "state",
			p.Message.State, "since", p.Message.Since)
	} else if err := s.post(ctx, all[i], p.Message); err != nil {
		return err
	}
	return s.p.Queue.End(ctx, j)
}

// post sends a message to a URL. Its errors do not contain the URL.
func (s *Service) post(ctx context.Context, to string, m message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode an alarm: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, postTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("send an alarm: alert_to has an invalid URL")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Postrider-Alarms")
	answer, err := s.client.Do(r)
	if err != nil {
		return fmt.Errorf("send an alarm to a URL of alert_to: %w", errors.Unwrap(err))
	}
	defer answer.Body.Close()
	io.CopyN(io.Discard, answer.Body, 64<<10)
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("send an alarm to a URL of alert_to: the answer was %s", answer.Status)
	}
	return nil
}
