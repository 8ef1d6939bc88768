package mcp

import (
	"bufio"
	"errors"
	"io"
	"net/http"
)

// isBatch reports whether the body of a request is a JSON-RPC batch, that is, a JSON array. isBatch removes leading
// white space from the body, and limits the body to bodyMax bytes.
func isBatch(w http.ResponseWriter, r *http.Request) bool {
	body := http.MaxBytesReader(w, r.Body, bodyMax)
	in := bufio.NewReader(body)
	r.Body = struct {
		io.Reader
		io.Closer
	}{in, body}
	for {
		switch c, err := in.ReadByte(); {
		case err != nil:
			return false // the SDK reports the error
		case c == ' ' || c == '\t' || c == '\r' || c == '\n': // white space in JSON (RFC 8259 section 2)
		default:
			in.UnreadByte()
			return c == '['
		}
	}
}

// batchRefusal is the response to a batch: a JSON-RPC error with the code "Invalid Request". The MCP specification of
// 2025-06-18 removed batches. An earlier version allowed them, but one batch could contain thousands of calls.
const batchRefusal = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: this server ` +
	`does not accept batches. Send each call in a request of its own."}}`

func refuseBatch(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	io.WriteString(w, batchRefusal)
}

// boundedWriter refuses a response body of more than answerSize bytes, for which no memory is reserved.
type boundedWriter struct {
	http.ResponseWriter
	begun   bool // the status has been sent
	written int
}

// Unwrap returns the inner writer, for [http.ResponseController].
func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *boundedWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. If the response body would exceed answerSize, Write fails. If nothing has been
// sent yet, the client then gets the status 500.
func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.written+len(p) > answerSize {
		if !w.begun {
			http.Error(w, "The answer is too long. Ask for less at once.", http.StatusInternalServerError)
		}
		return 0, errors.New("the answer is too long")
	}
	w.begun = true
	n, err := w.ResponseWriter.Write(p)
	w.written += n
	return n, err
}
