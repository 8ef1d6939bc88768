// Package capture stores the messages that the transport capture does not send, so that developers and tests can read
// them.
//
// # Invariants
//
// A message is stored exactly as it would have been sent, beside a small description. At most [Max] messages are
// stored; a further message replaces the oldest one. The descriptions are also in memory, so lists and searches read no
// blobs. A waiting caller of Next gets each message that arrives after its position, and does not poll.
//
// Several nodes may share the blobs. Each node announces its messages to the other nodes. If an announcement is lost,
// the other nodes find the message when they listen again after a lost connection.
//
// # Failures
//
// If the blobs are away, methods return an outage (fault.IsOutage). A message whose description cannot be read is
// listed without its subject and addresses. A deletion or a mark is not announced: another node shows the earlier state
// until it starts again. A crash while a message is being deleted may leave its content in the blobs without a
// description; such a content is never listed.
//
// # Out of scope
//
// Package capture does not check who may read the messages, which belong to all teams. It does not send messages.
package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/blob"
)

// Max is the maximum number of stored messages.
const Max = 1000

const (
	prefix      = "captured/"
	content     = ".eml"  // suffix of the blob with the message
	description = ".json" // suffix of the blob with the description; it is written last
)

// ErrClosed means that the node stops.
var ErrClosed = fault.New(fault.Unavailable, "", "The node stops. Try again in a moment.")

// Outbox stores captured messages. An Outbox is safe for concurrent use.
type Outbox struct {
	blobs    *blob.Store
	announce func(captureID string) // tells other nodes about a new message; may be nil

	changing sync.Mutex // held while stored messages are changed or deleted

	mu       sync.Mutex // guards the fields below
	behind   bool       // whether the blobs must be listed before the index is used
	unread   []string   // ids of messages that other nodes have announced
	entries  []*entry   // in order of arrival
	byID     map[string]*entry
	arrivals Position
	adding   int           // number of messages that are being stored
	news     chan struct{} // closed when the index may have changed
	closed   bool
}

// Position is a point in the order in which messages arrived at this node. The zero Position is before all messages.
type Position uint64

// entry is a message in the index.
type entry struct {
	Message
	arrival Position
}

// New returns an outbox with the messages in the given blobs. The function announce, which may be nil, passes the id of
// a new message to the method Hear of other nodes' outboxes.
func New(blobs *blob.Store, announce func(captureID string)) *Outbox {
	return &Outbox{blobs: blobs, announce: announce, behind: true, byID: map[string]*entry{}, news: make(chan struct{})}
}

// Add stores a message. The caller provides the ids, the envelope and UTF8; Add sets all other fields.
func (b *Outbox) Add(ctx context.Context, m Message, raw []byte) (Message, error) {
	if err := b.reserve(ctx); err != nil {
		return m, err
	}
	err := b.write(ctx, &m, raw)
	b.mu.Lock()
	b.adding--
	if err == nil {
		b.insert(m)
		b.wake()
	}
	b.mu.Unlock()
	if err == nil && b.announce != nil {
		b.announce(m.ID)
	}
	return m, err
}

// write writes the content and the description of a new message.
func (b *Outbox) write(ctx context.Context, m *Message, raw []byte) error {
	m.describe(raw)
	m.ID, m.Size, m.At = id.New(), len(raw), time.Now().UTC()
	if _, err := b.blobs.Put(ctx, prefix+m.ID+content, bytes.NewReader(raw)); err != nil {
		return fmt.Errorf("store a captured message: %w", err)
	}
	if err := b.putDescription(ctx, *m); err != nil {
		return errors.Join(err, b.blobs.Delete(context.WithoutCancel(ctx), prefix+m.ID+content))
	}
	return nil
}

func (b *Outbox) putDescription(ctx context.Context, m Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the description of a captured message: %w", err)
	}
	if _, err := b.blobs.Put(ctx, prefix+m.ID+description, bytes.NewReader(text)); err != nil {
		return fmt.Errorf("store the description of a captured message: %w", err)
	}
	return nil
}

// reserve deletes the oldest messages until one more message can be stored, and counts it in adding.
func (b *Outbox) reserve(ctx context.Context) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.mu.Lock()
	err := b.sync(ctx)
	var oldest []string
	if err == nil {
		b.adding++
		excess := min(max(len(b.entries)+b.adding-Max, 0), len(b.entries))
		for _, e := range b.entries[:excess] {
			oldest = append(oldest, e.ID)
		}
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	for _, x := range oldest {
		if err := b.remove(ctx, x); err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.adding--
			return err
		}
	}
	return nil
}

