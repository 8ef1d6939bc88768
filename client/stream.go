package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// download calls an operation and returns the body of its response, which the caller must close. If the response is cut
// off, the last read returns an error other than io.EOF.
func download(ctx context.Context, c *Client, o operation, options []RequestOption) (io.ReadCloser, error) {
	response, err := c.send(ctx, &o, options)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// rows returns an iterator over the lines of an NDJSON response. Each use of the iterator calls the operation.
func rows[T any](ctx context.Context, c *Client, o operation, options []RequestOption) iter.Seq2[T, error] {
	o.accept = "application/x-ndjson"
	return func(yield func(T, error) bool) {
		var zero T
		body, err := download(ctx, c, o, options)
		if err != nil {
			yield(zero, err)
			return
		}
		defer body.Close()
		limited := &limitedReader{r: body}
		for lines := json.NewDecoder(limited); ; {
			var row T
			limited.left = maxResponse
			err := lines.Decode(&row)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(zero, fmt.Errorf("%s %s: read a row: %w", o.method, o.path, err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// messages returns an iterator over the data of server-sent events. Each use of the iterator calls the operation.
func messages[T any](ctx context.Context, c *Client, o operation, options []RequestOption) iter.Seq2[T, error] {
	o.accept = "text/event-stream"
	return func(yield func(T, error) bool) {
		var zero T
		body, err := download(ctx, c, o, options)
		if err != nil {
			yield(zero, err)
			return
		}
		defer body.Close()
		for m, err := range readMessages(body) {
			if m.comment {
				continue
			}
			var v T
			if err == nil {
				err = json.Unmarshal([]byte(m.data), &v)
			}
			if err != nil {
				yield(zero, fmt.Errorf("%s %s: read an event: %w", o.method, o.path, err))
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

// message is a server-sent event. If it is a comment, only comment is set.
type message struct {
	id, event, data string
	comment         bool
}

// readMessages yields the server-sent events of a stream (HTML Living Standard, section 9.2.6) that have data.
func readMessages(body io.Reader) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, maxResponse)
		var m message
		var data []string // lines of the event's data
		size := 0
		for lines.Scan() {
			line := lines.Text()
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case line == "":
				m.data = strings.Join(data, "\n")
				if m.data != "" && !yield(m, nil) {
					return
				}
				m, data, size = message{}, nil, 0
			case name == "":
				if !yield(message{comment: true}, nil) {
					return
				}
			case name == "id":
				m.id = value
			case name == "event":
				m.event = value
			case name == "data" && size+len(value) > maxResponse:
				yield(message{}, fmt.Errorf("an event is longer than %d MB", maxResponse>>20))
				return
			case name == "data":
				size += len(value) + 1
				data = append(data, value)
			}
		}
		if err := lines.Err(); err != nil {
			yield(message{}, err)
		}
	}
}
