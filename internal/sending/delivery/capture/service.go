package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/blob"
)

func notFound(captureID string) error {
	return fault.NotFoundf("The outbox has no email with the id %.100q. The oldest emails are deleted when it has more "+
		"than %d.", captureID, Max)
}

// isAfter reports whether a message arrived after the one with the given id, which may have been deleted. The caller
// must hold mu.
func (b *Outbox) isAfter(e *entry, captureID string) bool {
	if known := b.byID[captureID]; known != nil {
		return e.arrival > known.arrival
	}
	return e.ID > captureID
}

// selects reports whether a filter selects a message. The caller must hold mu.
func (b *Outbox) selects(f *Filter, e *entry) bool {
	return f.selects(&e.Message) && (f.after == "" || b.isAfter(e, f.after))
}

// All returns all messages, newest first.
func (b *Outbox) All(ctx context.Context) ([]Message, error) {
	all, _, err := b.List(ctx, Filter{}, "", Max)
	return all, err
}

// List returns the messages that a filter selects, newest first, and whether there are more than limit. If after is not
// "", it is the id of a message, and List returns only messages that come after that one in the list, which are older.
func (b *Outbox) List(ctx context.Context, f Filter, after string, limit int) (all []Message, more bool, err error) {
	if after != "" && !id.Valid(after) {
		return nil, false, fault.Invalidf("after", "The parameter `after` must be the id of an email in the outbox.")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.sync(ctx); err != nil {
		return nil, false, err
	}
	for _, e := range slices.Backward(b.entries) {
		if after != "" && (e.ID == after || b.isAfter(e, after)) || !b.selects(&f, e) {
			continue
		}
		if len(all) == limit {
			return all, true, nil
		}
		all = append(all, e.Message)
	}
	return all, false, nil
}

// Position returns the position after all messages that have arrived until now.
func (b *Outbox) Position(ctx context.Context) (Position, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.sync(ctx)
	return b.arrivals, err
}

// Next waits until the outbox has messages that arrived after a position and that a filter selects. It returns these
// messages in order of arrival, at most 100 of them, and the position after them. If ctx ends, Next returns its error.
func (b *Outbox) Next(ctx context.Context, f Filter, after Position) (all []Message, next Position, err error) {
	const most = 100
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, after, ErrClosed
		}
		if err := b.sync(ctx); err != nil {
			b.mu.Unlock()
			return nil, after, err
		}
		start, _ := slices.BinarySearchFunc(b.entries, after+1, byArrival)
		for _, e := range b.entries[start:] {
			if after = e.arrival; b.selects(&f, e) {
				all = append(all, e.Message)
			}
			if len(all) == most {
				break
			}
		}
		news := b.news
		b.mu.Unlock()
		if len(all) > 0 {
			return all, after, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, after, context.Cause(ctx)
		}
	}
}

// Get returns a message.
func (b *Outbox) Get(ctx context.Context, captureID string) (Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.sync(ctx); err != nil {
		return Message{}, err
	}
	e := b.byID[captureID]
	if e == nil {
		return Message{}, notFound(captureID)
	}
	return e.Message, nil
}

// Open returns a reader for a message, exactly as it would have been sent. The caller must close the reader.
func (b *Outbox) Open(ctx context.Context, captureID string) (io.ReadCloser, error) {
	if !id.Valid(captureID) {
		return nil, notFound(captureID)
	}
	r, err := b.blobs.Get(ctx, prefix+captureID+content)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, notFound(captureID)
	}
	return r, err
}

// SetRead marks a message as read or unread, and returns it.
func (b *Outbox) SetRead(ctx context.Context, captureID string, read bool) (Message, error) {
	return b.update(ctx, captureID, func(m *Message) { m.Read = read })
}

// SetReleased stores that a message was released now.
func (b *Outbox) SetReleased(ctx context.Context, captureID string) (Message, error) {
	return b.update(ctx, captureID, func(m *Message) { m.ReleasedAt = time.Now().UTC() })
}

func (b *Outbox) update(ctx context.Context, captureID string, change func(*Message)) (Message, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	m, err := b.Get(ctx, captureID)
	if err != nil {
		return m, err
	}
	change(&m)
	if err := b.putDescription(ctx, m); err != nil {
		return m, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.byID[captureID]; e != nil {
		e.Message = m
	}
	return m, nil
}

// Delete deletes a message.
func (b *Outbox) Delete(ctx context.Context, captureID string) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	if _, err := b.Get(ctx, captureID); err != nil {
		return err
	}
	return b.remove(ctx, captureID)
}

// Deleted is a message that was deleted, with its content.
type Deleted struct {
	Message
	arrival Position
	raw     []byte
}

// Take deletes a message and returns it, so that [Outbox.Restore] can store it again.
func (b *Outbox) Take(ctx context.Context, captureID string) (*Deleted, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	m, err := b.Get(ctx, captureID)
	if err != nil {
		return nil, err
	}
	r, err := b.Open(ctx, captureID)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	d := &Deleted{Message: m}
	if d.raw, err = io.ReadAll(r); err != nil {
		return nil, fmt.Errorf("read a captured message: %w", err)
	}
	b.mu.Lock()
	if e := b.byID[captureID]; e != nil {
		d.arrival = e.arrival
	}
	b.mu.Unlock()
	return d, b.remove(ctx, captureID)
}

// Restore stores a deleted message again, at its former place in the list. Callers of Next that wait for later messages
// do not get it.
func (b *Outbox) Restore(ctx context.Context, d *Deleted) error {
	if err := b.reserve(ctx); err != nil {
		return err
	}
	_, err := b.blobs.Put(ctx, prefix+d.ID+content, bytes.NewReader(d.raw))
	if err == nil {
		err = b.putDescription(ctx, d.Message)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adding--
	if err != nil {
		return fmt.Errorf("store a captured message again: %w", err)
	}
	if i, used := slices.BinarySearchFunc(b.entries, d.arrival, byArrival); !used && b.byID[d.ID] == nil {
		e := &entry{d.Message, d.arrival}
		b.entries, b.byID[d.ID] = slices.Insert(b.entries, i, e), e
	}
	return nil
}

// DeleteAll deletes the messages that a filter selects, and returns their number.
func (b *Outbox) DeleteAll(ctx context.Context, f Filter) (deleted int, err error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	all, _, err := b.List(ctx, f, "", Max)
	if err != nil {
		return 0, err
	}
	for i := range all {
		if err := b.remove(ctx, all[i].ID); err != nil {
			return i, err
		}
	}
	return len(all), nil
}