// remove deletes a message from the blobs and from the index. The caller must hold changing.
func (b *Outbox) remove(ctx context.Context, captureID string) error {
	for _, suffix := range []string{description, content} {
		if err := b.blobs.Delete(ctx, prefix+captureID+suffix); err != nil {
			return fmt.Errorf("delete a captured message: %w", err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(captureID)
	return nil
}

// drop removes a message from the index. The caller must hold mu.
func (b *Outbox) drop(captureID string) {
	if e := b.byID[captureID]; e != nil {
		delete(b.byID, captureID)
		i, _ := slices.BinarySearchFunc(b.entries, e.arrival, byArrival)
		b.entries = slices.Delete(b.entries, i, i+1)
	}
}

func byArrival(e *entry, p Position) int {
	switch {
	case e.arrival < p:
		return -1
	case e.arrival > p:
		return 1
	}
	return 0
}

// insert adds a message to the index. The caller must hold mu.
func (b *Outbox) insert(m Message) {
	if b.byID[m.ID] != nil {
		return
	}
	b.arrivals++
	e := &entry{m, b.arrivals}
	b.entries = append(b.entries, e)
	b.byID[m.ID] = e
}

// wake wakes all waiting callers of Next. The caller must hold mu.
func (b *Outbox) wake() {
	close(b.news)
	b.news = make(chan struct{})
}

// Hear is told the id of a message that a node has stored. Hear does not block.
func (b *Outbox) Hear(captureID string) {
	if !id.Valid(captureID) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[captureID] != nil || b.behind {
		return
	}
	if b.unread = append(b.unread, captureID); len(b.unread) > Max {
		b.behind, b.unread = true, nil
	}
	b.wake()
}

// Resync makes the outbox look for messages of other nodes whose announcement was lost. Resync does not block.
func (b *Outbox) Resync() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind, b.unread = true, nil
	b.wake()
}

// Close makes all present and future calls of Next return ErrClosed.
func (b *Outbox) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.wake()
}

// sync adds the messages of other nodes, and of earlier runs, to the index. The caller must hold mu.
func (b *Outbox) sync(ctx context.Context) error {
	unread := b.unread
	if b.behind {
		stored := map[string]bool{}
		err := b.blobs.List(ctx, prefix, func(f blob.Info) error {
			x, ok := strings.CutSuffix(strings.TrimPrefix(f.Key, prefix), description)
			if ok && id.Valid(x) {
				stored[x] = true
			}
			return nil
		})
		if err != nil {
			return &listError{err}
		}
		for _, e := range slices.Clone(b.entries) {
			if !stored[e.ID] {
				b.drop(e.ID)
			}
		}
		unread = unread[:0]
		for x := range stored {
			unread = append(unread, x)
		}
	}
	unread = slices.DeleteFunc(unread, func(x string) bool { return b.byID[x] != nil })
	if len(unread) > 0 {
		slices.Sort(unread) // the alphabetical order of ids is chronological
		read := make([]*Message, len(unread))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(16)
		for i, x := range unread {
			g.Go(func() (err error) {
				read[i], err = b.readDescription(ctx, x)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for _, m := range read {
			if m != nil {
				b.insert(*m)
			}
		}
	}
	b.behind, b.unread = false, nil
	return nil
}

// listError means that the blobs could not be listed.
type listError struct{ err error }

func (e *listError) Error() string { return "list captured messages: " + e.err.Error() }
func (e *listError) Unwrap() error { return e.err }

// Outage reports that the blobs are away, unless the caller gave up (see fault.IsOutage).
func (e *listError) Outage() bool {
	return !errors.Is(e.err, context.Canceled) && !errors.Is(e.err, context.DeadlineExceeded)
}

// readDescription reads the description of a message. It returns nil if the message has been deleted meanwhile.
func (b *Outbox) readDescription(ctx context.Context, captureID string) (*Message, error) {
	r, err := b.blobs.Get(ctx, prefix+captureID+description)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the description of a captured message: %w", err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the description of a captured message: %w", err)
	}
	m := &Message{}
	if json.Unmarshal(text, m) != nil || m.ID != captureID {
		m = &Message{ID: captureID}
		m.At, _ = id.Time(captureID)
	}
	return m, nil
}
